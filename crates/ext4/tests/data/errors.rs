//! File data that cannot be written, under every preset: each opener that syncs the file is told
//! once, and the volume goes on. A failed write that the journal needs stops it.

use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use stetfs_block::{BlockDevice, Fault, FaultInjector, MemDevice, Op};
use stetfs_ext4::*;
use stetfs_journal::Composition;
use stetfs_testkit::{Image, cmd, wait_until};

use crate::data::volume::{Shape, Volume, fresh};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 48,
    extents: true,
    cluster: 1,
};
/// Size of a file, bytes. A record of a file holds less, so its data is written back.
const LEN: usize = 256 << 10;

fn options(data: DataMode, records: Option<u16>) -> FsOptions {
    let jbd2 = Composition::from(data);
    let journal = match records {
        None => Ok(jbd2),
        Some(0) => jbd2.with("codec", "frames"),
        Some(lanes) => jbd2.with("records", &lanes.to_string()),
    };
    FsOptions {
        journal: journal.unwrap(),
        commit_secs: 3600,
        dirty_expire: Duration::from_secs(3600),
        cache_bytes: 16 << 20,
        // This does not apply to data; `data_err` does.
        on_error: Some(OnError::RemountRo),
        ..FsOptions::default()
    }
}

/// Presets that write data back outside the journal.
fn writing_home() -> [(&'static str, FsOptions); 3] {
    [
        ("ordered", options(DataMode::Ordered, None)),
        ("writeback", options(DataMode::Writeback, None)),
        ("ijournal", options(DataMode::Ordered, Some(2))),
    ]
}

/// Presets that journal data.
fn journaling() -> [(&'static str, FsOptions); 4] {
    [
        ("data", options(DataMode::Journal, None)),
        ("overwrites", options(DataMode::Overwrites, None)),
        ("stet", options(DataMode::Overwrites, Some(2))),
        ("ldj", options(DataMode::Journal, Some(0))),
    ]
}

/// A volume on a device that fails, with two files that are written back.
struct Failing {
    vol: Volume,
    device: Arc<FaultInjector<Arc<MemDevice>>>,
    /// The place of the first file.
    place: Range<u64>,
}

fn without_journal() -> MemDevice {
    let image = Image::sparse(0).unwrap();
    fresh(SHAPE).save(image.path()).unwrap();
    let mut tune2fs = Command::new("tune2fs");
    cmd::run(tune2fs.args(["-O", "^has_journal"]).arg(image.path())).unwrap();
    MemDevice::load(image.path()).unwrap()
}

/// The place of a file's first `LEN` bytes on an unmounted volume.
fn place(mem: &MemDevice, ino: Ino) -> Range<u64> {
    place_of(mem, ino, 0..LEN / 4096)
}

/// The place of these blocks of a file.
fn place_of(mem: &MemDevice, ino: Ino, blocks: Range<usize>) -> Range<u64> {
    let image = Image::sparse(0).unwrap();
    mem.save(image.path()).unwrap();
    let block = |lblk: usize| {
        let nr = image.debugfs(&format!("bmap <{ino}> {lblk}")).unwrap();
        nr.trim().parse::<u64>().unwrap() * 4096
    };
    let (first, end) = (block(blocks.start), block(blocks.end - 1) + 4096);
    assert!(
        end - first < 2 * LEN as u64,
        "in one piece, but for its map"
    );
    first..end
}

impl Failing {
    fn new(opts: &FsOptions) -> Failing {
        Failing::on(fresh(SHAPE), opts)
    }

    fn on(mem: MemDevice, opts: &FsOptions) -> Failing {
        let mem = Arc::new(mem);
        let made = Volume::on(mem.clone(), mem.clone(), opts.clone());
        for (name, byte) in [("f", 1), ("g", 2)] {
            let f = made.create(name);
            made.fs()
                .write(&Ctx::ROOT, &f, 0, &[byte; LEN], false)
                .unwrap();
        }
        let ino = made.fs().lookup(ROOT_INO, b"f").unwrap().ino;
        made.finish();
        let place = place(&mem, ino);
        Failing::with(mem, opts, place)
    }

    fn with(mem: Arc<MemDevice>, opts: &FsOptions, place: Range<u64>) -> Failing {
        let device = Arc::new(FaultInjector::new(mem.clone()));
        let vol = Volume::on(mem, device.clone(), opts.clone());
        Failing { vol, device, place }
    }

    /// From now on every write to the first file fails.
    fn fail(&self, errno: i32) {
        self.device
            .add(Fault::fail(Op::Write, errno).within(self.place.clone()));
    }

    fn write(&self, f: &OpenRef, byte: u8) {
        let fs = self.vol.fs();
        assert_eq!(
            fs.write(&Ctx::ROOT, f, 0, &[byte; LEN], false).unwrap(),
            LEN
        );
    }

    /// The errno of a sync, 0 if it succeeds.
    fn fsync(&self, f: &OpenRef) -> i32 {
        self.vol.fsync(f, false).map_or_else(|e| e.errno(), |()| 0)
    }

    /// A sync in the thread of the caller, as a server does it that can block this thread.
    fn fsync_here(&self, f: &OpenRef) -> i32 {
        let (tx, rx) = mpsc::channel();
        let done = Box::new(move |r: Result<()>| tx.send(r).unwrap());
        self.vol.fs().fsync(f, false, Wait::Inline, done);
        rx.recv().unwrap().map_or_else(|e| e.errno(), |()| 0)
    }

    fn syncfs(&self) -> i32 {
        let (tx, rx) = mpsc::channel();
        self.vol
            .fs()
            .sync_all(Box::new(move |r| tx.send(r).unwrap()));
        rx.recv().unwrap().map_or_else(|e| e.errno(), |()| 0)
    }

    /// The content of the file after a power cut.
    fn after_crash(&self, name: &str) -> Vec<u8> {
        let mem = Arc::new(self.vol.mem().fork());
        let vol = Volume::on(mem.clone(), mem, options(DataMode::Ordered, None));
        let content = vol.content(&vol.open(name));
        vol.finish();
        content
    }
}

fn all(content: &[u8], byte: u8) -> bool {
    content.len() == LEN && content.iter().all(|b| *b == byte)
}

/// As in generic/441 of xfstests.
#[test]
fn each_opener_is_told_once_and_all_goes_on() {
    for (name, opts) in writing_home() {
        let v = Failing::new(&opts);
        let openers: Vec<OpenRef> = (0..5).map(|_| v.vol.open("f")).collect();
        let other = v.vol.open("g");
        v.write(&openers[0], 3);
        v.write(&other, 4);
        v.fail(libc::EIO);
        for f in &openers {
            assert_eq!(v.fsync(f), libc::EIO, "{name}");
        }
        for f in &openers {
            assert_eq!(v.fsync(f), 0, "{name}: told once");
        }
        assert_eq!(v.fsync(&v.vol.open("f")), 0, "{name}: others were told");
        assert_eq!(v.fsync(&other), 0, "{name}: another file");
        assert!(all(&v.after_crash("g"), 4), "{name}: another file");
        assert!(!v.vol.fs().is_read_only(), "{name}");
        v.vol.create("made meanwhile");

        v.device.clear();
        v.write(&openers[0], 5);
        for f in &openers {
            assert_eq!(v.fsync(f), 0, "{name}: a good rewrite");
        }
        assert!(all(&v.after_crash("f"), 5), "{name}: a good rewrite");
        drop((openers, other));
        v.vol.finish();
    }
}

/// As in generic/441 with the log on the failing device: for a file that was only overwritten, the
/// data is tried first, and its times wait for the next commit.
#[test]
fn a_device_that_takes_nothing_for_a_while_does_not_stop_the_volume() {
    for (name, opts) in &writing_home()[..2] {
        let v = Failing::new(opts);
        let openers: Vec<OpenRef> = (0..5).map(|_| v.vol.open("f")).collect();
        v.write(&openers[0], 3);
        v.device.add(Fault::fail(Op::Write, libc::EIO));
        for f in &openers {
            assert_eq!(v.fsync_here(f), libc::EIO, "{name}");
        }
        v.device.clear();
        for f in &openers {
            assert_eq!(v.fsync_here(f), 0, "{name}: told once");
        }
        assert!(!v.vol.fs().is_read_only(), "{name}");
        v.write(&openers[0], 5);
        assert_eq!(v.fsync_here(&openers[1]), 0, "{name}: a good rewrite");
        assert!(all(&v.after_crash("f"), 5), "{name}: a good rewrite");
        drop(openers);
        v.vol.finish();
    }
}

/// As in generic/487 and generic/484.
#[test]
fn who_comes_before_anybody_was_told_is_told() {
    for (name, opts) in writing_home() {
        let v = Failing::new(&opts);
        let writer = v.vol.open("f");
        v.write(&writer, 3);
        v.fail(libc::EIO);
        assert_eq!(v.syncfs(), libc::EIO, "{name}: in this very sync");
        assert_eq!(v.syncfs(), 0, "{name}: once");
        v.device.clear();
        let late = v.vol.open("f");
        assert_eq!(v.fsync(&late), libc::EIO, "{name}: of the file nobody was");
        assert_eq!(v.fsync(&writer), libc::EIO, "{name}");
        assert_eq!(v.fsync(&late), 0, "{name}");

        v.write(&writer, 3);
        v.fail(libc::EIO);
        assert_eq!(v.fsync(&writer), libc::EIO, "{name}");
        v.device.clear();
        assert_eq!(v.syncfs(), libc::EIO, "{name}: a sync of all is told, too");
        assert_eq!(v.syncfs(), 0, "{name}");
        drop((writer, late));
        v.vol.finish();
    }
}

#[test]
fn a_full_host_is_told_as_such() {
    let v = Failing::new(&options(DataMode::Ordered, None));
    let f = v.vol.open("f");
    v.write(&f, 3);
    v.fail(libc::ENOSPC);
    assert_eq!(v.fsync(&f), libc::ENOSPC);
    drop(f);
    v.vol.finish();
}

/// A background write fails long before a sync.
#[test]
fn a_failure_in_the_background_is_told_later() {
    for (name, opts) in writing_home() {
        let opts = FsOptions {
            dirty_expire: Duration::from_millis(50),
            ..opts
        };
        let v = Failing::new(&opts);
        let f = v.vol.open("f");
        v.fail(libc::EIO);
        v.write(&f, 3);
        wait_until(format_args!("{name}: it is written"), || {
            v.vol.fs().stats().dirty_bytes == 0
        });
        v.device.clear();
        assert_eq!(v.fsync(&f), libc::EIO, "{name}");
        assert_eq!(v.fsync(&f), 0, "{name}");
        drop(f);
        v.vol.finish();
    }
}

#[test]
fn data_err_abort_stops_the_volume_where_data_is_ordered() {
    for (name, opts) in writing_home() {
        for in_background in [false, true] {
            let opts = FsOptions {
                data_err: OnDataError::Abort,
                on_error: Some(OnError::Continue),
                dirty_expire: Duration::from_millis(if in_background { 10 } else { 3_600_000 }),
                ..opts.clone()
            };
            let stops = opts.journal.data() == DataMode::Ordered;
            let v = Failing::new(&opts);
            let f = v.vol.open("f");
            v.fail(libc::EIO);
            v.write(&f, 3);
            if in_background {
                wait_until(format_args!("{name}: it is written"), || {
                    v.device.hits() > 0
                });
            }
            assert_eq!(v.fsync(&f), libc::EIO, "{name}");
            assert_eq!(v.vol.fs().is_read_only(), stops, "{name}");
            let again = v.vol.fs().write(&Ctx::ROOT, &f, 0, b"x", false);
            assert_eq!(again.is_err(), stops, "{name}");
        }
    }
}

#[test]
fn data_err_abort_needs_a_journal() {
    let mem = Arc::new(without_journal());
    let abort = FsOptions {
        data_err: OnDataError::Abort,
        ..FsOptions::default()
    };
    let refused = Fs::open(mem.clone(), abort).map(drop);
    assert!(
        matches!(refused, Err(FsError::Unsupported(_))),
        "{refused:?}"
    );
    Volume::on(mem.clone(), mem, FsOptions::default()).finish();
}

#[test]
fn without_a_journal_the_file_is_told() {
    let v = Failing::on(without_journal(), &options(DataMode::Ordered, None));
    let [f, other] = [v.vol.open("f"), v.vol.open("g")];
    v.write(&f, 3);
    v.write(&other, 4);
    v.fail(libc::EIO);
    assert_eq!(v.syncfs(), libc::EIO);
    assert_eq!(v.fsync(&f), libc::EIO);
    assert_eq!([v.fsync(&f), v.fsync(&other)], [0, 0]);
    drop((f, other));
    v.device.clear();
    v.vol.finish();
}

/// Data that only the log has belongs to the journal: it stops, and the next mount replays it.
#[test]
fn journaled_data_that_cannot_go_home_stops_the_journal() {
    for (name, opts) in journaling() {
        let v = Failing::new(&opts);
        let f = v.vol.open("f");
        v.write(&f, 3);
        v.fail(libc::EIO);
        assert_eq!(v.fsync(&f), 0, "{name}: it is in the log");
        drop(f);
        assert!(v.vol.fs().unmount().is_err(), "{name}");
        v.device.clear();
        assert!(all(&v.after_crash("f"), 3), "{name}");
    }
}

/// The same for synced data that only a record holds.
#[test]
fn recorded_data_that_cannot_go_home_stops_the_journal() {
    for data in [DataMode::Ordered, DataMode::Overwrites] {
        recorded_data_cannot_go_home(data);
    }
}

fn recorded_data_cannot_go_home(data: DataMode) {
    let v = Failing::new(&options(data, Some(2)));
    let f = v.vol.open("f");
    let fs = v.vol.fs();
    // One more block, so that there is something to record.
    fs.write(&Ctx::ROOT, &f, LEN as u64, &[6; 4096], false)
        .unwrap();
    assert_eq!(v.fsync(&f), 0);
    let records = fs.stats().journal.file_records;
    fs.write(&Ctx::ROOT, &f, 0, &[7; 4096], false).unwrap();
    fs.write(&Ctx::ROOT, &f, LEN as u64 + 4096, &[8; 10], false)
        .unwrap();
    assert_eq!(v.fsync(&f), 0);
    assert_eq!(fs.stats().journal.file_records, records + 1);
    // Recovery writes overwritten data back from the log if it goes through the log, but not new
    // data.
    let crashed = Arc::new(v.vol.mem().fork());
    let again = Volume::on(crashed.clone(), crashed.clone(), options(data, None));
    let ino = again.fs().lookup(ROOT_INO, b"f").unwrap().ino;
    again.finish();
    let new = place_of(&crashed, ino, LEN / 4096..LEN / 4096 + 2);
    v.device.add(Fault::fail(Op::Write, libc::EIO).within(new));
    v.fail(libc::EIO);
    assert_eq!(v.syncfs(), libc::EIO);
    assert!(fs.is_read_only(), "the record was given up");
    drop(f);
    v.device.clear();
    let content = v.after_crash("f");
    assert_eq!(content.len(), LEN + 4096 + 10);
    assert!(
        content[..4096].iter().all(|b| *b == 7),
        "{:?}",
        &content[..4]
    );
}

/// All changes of an atomic group are in the log, also new blocks. Data of its files that cannot be
/// written back outside the log is not part of the group.
#[test]
fn a_group_needs_no_data_that_goes_home_by_itself() {
    const NEW: usize = 2;
    let opts = options(DataMode::Overwrites, None);
    let new = vec![6; NEW * 4096];
    let commit = |v: &Failing, is_dirty: bool| -> Result<()> {
        let (f, fs) = (v.vol.open("f"), v.vol.fs());
        if is_dirty {
            let written = fs.write(&Ctx::ROOT, &f, LEN as u64, &vec![5; new.len()], false)?;
            assert_eq!(written, new.len());
        }
        let ino = f.ino();
        let mut group = fs.atomic_group(&[f])?;
        group.write(&Ctx::ROOT, ino, LEN as u64, &new)?;
        group.commit()
    };
    for is_dirty in [false, true] {
        // Finds the place of the new blocks.
        let v = Failing::new(&opts);
        commit(&v, is_dirty).unwrap();
        let ino = v.vol.fs().lookup(ROOT_INO, b"f").unwrap().ino;
        let crashed = Arc::new(v.vol.mem().fork());
        Volume::on(crashed.clone(), crashed.clone(), opts.clone()).finish();
        let place = place_of(&crashed, ino, LEN / 4096..LEN / 4096 + NEW);
        drop(v);

        let v = Failing::new(&opts);
        v.device
            .add(Fault::fail(Op::Write, libc::EIO).within(place));
        let committed = commit(&v, is_dirty);
        assert_eq!(committed.is_err(), is_dirty, "{committed:?}");
        assert_eq!(v.device.hits() > 0, is_dirty);
        v.device.clear();
        let content = v.after_crash("f");
        let is_there = content.get(LEN..) == Some(&new[..]);
        assert_eq!(is_there, !is_dirty, "{} bytes", content.len());
    }
}

/// The log itself, and write-back of metadata.
#[test]
fn what_the_journal_writes_itself_stops_it() {
    for (name, opts) in writing_home().into_iter().chain(journaling()) {
        let opts = FsOptions {
            on_error: Some(OnError::Continue),
            ..opts
        };
        let v = Failing::new(&opts);
        let place = v.place.clone();
        v.vol.create("new");
        let elsewhere = move |at, _| !place.contains(&at);
        v.device
            .add(Fault::fail(Op::Write, libc::EIO).when(elsewhere));
        assert_eq!(v.syncfs(), libc::EIO, "{name}");
        assert!(v.vol.fs().is_read_only(), "{name}: the log");
        v.device.clear();
        assert!(all(&v.after_crash("f"), 1));

        let v = Failing::new(&opts);
        v.vol.create("new");
        assert_eq!(v.syncfs(), 0, "{name}");
        // The superblock and the group descriptors, not the journal's blocks.
        v.device
            .add(Fault::fail(Op::Write, libc::EIO).within(0..64 << 10));
        assert!(v.vol.fs().unmount().is_err(), "{name}: a checkpoint");
        v.device.clear();
        let mem = Arc::new(v.vol.mem().fork());
        let vol = Volume::on(mem.clone(), mem, options(DataMode::Ordered, None));
        vol.open("new");
        vol.finish();
    }
}

/// Log and data are written in one batch. A failure of the log is not taken for a failure of the
/// data.
#[test]
fn the_log_in_a_batch_with_data_stops_the_journal() {
    for (name, opts) in writing_home() {
        let v = Failing::new(&opts);
        v.vol.create("new");
        assert_eq!(v.syncfs(), 0, "{name}");
        v.vol.create("newer");
        let f = v.vol.open("f");
        v.write(&f, 3);
        let place = v.place.clone();
        // Not the block that seals a commit.
        let log = move |at, len| !place.contains(&at) && len > 4096;
        v.device.add(Fault::fail(Op::Write, libc::EIO).when(log));
        assert_eq!(v.syncfs(), libc::EIO, "{name}");
        assert!(v.vol.fs().is_read_only(), "{name}");
        assert!(f.untold_failure().is_none(), "{name}: the data is home");
    }
}

/// An unmount reports lost data, but leaves a clean volume.
#[test]
fn unmounting_says_what_is_lost_and_leaves_a_clean_volume() {
    for (name, opts) in writing_home() {
        let v = Failing::new(&opts);
        v.write(&v.vol.open("f"), 3);
        v.write(&v.vol.open("g"), 4);
        v.fail(libc::EIO);
        let said = v.vol.fs().unmount().map_err(|e| e.errno());
        assert_eq!(said, Err(libc::EIO), "{name}");
        v.device.clear();
        v.vol.check();
        let mem = Arc::new(v.vol.mem().fork());
        let vol = Volume::on(mem.clone(), mem, options(DataMode::Ordered, None));
        assert!(all(&vol.content(&vol.open("g")), 4), "{name}");
        vol.finish();
    }
}

const SECRET: u8 = 0x53;

/// New blocks hold content of deleted files. If their data cannot be written, they read as zeroes.
#[test]
fn nobody_reads_what_lay_in_new_blocks() {
    for (name, opts, extents) in writing_home()
        .into_iter()
        .map(|(name, opts)| (name, opts, true))
        .chain([("block map", options(DataMode::Ordered, None), false)])
    {
        let base = Arc::new(fresh(Shape { extents, ..SHAPE }));
        let vol = Volume::on(base.clone(), base.clone(), opts.clone());
        let secret = vol.create("secret");
        for mib in 0..30 {
            vol.fs()
                .write(&Ctx::ROOT, &secret, mib << 20, &[SECRET; 1 << 20], false)
                .unwrap();
        }
        drop(secret);
        vol.fs().unlink(&Ctx::ROOT, ROOT_INO, b"secret").unwrap();
        let ino = vol.create("f").ino();
        vol.finish();
        // Finds the place of the data.
        let dry = Arc::new(base.fork());
        let vol = Volume::on(dry.clone(), dry.clone(), opts.clone());
        vol.fs()
            .write(&Ctx::ROOT, &vol.open("f"), 0, &[3; LEN], false)
            .unwrap();
        vol.finish();
        let at = place(&dry, ino);
        let mut lies = vec![0; (at.end - at.start) as usize];
        base.read(at.start, &mut lies).unwrap();
        assert!(lies.iter().all(|b| *b == SECRET), "{name}: not the place");

        for closes in [false, true] {
            let v = Failing::with(Arc::new(base.fork()), &opts, at.clone());
            let f = v.vol.open("f");
            v.write(&f, 3);
            v.fail(libc::EIO);
            if closes {
                drop(f);
                assert!(v.vol.fs().unmount().is_err(), "{name}");
                assert!(all(&v.after_crash("f"), 0), "{name}: closed");
                continue;
            }
            assert_eq!(v.fsync(&f), libc::EIO, "{name}");
            assert_ne!(v.device.hits(), 0, "{name}");
            let deadline = Instant::now() + Duration::from_secs(30);
            while !all(&v.after_crash("f"), 0) {
                assert!(Instant::now() < deadline, "{name}: it can be read");
                v.syncfs();
            }
            v.device.clear();
            v.write(&f, 4);
            assert_eq!(v.fsync(&f), 0, "{name}");
            assert!(all(&v.after_crash("f"), 4), "{name}");
            drop(f);
            v.vol.finish();
        }
    }
}

/// A recovery does not drop a record whose data it could not write (replay.A1).
#[test]
fn a_recovery_that_cannot_write_keeps_the_records() {
    let opts = options(DataMode::Ordered, Some(2));
    let v = Failing::new(&opts);
    let f = v.vol.open("f");
    v.vol
        .fs()
        .write(&Ctx::ROOT, &f, LEN as u64, &[6; 10], false)
        .unwrap();
    v.vol
        .fs()
        .write(&Ctx::ROOT, &f, 0, &[7; 4096], false)
        .unwrap();
    assert_eq!(v.fsync(&f), 0);
    assert_eq!(v.vol.fs().stats().journal.file_records, 1);
    let crashed = Arc::new(FaultInjector::new(Arc::new(v.vol.mem().fork())));
    crashed.add(Fault::fail(Op::Write, libc::EIO).within(v.place.clone()));
    let opened = Fs::open(crashed.clone(), opts.clone()).map(drop);
    assert!(opened.is_err() && crashed.hits() > 0);
    crashed.clear();
    let vol = Volume::on(crashed.inner().clone(), crashed.clone(), opts);
    let content = vol.content(&vol.open("f"));
    assert_eq!(content.len(), LEN + 10);
    assert!(content[..4096].iter().all(|b| *b == 7));
    vol.finish();
}
