//! Options that are sizes or numbers, at their smallest and largest values: with any block size a
//! mount is refused by a text, or files can be made, written and synced.

use std::sync::mpsc::channel;

use stetfs::low::options::{VolumeRequest, split};
use stetfs::low::{Ctx, Fs, OpenRef, ROOT_INO, Volume, VolumeOptions, Wait, usable_memory};
use stetfs_testkit::{Image, Mkfs, Scratch};

/// Names that fill several blocks of a directory.
const NAMES: usize = 300;

/// The options, without those of a region.
fn table() -> Vec<String> {
    let mut all: Vec<String> = [
        "commit=1",
        "commit=4294967295",
        "dirty_expire=0",
        "dirty_expire=4294967295",
        "erase_block=4K",
        "erase_block=1G",
        "epoch=0",
        "epoch=15032385535",
        "journal=zjournal,lanes=1",
        "journal=zjournal,lanes=64",
        "journal=ijournal,records=1",
        "journal=ijournal,records=64",
        "journal=stet,records=1",
        "journal=stet,records=64,chunk=4K",
        "journal=zjournal,lanes=64,data=journal,chunk=4K",
        "journal=data,cache=1M",
        "journal=stet,cache=1M",
    ]
    .map(str::to_owned)
    .into();
    for preset in ["ordered", "data", "ldj", "ijournal", "stet", "zjournal"] {
        all.push(format!("journal={preset}"));
    }
    for preset in ["custom", "ldj", "ijournal", "stet", "zjournal"] {
        for chunk in ["4K", "16M"] {
            all.push(format!("journal={preset},codec=frames,chunk={chunk}"));
        }
    }
    for cache in [1 << 20, usable_memory()] {
        all.push(format!("cache={cache}"));
    }
    all
}

/// The options in effect, or the text that refuses them.
fn settled(text: &str) -> Result<VolumeOptions, String> {
    let mut request = VolumeRequest::default();
    for option in text.split(',') {
        let (name, value) = split(option);
        let set = request.set(VolumeRequest::ALL, name, value);
        set.unwrap_or_else(|| panic!("there is no option {name}"))?;
    }
    request.settle()
}

fn opened(image: &Image, text: &str) -> Result<std::sync::Arc<Volume>, String> {
    let options = settled(text)?;
    Volume::open(image.path(), &options).map_err(|e| e.to_string())
}

fn create(fs: &Fs, name: &str) -> Result<OpenRef, String> {
    let mode = libc::S_IFREG | 0o644;
    let made = fs.create(&Ctx::ROOT, ROOT_INO, name.as_bytes(), mode, 0, libc::O_RDWR);
    made.map(|(_, open)| open).map_err(|e| e.to_string())
}

fn name(i: usize) -> String {
    format!("{i:05}-{}", "x".repeat(200))
}

/// The work of a user: files, directories, an index that grows, large writes, syncs, removal.
fn work(fs: &Fs) -> Result<(), String> {
    let text = |e: stetfs::low::FsError| e.to_string();
    let file = create(fs, "file")?;
    let data = vec![7; 3 << 20];
    for (piece, at) in data.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        fs.write(&Ctx::ROOT, &file, at, piece, false)
            .map_err(text)?;
    }
    fs.write(&Ctx::ROOT, &file, 5, &data[..1 << 20], false)
        .map_err(text)?;
    let (done, is_done) = channel();
    fs.fsync(
        &file,
        false,
        Wait::Deferred,
        Box::new(move |r| done.send(r).expect("the test waits")),
    );
    is_done.recv().expect("an answer").map_err(text)?;
    for i in 0..NAMES {
        create(fs, &name(i)).map_err(|e| format!("file {i}: {e}"))?;
    }
    for i in 0..8 {
        let made = fs.mkdir(&Ctx::ROOT, ROOT_INO, format!("dir{i}").as_bytes(), 0o755, 0);
        made.map_err(text)?;
    }
    for i in (0..NAMES).step_by(3) {
        let removed = fs.unlink(&Ctx::ROOT, ROOT_INO, name(i).as_bytes());
        removed.map_err(text)?;
    }
    let (done, is_done) = channel();
    fs.sync_all(Box::new(move |r| done.send(r).expect("the test waits")));
    is_done.recv().expect("an answer").map_err(text)
}

/// Opens, works and closes. Returns the reason of a refused mount.
fn try_options(image: &Image, text: &str, what: &str) -> Option<String> {
    let volume = match opened(image, text) {
        Ok(volume) => volume,
        Err(why) => {
            assert!(!why.is_empty(), "{what}: refused without a reason");
            return Some(why);
        }
    };
    if let Err(e) = work(volume.fs()) {
        panic!("{what}: the mount succeeds, but: {e}");
    }
    volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(volume);
    image.e2fsck_fn().unwrap_or_else(|e| panic!("{what}: {e}"));
    None
}

/// The block size, the MiB of the volume, and the journals' MiB, the smallest that there are and a
/// larger one.
const VOLUMES: [(u32, u64, [u32; 2]); 3] = [
    (1024, 64, [1, 16]),
    (4096, 96, [4, 32]),
    (32768, 192, [32, 64]),
];

#[test]
fn a_mount_is_refused_or_files_can_be_made() {
    for (block, mib, journals) in VOLUMES {
        for journal in journals {
            let made = Image::make(mib << 20, &Mkfs::blocks(block).journal_mib(journal)).unwrap();
            for text in table() {
                let what = format!("blocks of {block}, a journal of {journal} MiB, {text}");
                if let Some(why) = try_options(&made.copy().unwrap(), &text, &what) {
                    println!("{what}: {why}");
                }
            }
        }
    }
}

#[test]
fn a_region_is_refused_or_files_can_be_made() {
    let scratch = Scratch::new("region").unwrap();
    for (block, mib, [journal, _]) in VOLUMES {
        let made = Image::make(mib << 20, &Mkfs::blocks(block).journal_mib(journal)).unwrap();
        for preset in ["nvm", "ijournal", "stet"] {
            for kib in [64, 256, 1024, 4096, 16 << 10, 64 << 10] {
                for more in ["", ",unit=block", ",records=64"] {
                    if preset != "nvm" && more == ",unit=block" {
                        continue;
                    }
                    let path = scratch.path().join("region");
                    let file = std::fs::File::create(&path).unwrap();
                    file.set_len(kib << 10).unwrap();
                    let text = format!("journal={preset},nvm={}{more}", path.display());
                    let what = format!("blocks of {block}, a region of {kib} KiB, {preset}{more}");
                    if let Some(why) = try_options(&made.copy().unwrap(), &text, &what) {
                        println!("{what}: {why}");
                    }
                    std::fs::remove_file(&path).unwrap();
                }
            }
        }
    }
}

/// Blocks of 64 KiB are refused whatever the options.
#[test]
fn the_largest_blocks_are_refused() {
    let made = Image::make(256 << 20, &Mkfs::blocks(65536).journal_mib(64)).unwrap();
    for text in ["journal=ordered", "journal=ldj,chunk=4K", "cache=1M"] {
        let why = opened(&made, text).map(drop).unwrap_err();
        assert!(why.contains("64 KiB"), "{text}: {why}");
    }
}
