//! Tests of volumes with several lanes of transactions.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use stetfs::low::{
    BlockDevice, Ctx, Fs, FsOptions, MemDevice, OpenRef, ROOT_INO, Wait, serve_processor,
};
use stetfs_block::{Event, Gate, Recorder};
use stetfs_testkit::{Image, Mkfs};

const BLOCK: usize = 4096;
const LONG: Duration = Duration::from_secs(60);
const NEVER: u32 = 24 * 3600;

/// Options under which nothing is committed or written back by age.
fn options(journal: &str) -> FsOptions {
    FsOptions {
        journal: journal.parse().unwrap(),
        commit_secs: NEVER,
        dirty_expire: Duration::from_secs(u64::from(NEVER)),
        cache_bytes: 64 << 20,
        ..FsOptions::default()
    }
}

fn create(fs: &Fs, name: &str) -> OpenRef {
    let made = fs.create(
        &Ctx::ROOT,
        ROOT_INO,
        name.as_bytes(),
        0o644,
        0,
        libc::O_RDWR,
    );
    made.unwrap().1
}

/// Begins to sync the volume; returns the receiver of its end.
fn syncing(fs: &Fs) -> Receiver<stetfs::low::Result<()>> {
    let (done, is_done) = channel();
    fs.sync_all(Box::new(move |r| done.send(r).unwrap()));
    is_done
}

/// The content of the file after a power cut now; `None` if it does not exist.
fn left(mem: &MemDevice, name: &str) -> Option<Vec<u8>> {
    let fs = Fs::open(Arc::new(mem.fork()), FsOptions::default()).unwrap();
    let found = fs.lookup(ROOT_INO, name.as_bytes()).ok().map(|entry| {
        let open = fs
            .open_inode(&Ctx::ROOT, entry.ino, libc::O_RDONLY)
            .unwrap();
        let mut bytes = vec![0; fs.getattr(entry.ino).unwrap().size as usize];
        assert_eq!(fs.read(&open, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    });
    fs.unmount().unwrap();
    found
}

/// Checks that e2fsck finds nothing.
fn checked(mem: &MemDevice) {
    let end = Image::sparse(0).unwrap();
    mem.save(end.path()).unwrap();
    end.e2fsck_fn().unwrap();
}

/// The write of a commit hangs. A file in it is written again, and another is created, by its own
/// lane and by the other: no thread waits, pages are copied by the thread that the option names,
/// and a crash leaves the same state.
#[test]
fn a_hanging_commit_holds_no_writer() {
    let image = Image::make(64 << 20, &Mkfs::blocks(BLOCK as u32).journal_mib(16)).unwrap();
    let made = MemDevice::load(image.path()).unwrap();
    for data in ["ordered", "journal"] {
        for copies in ["on-write", "proactive"] {
            let what = format!("zjournal,data={data},copies={copies},lanes=2");
            let mem = Arc::new(made.fork());
            let gate = Arc::new(Gate::new(mem.clone()));
            let device: Arc<dyn BlockDevice> = gate.clone();
            let fs = Fs::open(device, options(&what)).unwrap();
            serve_processor(0);
            let first = create(&fs, "first");
            let old = vec![1; 10 * BLOCK];
            fs.write(&Ctx::ROOT, &first, 0, &old, false).unwrap();
            let before = fs.stats().journal;
            let shut = gate.shut();
            let done = syncing(&fs);
            shut.await_one();
            let new = [vec![2; 10 * BLOCK], vec![3; 10 * BLOCK]];
            for (lane, bytes) in new.iter().enumerate() {
                serve_processor(lane as u16);
                fs.write(&Ctx::ROOT, &first, 0, bytes, false).unwrap();
                create(&fs, ["second", "third"][lane]);
            }
            assert!(done.try_recv().is_err(), "{what}: nothing is written yet");
            let after = fs.stats().journal;
            let copied = after.copies - before.copies;
            let ahead = after.copies_ahead - before.copies_ahead;
            match copies {
                "proactive" => assert!(copied == 0 && ahead > 0, "{what}: {copied}, {ahead}"),
                _ => assert!(copied > 0 && ahead == 0, "{what}: {copied}, {ahead}"),
            }
            drop(shut);
            done.recv_timeout(LONG).unwrap().unwrap();
            assert!(left(&mem, "first") == Some(old), "{what}");
            assert_eq!(left(&mem, "second"), None, "{what}");
            syncing(&fs).recv_timeout(LONG).unwrap().unwrap();
            assert!(left(&mem, "first").as_ref() == new.last(), "{what}");
            assert_eq!(left(&mem, "third"), Some(Vec::new()), "{what}");
            drop(first);
            fs.unmount().unwrap();
            checked(&mem);
        }
    }
}

/// Whether a power cut after the commit of a group preserves earlier writes: to another file, in
/// another lane, and of data that does not go through the journal, unlike that of the group's file.
fn stands_beside_a_group(journal: &str, canary: bool) -> bool {
    const JOURNAL_DATA: u32 = 0x4000;
    let image = Image::make(64 << 20, &Mkfs::blocks(BLOCK as u32).journal_mib(16)).unwrap();
    let mem = Arc::new(MemDevice::load(image.path()).unwrap());
    let mut opts = options(journal);
    opts.canary.commit_own_lane = canary;
    let fs = Fs::open(mem.clone(), opts).unwrap();
    serve_processor(0);
    let db = create(&fs, "db");
    let flags = fs.get_flags(db.ino()).unwrap();
    let with_data = fs.set_flags(&Ctx::ROOT, db.ino(), flags | JOURNAL_DATA);
    with_data.unwrap();
    // The inodes of the two files are in different blocks: otherwise the lanes would be chained.
    (0..40).for_each(|nr| drop(create(&fs, &format!("between {nr}"))));
    let other = create(&fs, "other");
    let write = |fs: &Fs, file: &OpenRef, byte: u8| {
        let bytes = [byte; BLOCK];
        assert_eq!(fs.write(&Ctx::ROOT, file, 0, &bytes, false).unwrap(), BLOCK);
    };
    write(&fs, &other, 1);
    syncing(&fs).recv_timeout(LONG).unwrap().unwrap();
    let beside = fs.clone();
    let written = std::thread::spawn(move || {
        serve_processor(1);
        write(&beside, &other, 2);
    });
    written.join().unwrap();
    let mut group = fs.atomic_group(std::slice::from_ref(&db)).unwrap();
    group.write(&Ctx::ROOT, db.ino(), 0, b"whole").unwrap();
    group.commit().unwrap();
    assert_eq!(left(&mem, "db").unwrap(), b"whole", "{journal}");
    let stands = left(&mem, "other").unwrap() == [2; BLOCK];
    drop(db);
    fs.unmount().unwrap();
    checked(&mem);
    stands
}

/// The commit of a group covers earlier changes, whatever their lane and file (docs/atomic.md).
#[test]
fn a_commit_of_a_group_covers_what_was_done_before_in_other_lanes() {
    for journal in [
        "zjournal,data=journal,lanes=2",
        "zjournal,data=overwrites,lanes=2",
        "zjournal,data=ordered,lanes=2",
        "data",
        "ldj",
        "stet",
        "ordered",
        "writeback",
        "ijournal",
    ] {
        assert!(stands_beside_a_group(journal, false), "{journal}");
    }
    // The canary.
    assert!(!stands_beside_a_group(
        "zjournal,data=journal,lanes=2",
        true
    ));
    assert!(!stands_beside_a_group("ordered", true));
    assert!(stands_beside_a_group("data", true), "there is one lane");
}

/// Lanes of the volumes below.
const LANES: u16 = 4;

fn apart(groups: &str) -> String {
    format!("zjournal,lanes={LANES},groups={groups}")
}

/// The sizes of groups.
struct Groups {
    inodes: u32,
    blocks: u64,
}

impl Groups {
    fn of(image: &Image) -> Groups {
        let said = image.debugfs("stats -h").unwrap();
        let number = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        Groups {
            inodes: number("Inodes per group:") as u32,
            blocks: number("Blocks per group:"),
        }
    }

    /// The groups that hold the inodes and blocks of these files.
    fn used_by(&self, fs: &Fs, files: &[u32], block: u32) -> BTreeSet<u32> {
        // With blocks of 1 KiB the first group begins after block 0.
        let first = u64::from(block == 1024);
        let mut groups = BTreeSet::new();
        for ino in files {
            groups.insert((ino - 1) / self.inodes);
            let blocks = (0..).map(|index| fs.bmap(*ino, index, block).unwrap());
            let blocks = blocks.take_while(|nr| *nr > 0);
            groups.extend(blocks.map(|nr| ((nr - first) / self.blocks) as u32));
        }
        groups
    }
}

/// The work of one lane: creates directories of its own below the root, and files in them, with a
/// sync now and then.
fn make_files(fs: &Fs, dirs: &[u32], files: u32, mut made: impl FnMut(u32)) {
    for dir in dirs {
        for file in 0..files {
            let name = format!("file{file}");
            let (attr, open) = fs
                .create(&Ctx::ROOT, *dir, name.as_bytes(), 0o644, 0, libc::O_RDWR)
                .unwrap();
            fs.write(&Ctx::ROOT, &open, 0, &[7; 5000], false).unwrap();
            if file.is_multiple_of(3) {
                let (done, is_done) = channel();
                fs.fsync(
                    &open,
                    false,
                    Wait::Deferred,
                    Box::new(move |r| done.send(r).unwrap()),
                );
                is_done.recv_timeout(LONG).unwrap().unwrap();
            }
            made(attr.ino);
        }
    }
}

/// Threads of four lanes create files. With `groups=core`, where each lane has its part of the
/// groups, no group holds files of two lanes, and no transaction depends on another lane's;
/// otherwise they share bitmaps and descriptors (Z-Journal §3.5). With `order=directories` the
/// place of a directory is its lane, whoever changes it, so nothing depends on another lane either.
#[test]
fn lanes_have_groups_of_their_own() {
    const DIRS: u32 = 8;
    const FILES: u32 = 6;
    // 64 groups of 8 MiB, whose descriptors are in 4 blocks.
    let mkfs = Mkfs::blocks(1024).journal_mib(16);
    let image = Image::make(512 << 20, &mkfs).unwrap();
    let sizes = Groups::of(&image);
    let empty = MemDevice::load(image.path()).unwrap();
    let mut edges = Vec::new();
    let places = format!("zjournal,order=directories,lanes={LANES}");
    for journal in [apart("plain"), apart("core"), places] {
        let mem = Arc::new(empty.fork());
        let fs = Fs::open(mem.clone(), options(&journal)).unwrap();
        let dirs: Vec<Vec<u32>> = (0..LANES)
            .map(|lane| {
                serve_processor(lane);
                let make = |dir| {
                    let name = format!("lane{lane}-{dir}");
                    let made = fs.mkdir(&Ctx::ROOT, ROOT_INO, name.as_bytes(), 0o755, 0);
                    made.unwrap().ino
                };
                (0..DIRS).map(make).collect()
            })
            .collect();
        syncing(&fs).recv_timeout(LONG).unwrap().unwrap();
        let before = fs.stats().journal.edges;
        let made: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let lanes = dirs.iter().enumerate().map(|(lane, dirs)| {
                let fs = &fs;
                scope.spawn(move || {
                    serve_processor(lane as u16);
                    let mut files = Vec::new();
                    make_files(fs, dirs, FILES, |ino| files.push(ino));
                    files
                })
            });
            let lanes: Vec<_> = lanes.collect();
            lanes.into_iter().map(|t| t.join().unwrap()).collect()
        });
        syncing(&fs).recv_timeout(LONG).unwrap().unwrap();
        edges.push(fs.stats().journal.edges - before);
        if journal == apart("core") {
            for (lane, files) in made.iter().enumerate() {
                let part = lane as u32 * 16..(lane as u32 + 1) * 16;
                for group in sizes.used_by(&fs, files, 1024) {
                    assert!(part.contains(&group), "lane {lane} uses group {group}");
                }
            }
        }
        fs.unmount().unwrap();
        checked(&mem);
    }
    println!("edges between lanes: plain, with groups of their own, by directory: {edges:?}");
    assert!(edges[0] > 0 && edges[1..] == [0, 0], "{edges:?}");
}

/// Blocks are allocated in the part of the lane that first writes to a file, not of the lane that
/// created it. Later blocks follow the file's end, whichever lane writes.
#[test]
fn who_writes_first_has_the_blocks() {
    let mut mkfs = Mkfs::blocks(BLOCK as u32).journal_mib(16);
    mkfs.args.extend(["-g", "1024"].map(String::from));
    let image = Image::make(64 << 20, &mkfs).unwrap();
    let sizes = Groups::of(&image);
    let mem = Arc::new(MemDevice::load(image.path()).unwrap());
    let fs = Fs::open(mem.clone(), options(&apart("core"))).unwrap();
    serve_processor(0);
    let open = create(&fs, "file");
    let home = sizes.used_by(&fs, &[open.ino()], BLOCK as u32);
    for (lane, at) in [(1, 0), (3, 1)] {
        serve_processor(lane);
        let bytes = [7; BLOCK];
        fs.write(&Ctx::ROOT, &open, at * BLOCK as u64, &bytes, false)
            .unwrap();
    }
    let used = sizes.used_by(&fs, &[open.ino()], BLOCK as u32);
    let blocks: Vec<u32> = used.difference(&home).copied().collect();
    // Of 16 groups lane 0 has the first four, lane 1 the next four.
    assert!(home.iter().all(|group| *group < 4), "{home:?}");
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    assert!((4..8).contains(&blocks[0]), "{blocks:?}");
    drop(open);
    fs.unmount().unwrap();
    checked(&mem);
}

/// One lane can fill the volume, and take all inodes, also in the parts of other lanes.
#[test]
fn a_lane_can_have_the_whole_volume() {
    let mut mkfs = Mkfs::blocks(1024).journal_mib(8);
    mkfs.args.extend(["-N", "512", "-m", "0"].map(String::from));
    let image = Image::make(64 << 20, &mkfs).unwrap();
    let made = MemDevice::load(image.path()).unwrap();
    let left = ["plain", "core"].map(|groups| {
        let mem = Arc::new(made.fork());
        let opts = options(&format!("zjournal,lanes=2,groups={groups}"));
        let fs = Fs::open(mem.clone(), opts).unwrap();
        serve_processor(1);
        let mut files = 0;
        let full = loop {
            let name = format!("file{files}");
            match fs.create(
                &Ctx::ROOT,
                ROOT_INO,
                name.as_bytes(),
                0o644,
                0,
                libc::O_RDWR,
            ) {
                Ok(_) => files += 1,
                Err(e) => break e.errno(),
            }
        };
        assert_eq!((full, fs.statfs().ffree), (libc::ENOSPC, 0), "{groups}");
        let ino = fs.lookup(ROOT_INO, b"file0").unwrap().ino;
        let open = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
        let mut at = 0;
        for size in [64 << 10, 1 << 10] {
            let full = loop {
                match fs.write(&Ctx::ROOT, &open, at, &vec![7; size], false) {
                    Ok(n) => at += n as u64,
                    Err(e) => break e.errno(),
                }
            };
            assert_eq!(full, libc::ENOSPC, "{groups}");
        }
        let left = fs.statfs().bavail;
        drop(open);
        fs.forget(ino, 1);
        fs.unmount().unwrap();
        checked(&mem);
        left
    });
    println!("{left:?} blocks are left");
    assert!(
        left[1] <= left[0] && left[0] < 8,
        "{left:?} blocks are left"
    );
}

/// Files of all lanes are created and removed on volumes of any shape, also with fewer groups than
/// lanes.
#[test]
fn any_volume_has_parts() {
    let shape = |features: &str, group: Option<u32>| {
        let mut mkfs = Mkfs::blocks(4096).feature(features).journal_mib(16);
        let group = group.map(|blocks| ["-g".into(), blocks.to_string()]);
        mkfs.args.extend(group.into_iter().flatten());
        mkfs
    };
    let mut bigalloc = Mkfs::blocks(4096).feature("bigalloc").journal_mib(16);
    bigalloc.args.extend(["-C", "16384"].map(String::from));
    let volumes = [
        ("one group", 64, shape("extent", None)),
        ("three groups", 64 * 3, shape("extent", Some(16384))),
        ("flex_bg", 64, shape("flex_bg", Some(1024))),
        ("no flex_bg", 64, shape("^flex_bg", Some(1024))),
        (
            "uninit_bg",
            64,
            shape("^metadata_csum,uninit_bg", Some(1024)),
        ),
        (
            "no checksums",
            64,
            shape("^metadata_csum,^uninit_bg", Some(1024)),
        ),
        ("meta_bg", 64, shape("meta_bg,^resize_inode", Some(1024))),
        ("bigalloc", 1024, bigalloc),
    ];
    for (name, mib, mkfs) in volumes {
        let image = Image::make(mib << 20, &mkfs).unwrap();
        let mem = Arc::new(MemDevice::load(image.path()).unwrap());
        let fs = Fs::open(mem.clone(), options(&apart("core"))).unwrap();
        std::thread::scope(|scope| {
            for lane in 0..LANES {
                let fs = &fs;
                scope.spawn(move || {
                    serve_processor(lane);
                    let dir = format!("lane{lane}");
                    let dir = fs.mkdir(&Ctx::ROOT, ROOT_INO, dir.as_bytes(), 0o755, 0);
                    let dir = dir.unwrap().ino;
                    make_files(fs, &[dir], 30, |_| {});
                    for file in (0..30).step_by(2) {
                        let name = format!("file{file}");
                        fs.unlink(&Ctx::ROOT, dir, name.as_bytes()).unwrap();
                    }
                });
            }
        });
        fs.unmount().unwrap();
        drop(fs);
        checked(&mem);
        let fs = Fs::open(mem.clone(), options(&apart("plain"))).unwrap();
        for lane in 0..LANES {
            let dir = fs
                .lookup(ROOT_INO, format!("lane{lane}").as_bytes())
                .unwrap();
            for file in (1..30).step_by(2) {
                let found = fs.lookup(dir.ino, format!("file{file}").as_bytes());
                let ino = found.unwrap_or_else(|e| panic!("{name}: {e}")).ino;
                let open = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
                let mut bytes = [0; 6000];
                assert_eq!(fs.read(&open, 0, &mut bytes).unwrap(), 5000, "{name}");
                assert!(bytes[..5000] == [7; 5000], "{name}");
            }
        }
        fs.unmount().unwrap();
    }
}

/// Blocks of each write of an appended page and its sync, between flushes.
fn writes_of_a_sync(journal: &str) -> Vec<usize> {
    let image = Image::make(64 << 20, &Mkfs::blocks(BLOCK as u32).journal_mib(16)).unwrap();
    let device = Arc::new(Recorder::new(MemDevice::load(image.path()).unwrap()));
    let fs = Fs::open(device.clone(), options(journal)).unwrap();
    let file = create(&fs, "file");
    let append = |at: u64| {
        fs.write(&Ctx::ROOT, &file, at, &[1; BLOCK], false).unwrap();
        let (done, is_done) = channel();
        fs.fsync(
            &file,
            false,
            Wait::Inline,
            Box::new(move |r| done.send(r).unwrap()),
        );
        is_done.recv().unwrap().unwrap();
    };
    append(0);
    let from = device.position();
    append(BLOCK as u64);
    let log = device.take_log();
    let mut written = vec![0];
    for event in &log.events[from..] {
        match event {
            Event::Write { data, .. } => *written.last_mut().unwrap() += data.len() / BLOCK,
            Event::Flush { .. } => written.push(0),
            _ => {}
        }
    }
    drop(file);
    fs.unmount().unwrap();
    written
}

/// The body of a frame is written together with the data, before the first flush; only its head is
/// written between the first and the second.
#[test]
fn only_the_head_of_a_frame_waits_for_the_data() {
    for journal in ["zjournal", "zjournal,lanes=1"] {
        let written = writes_of_a_sync(journal);
        let [with_data, 1, 0] = written[..] else {
            panic!("{journal}: {written:?}");
        };
        assert!(with_data > 2, "{journal}: {written:?}");
    }
    // If the data is in the frame there is nothing to wait for.
    let written = writes_of_a_sync("zjournal,data=journal");
    assert!(written.len() == 2 && written[0] > 2, "{written:?}");
}
