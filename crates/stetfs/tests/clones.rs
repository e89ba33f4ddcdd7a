//! Tests of `home=share` on images in XFS and btrfs, whose file systems share the blocks
//! (FICLONERANGE).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};

use stetfs::low::{
    BlockDevice, Ctx, FsOptions, HomeInfo, OpenRef, Part, Source, Volume, VolumeOptions, Wait, info,
};
use stetfs_crash::volume::mke2fs;
use stetfs_testkit::Image;
use stetfs_testkit::cmd;
use stetfs_testkit::image::e2fsck;
use stetfs_testkit::mount::KernelMount;

const BLOCK: u64 = 4096;
/// Blocks of the overwritten file.
const BLOCKS: u64 = 6144;
/// Blocks overwritten between two syncs.
const EACH: u64 = 100;
/// Most extents of an image of 64 MiB.
const EXTENTS: u64 = 4096;
/// The variable with the image for the child of [`a_kill`].
const CHILD: &str = "STETFS_TEST_CLONES_CHILD";

/// A mounted file system in a file, which holds an image of a volume.
struct Host {
    image: PathBuf,
    mount: KernelMount,
    _disk: Image,
}

impl Host {
    /// With a volume of 64 MiB and a journal of 4 MiB.
    fn new(fstype: &str, mkfs: &[&str]) -> Host {
        let (_disk, mount) = KernelMount::made(fstype, mkfs, 512 << 20).unwrap();
        let image = mount.path().join("image");
        std::fs::File::create(&image).unwrap();
        if fstype == "btrfs" {
            // Blocks that are not shared are written in place, as on XFS.
            cmd::run(Command::new("chattr").arg("+C").arg(&image)).unwrap();
        }
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        file.set_len(64 << 20).unwrap();
        mke2fs(&image, &["-b", "4096", "-J", "size=4"]).unwrap();
        Host {
            image,
            mount,
            _disk,
        }
    }

    fn end(self) {
        self.mount.umount().unwrap();
    }

    /// The number of extents, by filefrag.
    fn extents(&self) -> u64 {
        let said = cmd::run(Command::new("filefrag").arg(&self.image)).unwrap();
        let words: Vec<&str> = said.split_whitespace().collect();
        let at = words.iter().position(|w| w.starts_with("extent")).unwrap();
        words[at - 1].parse().unwrap()
    }
}

fn open(image: &Path, journal: &str) -> Arc<Volume> {
    let options = VolumeOptions {
        fs: FsOptions {
            journal: journal.parse().unwrap(),
            commit_secs: 3600,
            // So small that data that is read back comes from the device.
            cache_bytes: 4 << 20,
            ..FsOptions::default()
        },
        ..VolumeOptions::default()
    };
    Volume::open(image, &options).unwrap()
}

/// The prediction of `info` for `home=share`.
fn would(image: &Path) -> HomeInfo {
    let source = Source {
        path: image.to_owned(),
        part: Part::Whole,
        ..Source::default()
    };
    info(&source).unwrap().home_share
}

/// Opens the file, and creates it if it does not exist.
fn file(volume: &Volume) -> OpenRef {
    let (ctx, fs) = (Ctx::default(), volume.fs());
    match fs.lookup(stetfs::low::ROOT_INO, b"file") {
        Ok(attr) => fs.open_inode(&ctx, attr.ino, libc::O_RDWR).unwrap(),
        Err(_) => {
            let root = stetfs::low::ROOT_INO;
            let made = fs.create(&ctx, root, b"file", 0o644, 0, libc::O_RDWR);
            made.unwrap().1
        }
    }
}

fn sync(volume: &Volume, file: &OpenRef) {
    let (done, told) = mpsc::channel();
    let tell = move |result| done.send(result).unwrap();
    volume
        .fs()
        .fsync(file, false, Wait::Deferred, Box::new(tell));
    told.recv().unwrap().unwrap();
}

/// Overwrites some blocks, others in each round, and syncs them; the first round writes all.
/// `model` holds the round of each block.
fn round(volume: &Volume, file: &OpenRef, n: u64, model: &mut [u64]) {
    for at in blocks_of(n) {
        write(volume, file, at, n);
        model[at as usize] = n;
    }
    sync(volume, file);
}

fn blocks_of(n: u64) -> Vec<u64> {
    match n {
        0 => (0..BLOCKS).collect(),
        n => {
            let mut rng = fastrand::Rng::with_seed(n);
            (0..EACH).map(|_| rng.u64(0..BLOCKS)).collect()
        }
    }
}

fn content(at: u64, n: u64) -> Vec<u8> {
    let mut block = vec![(at + 31 * n) as u8; BLOCK as usize];
    block[..16].copy_from_slice(&[at.to_le_bytes(), n.to_le_bytes()].concat());
    block
}

fn write(volume: &Volume, file: &OpenRef, at: u64, n: u64) {
    let data = content(at, n);
    let ctx = Ctx::default();
    let written = volume.fs().write(&ctx, file, at * BLOCK, &data, false);
    assert_eq!(written.unwrap(), data.len());
}

/// The round of each block; all bytes of a block must be of the same round.
fn rounds(volume: &Volume, file: &OpenRef) -> Vec<u64> {
    let mut block = vec![0; BLOCK as usize];
    let mut of = |at: u64| {
        let read = volume.fs().read(file, at * BLOCK, &mut block).unwrap();
        assert_eq!(read, block.len(), "block {at}");
        let n = u64::from_le_bytes(block[8..16].try_into().unwrap());
        assert!(block == content(at, n), "block {at} is of no round");
        n
    };
    (0..BLOCKS).map(&mut of).collect()
}

/// The content is right while blocks are shared, and the image does not get too many extents: then
/// blocks are copied.
fn overwritten(host: &Host) {
    let before = would(&host.image);
    println!("{before:?}, {} extents", host.extents());
    assert!(before.by == "share" && before.why.contains("FICLONERANGE"));
    let volume = open(&host.image, "afs");
    let open_file = file(&volume);
    let mut model = vec![0; BLOCKS as usize];
    let mut stopped = None;
    for n in 0..60 {
        round(&volume, &open_file, n, &mut model);
        let stats = volume.stats();
        if n == 8 {
            assert_eq!(stats.journal.home, before);
            let (shared, copied) = (stats.journal.shared, stats.journal.copied);
            println!(
                "round {n}: {shared} shared, {copied} copied, {} extents",
                host.extents()
            );
            assert!(shared > 10 * copied, "{shared} shared, {copied} copied");
            assert!(rounds(&volume, &open_file) == model);
        }
        if stats.journal.home.by == "copy" && stopped.is_none() {
            stopped = Some(n);
            println!(
                "round {n}: {} shared, {:?}, {} extents",
                stats.journal.shared,
                stats.journal.home,
                host.extents()
            );
            assert!(stats.journal.home.why.contains("extents"));
        }
    }
    assert!(stopped.is_some(), "sharing went on");
    let extents = host.extents();
    println!(
        "after all: {extents} extents, {:?}",
        volume.stats().journal.copied
    );
    assert!(extents < EXTENTS, "{extents} extents");
    assert!(rounds(&volume, &open_file) == model);
    drop(open_file);
    volume.close().unwrap();
    drop(volume);
    e2fsck(&host.image, &["-fn"], 0).unwrap();
    // By now some extents may have merged.
    let home = would(&host.image);
    assert!(
        home.by == "copy" || host.extents() < EXTENTS / 2,
        "{home:?}"
    );
}

/// A process is killed among its checkpoints: its synced data is there, after a recovery that
/// shares.
fn killed(host: &Host) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "clones::a_child_that_is_killed",
            "--nocapture",
            "--ignored",
        ])
        .env(CHILD, &host.image)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut last = None;
    let mut killed = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let n = line.strip_prefix("synced ").and_then(|n| n.parse().ok());
        last = n.or(last);
        if last >= Some(9) && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    let last: u64 = last.unwrap();
    let volume = open(&host.image, "afs");
    let shares = volume.host().device().stats().shares;
    println!("killed after round {last}; the recovery shared {shares} batches");
    assert!(killed && shares > 0);
    let open_file = file(&volume);
    let found = rounds(&volume, &open_file);
    for at in 0..BLOCKS {
        let of = |most: u64| (0..=most).rev().find(|n| blocks_of(*n).contains(&at));
        let found = found[at as usize];
        let is_right = [of(last), of(last + 1)].contains(&Some(found));
        assert!(is_right, "block {at}: of round {found}");
    }
    drop(open_file);
    volume.close().unwrap();
    drop(volume);
    e2fsck(&host.image, &["-fn"], 0).unwrap();
}

#[test]
#[ignore = "a child of the tests here"]
fn a_child_that_is_killed() {
    let Some(image) = std::env::var_os(CHILD) else {
        return;
    };
    let volume = open(Path::new(&image), "afs");
    let open_file = file(&volume);
    let mut model = vec![0; BLOCKS as usize];
    for n in 0..100_000 {
        round(&volume, &open_file, n, &mut model);
        println!("synced {n}");
        std::io::stdout().flush().unwrap();
    }
}

const XFS: (&str, &[&str]) = ("xfs", &["-q", "-m", "reflink=1"]);
const BTRFS: (&str, &[&str]) = ("btrfs", &["-q"]);

fn on(host: (&str, &[&str]), test: fn(&Host)) {
    let host = Host::new(host.0, host.1);
    test(&host);
    host.end();
}

#[test]
fn overwrites_on_xfs() {
    on(XFS, overwritten);
}

#[test]
fn overwrites_on_btrfs() {
    on(BTRFS, overwritten);
}

#[test]
fn a_kill_on_xfs() {
    on(XFS, killed);
}

#[test]
fn a_kill_on_btrfs() {
    on(BTRFS, killed);
}

/// An XFS without reflinks: all blocks are copied, and the reason is reported.
#[test]
fn without_reflinks() {
    on(("xfs", &["-q", "-m", "reflink=0"]), |host| {
        let would = would(&host.image);
        println!("{would:?}");
        assert!(would.by == "copy" && would.why.contains("cannot share blocks"));
        let volume = open(&host.image, "afs");
        let open_file = file(&volume);
        let mut model = vec![0; BLOCKS as usize];
        for n in 0..4 {
            round(&volume, &open_file, n, &mut model);
        }
        let stats = volume.stats();
        assert!(stats.journal.home == would && stats.journal.shared == 0);
        assert!(stats.journal.copied > 0 && rounds(&volume, &open_file) == model);
        drop(open_file);
        volume.close().unwrap();
    });
}
