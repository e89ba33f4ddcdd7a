//! Tests of reproducible images, the same byte for byte (`epoch=`), and of volumes that are only
//! read and stay unchanged.
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::daemon::{BINARY, Daemon, fails, ok};
use stetfs_testkit::{Image, Mkfs, Scratch};

const EPOCH: &str = "1700000000";
/// The modification time of some source files, after the epoch.
const LATER: &str = "@1800000000";
const UUID: &str = "6f5f3d2e-1111-4222-8333-944444444444";

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {said}");
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..bytes).map(|_| rng.u8(..)).collect()
}

/// A tree with a directory of many names, a file with a hole, links, and some times after the
/// epoch.
fn source(at: &Path) {
    fs::create_dir_all(at.join("many")).unwrap();
    for n in 0..400 {
        let name = at.join(format!("many/a-name-that-takes-some-room-{n}"));
        fs::write(name, noise(n, n as usize * 7)).unwrap();
    }
    fs::write(at.join("large"), noise(1, 2 << 20)).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    symlink("large", at.join("link")).unwrap();
    fs::hard_link(at.join("large"), at.join("same")).unwrap();
    run(Command::new("touch")
        .args(["-d", LATER])
        .arg(at.join("large")));
    run(Command::new("touch")
        .args(["-d", "@1600000000"])
        .arg(at.join("many")));
}

/// An archive in which a large file is replaced again and again.
fn archive(dir: &Path) -> String {
    let archive = dir.join("again.tar");
    for n in 0..6 {
        fs::write(dir.join("replaced"), noise(100 + n, 3 << 20)).unwrap();
        let tar = Command::new("tar")
            .arg("--append")
            .arg("-f")
            .arg(&archive)
            .args(["-C", dir.to_str().unwrap(), "replaced"])
            .output()
            .unwrap();
        assert!(tar.status.success());
    }
    archive.to_str().unwrap().to_owned()
}

fn stetfs(epoch: Option<&str>, args: &[&str]) {
    let mut command = Command::new(BINARY);
    command.env_remove("SOURCE_DATE_EPOCH").args(args);
    if let Some(epoch) = epoch {
        command.env("SOURCE_DATE_EPOCH", epoch);
    }
    run(&mut command);
}

/// Builds an image of 16 MiB and returns its bytes.
fn build(source: &Path, archive: &str, epoch: Option<&str>, options: &str) -> Vec<u8> {
    let image = Image::sparse(16 << 20).unwrap();
    run(Command::new("mke2fs")
        // The second variable is for mke2fs before 1.47.1.
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .env("E2FSPROGS_FAKE_TIME", EPOCH)
        .args(["-q", "-F", "-t", "ext4", "-U", UUID, "-E"])
        .arg(format!("hash_seed={UUID},root_owner=0:0"))
        .arg(image.path()));
    let place = |path: &str| format!("{}:{path}", image.path().display());
    let all = format!("{}/.", source.display());
    stetfs(epoch, &["cp", "-a", "-o", options, &all, &place("/")]);
    // Six times the file does not fit: freed space must be reused.
    stetfs(
        epoch,
        &["tar", "-x", "-o", options, "-f", archive, &place("/")],
    );
    stetfs(epoch, &["mkdir", "-p", "-o", options, &place("/a/b/c")]);
    stetfs(epoch, &["rm", "-r", "-o", options, &place("/many")]);
    stetfs(epoch, &["cp", "-o", options, &all, &place("/a")]);
    image.e2fsck_fn().unwrap();
    fs::read(image.path()).unwrap()
}

#[track_caller]
fn same(a: &[u8], b: &[u8], what: &str) {
    let blocks = a.chunks(1024).zip(b.chunks(1024)).enumerate();
    let differ: Vec<usize> = blocks
        .filter(|(_, (a, b))| a != b)
        .map(|(i, _)| i)
        .collect();
    let few = differ.get(..differ.len().min(20));
    assert!(
        differ.is_empty(),
        "{what}: {} blocks: {few:?}",
        differ.len()
    );
}

#[test]
fn an_image_made_again_is_the_same_whatever_the_journal_and_its_times() {
    let scratch = Scratch::new("repeat").unwrap();
    let tree = scratch.path().join("tree");
    source(&tree);
    let archive = archive(scratch.path());
    let build = |epoch, options| build(&tree, &archive, epoch, options);

    let first = build(Some(EPOCH), "cache=64M");
    // The times of commits and writes do not matter.
    for options in ["cache=64M", "cache=2M,commit=1,dirty_expire=0.1,threads=1"] {
        same(&first, &build(Some(EPOCH), options), options);
    }
    for options in ["journal=data", "journal=stet,sync", "journal=zjournal"] {
        let (a, b) = (build(Some(EPOCH), options), build(Some(EPOCH), options));
        same(&a, &b, options);
    }
    // By the option alone, too.
    let said = format!("epoch={EPOCH}");
    same(&first, &build(None, &said), "the option");
    // The epoch makes the difference.
    assert_ne!(first, build(Some("1700000001"), "cache=64M"));
    assert_ne!(build(None, "cache=64M"), build(None, "cache=64M"));
}

#[test]
fn no_time_is_later_than_the_epoch() {
    let scratch = Scratch::new("repeat").unwrap();
    let tree = scratch.path().join("tree");
    source(&tree);
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let place = |path: &str| format!("{}:{path}", image.path().display());
    let all = format!("{}/.", tree.display());
    stetfs(Some(EPOCH), &["cp", "-a", &all, &place("/")]);

    let daemon = Daemon::unmounted(image);
    daemon.mount("ro");
    let times = |name: &str| {
        let m = fs::symlink_metadata(daemon.dir.join(name)).unwrap();
        (m.atime(), m.mtime(), m.ctime())
    };
    let epoch: i64 = EPOCH.parse().unwrap();
    assert_eq!(times("large"), (epoch, epoch, epoch));
    assert_eq!(times("many"), (epoch, 1_600_000_000, epoch));
}

#[test]
fn what_is_no_epoch_is_refused() {
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    let place = format!("{}:/a", image.path().display());
    fails(
        &["mkdir", "-o", "epoch=soon", &place],
        1,
        &["seconds since 1970"],
    );
    fails(
        &["mkdir", "-o", "epoch=99999999999", &place],
        1,
        &["15032385535"],
    );
    let out = Command::new(BINARY)
        .env("SOURCE_DATE_EPOCH", "2026-01-01")
        .args(["mkdir", &place])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("SOURCE_DATE_EPOCH must be"), "{said}");
}

#[test]
fn a_volume_that_is_only_read_stays_as_it_is() {
    let scratch = Scratch::new("repeat").unwrap();
    let tree = scratch.path().join("tree");
    source(&tree);
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let place = |path: &str| format!("{}:{path}", image.path().display());
    let all = format!("{}/.", tree.display());
    ok(&["cp", "-a", &all, &place("/")]);
    let now = || {
        (
            fs::read(image.path()).unwrap(),
            fs::metadata(image.path()).unwrap().mtime_nsec(),
        )
    };
    let before = now();

    let out = scratch.path().join("out");
    ok(&["ls", "-lR", &place("/")]);
    stetfs(None, &["cat", &place("/large")]);
    ok(&["cp", "-a", &place("/many"), out.to_str().unwrap()]);
    ok(&["tar", "-c", "-f", "/dev/null", &place("/")]);
    ok(&["info", image.path().to_str().unwrap()]);
    assert_eq!(before.1, now().1, "the image was written to");
    same(&before.0, &now().0, "commands");

    let daemon = Daemon::unmounted(image);
    daemon.mount("ro");
    assert_eq!(
        fs::read(daemon.dir.join("large")).unwrap(),
        noise(1, 2 << 20)
    );
    assert_eq!(fs::read_dir(daemon.dir.join("many")).unwrap().count(), 400);
    ok(&["umount", daemon.dir()]);
    same(
        &before.0,
        &fs::read(daemon.image.path()).unwrap(),
        "a mount",
    );
}
