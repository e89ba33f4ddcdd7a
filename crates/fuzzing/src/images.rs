//! Volumes to be damaged, with every kind of metadata and a journal to replay.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};

use stetfs::low::{BlockDevice, Fs, FsOptions, MemDevice, Preset, preset};
use stetfs_block::{BlockError, Read, Stats, Write};
use stetfs_testkit::Scratch;

use stetfs_crash::tree::Seen;
use stetfs_crash::volume::{mke2fs, options};
use stetfs_crash::workload::{Generator, Op, Script, Session};

/// A volume, and the places of its metadata.
pub struct Image {
    /// The name, for messages.
    pub name: String,
    /// The device with the volume.
    pub device: Arc<MemDevice>,
    /// Bytes in a block.
    pub block: u64,
    /// For each kind of metadata its blocks.
    pub targets: Vec<Vec<u64>>,
}

/// The images: name, bytes of a block, features, and whether the journal is dirty.
const IMAGES: [(&str, u32, &str, bool); 6] = [
    ("plain", 1024, "^metadata_csum,^uninit_bg", true),
    ("plain-4k", 4096, "^metadata_csum,^64bit,^flex_bg", true),
    ("clean", 1024, "^metadata_csum,^dir_index", false),
    ("orphan-file", 2048, "^metadata_csum,orphan_file", true),
    ("checksums", 1024, "metadata_csum,64bit", true),
    ("quota", 1024, "^metadata_csum,quota,project", true),
];

/// All images.
pub fn images() -> Vec<Image> {
    let tree = Scratch::new("tree").unwrap();
    plant(tree.path());
    IMAGES
        .iter()
        .map(|(name, block, features, dirty)| make(name, *block, features, *dirty, tree.path()))
        .collect()
}

/// Fills a directory with files that `mke2fs -d` can copy.
fn plant(root: &Path) {
    let user = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    // An indexed directory with long names.
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for i in 0..300 {
        fs::write(many.join(format!("{i}-{}", "n".repeat(80))), "").unwrap();
    }
    let mut deep = root.to_path_buf();
    for i in 0..6 {
        deep.push(format!("deep{i}"));
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), vec![i; 3000]).unwrap();
    }
    // A file with many extents; another has one.
    let holes = fs::File::create(root.join("holes")).unwrap();
    for i in 0..700u64 {
        holes.write_all_at(&[7; 1024], i * 8192).unwrap();
    }
    holes.set_len(700 * 8192).unwrap();
    fs::write(root.join("large"), vec![1; 300_000]).unwrap();
    symlink("large", root.join("fast")).unwrap();
    symlink("x/".repeat(200), root.join("slow")).unwrap();
    fs::hard_link(root.join("large"), root.join("linked")).unwrap();
    for i in 0..4 {
        let path = root.join(format!("attributes{i}"));
        fs::write(&path, "").unwrap();
        user(&path, "user.small", b"value");
        user(&path, "user.large", &vec![b'v'; 200 * i]);
    }
}

/// A volume with a log of the preset's format that needs a replay.
pub fn with_log(preset: Preset) -> Arc<MemDevice> {
    let scratch = Scratch::new("img").unwrap();
    let path = scratch.path().join("image");
    fs::File::create(&path).unwrap().set_len(20 << 20).unwrap();
    let journal = if preset.is_jbd2() { "size=1" } else { "size=4" };
    mke2fs(&path, &["-b", "1024", "-N", "1024", "-J", journal]).unwrap();
    leave_dirty(&MemDevice::load(&path).unwrap(), preset)
}

fn make(name: &str, block: u32, features: &str, dirty: bool, tree: &Path) -> Image {
    let scratch = Scratch::new("img").unwrap();
    let path = scratch.path().join("image");
    fs::File::create(&path).unwrap().set_len(20 << 20).unwrap();
    let tree = tree.to_str().unwrap();
    let (block_text, journal) = (block.to_string(), format!("size={}", 1.max(block / 1024)));
    let mut args = vec![
        "-b",
        &block_text,
        "-O",
        features,
        "-N",
        "1024",
        "-d",
        tree,
        "-J",
        &journal,
    ];
    // Small groups, so that there are several.
    if block == 1024 {
        args.extend(["-g", "4096"]);
    }
    mke2fs(&path, &args).unwrap();
    if features.contains("quota") {
        // mke2fs (1.47) computes the counts before it copies the tree.
        stetfs_testkit::image::e2fsck(&path, &["-fy"], 1).unwrap();
    }
    let clean = Arc::new(MemDevice::load(&path).unwrap());
    let device = if dirty {
        leave_dirty(&clean, preset::DATA)
    } else {
        Arc::clone(&clean)
    };
    let targets = targets(&device, u64::from(block));
    Image {
        name: name.into(),
        device,
        block: block.into(),
        targets,
    }
}

/// Works on the volume until the journal holds much and there are orphans, and stops without an
/// unmount.
fn leave_dirty(clean: &MemDevice, preset: Preset) -> Arc<MemDevice> {
    let device = Arc::new(clean.fork());
    let fs = stetfs_crash::volume::open(&device, &options(preset)).unwrap();
    let made = fs
        .mkdir(
            &Default::default(),
            stetfs::low::ROOT_INO,
            b"work",
            0o755,
            0,
        )
        .unwrap();
    fs.forget(made.ino, 1);
    let mut session = Session::new(&fs, "work").unwrap();
    let mut generator = Generator::new(9);
    let mut script = Script::of([], 1024, preset.data_mode());
    for _ in 0..150 {
        let op = generator.next(script.states.last().unwrap());
        session.run(&op).unwrap();
        script.push(op);
    }
    let path = String::from("orphan");
    for op in [
        Op::Create {
            path: path.clone(),
            mode: 0o600,
        },
        Op::Write {
            path: path.clone(),
            offset: 0,
            len: 30_000,
            key: 1,
        },
        Op::HoldUnlink { path, held: 1 },
        Op::SyncAll,
    ] {
        session.run(&op).unwrap();
    }
    let crashed = Arc::new(device.fork());
    drop(session);
    drop(fs);
    crashed
}

/// A device that records the places that are read.
struct Watched {
    inner: MemDevice,
    reads: Mutex<Vec<(u64, u64)>>,
}

impl BlockDevice for Watched {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<(), BlockError> {
        self.reads
            .lock()
            .unwrap()
            .extend(reads.iter().map(|r| (r.offset, r.len())));
        self.inner.read_batch(reads)
    }
    fn write_batch(&self, writes: &[Write<'_>]) -> Result<(), BlockError> {
        self.inner.write_batch(writes)
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.inner.flush()
    }
    fn discard(&self, range: std::ops::Range<u64>) -> Result<(), BlockError> {
        self.inner.discard(range)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

/// Finds the metadata by the reads of three actions: an open (superblock, descriptors, journal), a
/// walk over all inodes and names, and a write (bitmaps).
fn targets(device: &MemDevice, block: u64) -> Vec<Vec<u64>> {
    let watched = Arc::new(Watched {
        inner: device.fork(),
        reads: Mutex::default(),
    });
    let take = || -> Vec<u64> {
        let reads = std::mem::take(&mut *watched.reads.lock().unwrap());
        let mut blocks: Vec<u64> = reads
            .iter()
            .flat_map(|(at, len)| at / block..(at + len).div_ceil(block))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    };
    let opts = FsOptions {
        cache_bytes: 1 << 20,
        ..options(preset::ORDERED)
    };
    let fs = Fs::open(Arc::clone(&watched) as Arc<dyn BlockDevice>, opts).unwrap();
    let opened = take();
    names_only(&fs);
    let named = take();
    let mut session = Session::new(&fs, "").unwrap();
    for op in [
        Op::Create {
            path: "new".into(),
            mode: 0o600,
        },
        Op::Write {
            path: "new".into(),
            offset: 0,
            len: 100_000,
            key: 1,
        },
        Op::Unlink {
            path: "large".into(),
        },
        Op::SyncAll,
    ] {
        session.run(&op).unwrap();
    }
    let written = take();
    assert!(!opened.is_empty() && !named.is_empty());
    let mut kinds = vec![vec![1024 / block], opened, named, written];
    kinds.retain(|k| !k.is_empty());
    kinds
}

/// Reads names, inodes, attributes and extents, but no content.
fn names_only(fs: &Arc<Fs>) {
    let seen = Seen::capture_without_content(fs).unwrap();
    for (ino, node) in seen.nodes {
        if node.kind == stetfs::low::FileType::Regular {
            let file = fs
                .open_inode(&Default::default(), ino, libc::O_RDONLY)
                .unwrap();
            let mut at = 0;
            while let Ok(data) = fs.seek(&file, at, stetfs::low::SeekWhat::Data) {
                at = fs.seek(&file, data, stetfs::low::SeekWhat::Hole).unwrap();
            }
        }
    }
}
