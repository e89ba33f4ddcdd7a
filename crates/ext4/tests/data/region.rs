//! Files that are synced by records in a region of persistent memory: without a flush, and all
//! synced data survives a crash.

use std::sync::Arc;

use stetfs_block::{Event, Log, MemDevice, Recorder, Replay};
use stetfs_ext4::*;
use stetfs_journal::region::RegionSource;
use stetfs_nvm::{MemRegion, Region, RegionLog, RegionRecorder, RegionReplay};
use stetfs_testkit::Scratch;
use stetfs_testkit::image::e2fsck;

use crate::data::records::{append, bytes, create, read, reasons, sync, sync_all};
use crate::data::volume::{Shape, fresh};
use stetfs_ext4::Ctx;

pub const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 48,
    extents: true,
    cluster: 1,
};

pub fn options(journal: &str, region: RegionSource) -> FsOptions {
    FsOptions {
        journal: journal.parse().unwrap(),
        region,
        cache_bytes: 16 << 20,
        commit_secs: 3600,
        ..FsOptions::default()
    }
}

pub fn region(mib: u64) -> Arc<MemRegion> {
    Arc::new(MemRegion::new(mib << 20))
}

pub fn at(region: Arc<dyn Region>) -> RegionSource {
    RegionSource::Open(region)
}

/// Opens the volume after a crash.
pub fn recovered(device: MemDevice, region: RegionSource) -> Result<(Arc<MemDevice>, Arc<Fs>)> {
    let device = Arc::new(device);
    let fs = Fs::open(device.clone(), options("ordered", region))?;
    Ok((device, fs))
}

/// Unmounts, and checks that e2fsck finds nothing.
pub fn finish(device: &MemDevice, fs: &Fs) {
    fs.unmount().unwrap();
    let dir = Scratch::new("region").unwrap();
    let path = dir.path().join("image");
    device.save(&path).unwrap();
    e2fsck(&path, &["-fn"], 0).unwrap();
}

pub fn flushes(log: &Log) -> usize {
    let durable = |e: &&Event| matches!(e, Event::Flush { .. } | Event::Write { fua: true, .. });
    log.events.iter().filter(durable).count()
}

/// A volume and its region, with recorders.
pub struct Recorded {
    base: MemDevice,
    empty: MemRegion,
    pub device: Arc<Recorder<MemDevice>>,
    region: Arc<RegionRecorder<Arc<MemRegion>>>,
}

impl Recorded {
    /// This volume, with an empty region of so many MiB.
    pub fn new(base: MemDevice, mib: u64) -> Recorded {
        let memory = region(mib);
        Recorded {
            device: Arc::new(Recorder::new(base.fork())),
            empty: memory.fork(),
            region: Arc::new(RegionRecorder::new(memory)),
            base,
        }
    }

    pub fn open(&self, journal: &str) -> Arc<Fs> {
        let opts = options(journal, at(self.region.clone()));
        Fs::open(self.device.clone(), opts).unwrap()
    }

    /// The volume after a crash that keeps only what is durable.
    pub fn recovered(&self) -> (Arc<MemDevice>, Arc<Fs>) {
        let (written, stored) = (self.device.log(), self.region.log());
        let mut disk = Replay::new(&self.base, &written);
        disk.advance_to(usize::MAX);
        let mut memory = RegionReplay::new(&self.empty, &stored);
        memory.advance_to(usize::MAX);
        let left = at(Arc::new(memory.only_durable()));
        recovered(disk.only_durable(), left).unwrap()
    }
}

/// The error of opening a volume with this region. Checks that the volume is not changed.
pub fn refused(device: &MemDevice, source: RegionSource) -> String {
    let before = device.to_vec();
    let device = Arc::new(device.fork());
    let error = Fs::open(device.clone(), options("ordered", source));
    assert!(device.to_vec() == before, "nothing changed");
    error.err().unwrap().to_string()
}

/// Only what is durable on the device and in the region survives.
#[test]
fn appends_and_syncs_wait_for_no_device() {
    for journal in ["ijournal", "ldj,sync=file", "writeback,sync=file"] {
        for fua in [false, true] {
            let base = fresh(SHAPE);
            let rig = Recorded::new(if fua { base.with_fua() } else { base }, 4);
            let fs = rig.open(journal);
            let device = &rig.device;
            let open = create(&fs, ROOT_INO, b"log");
            let before = flushes(&device.log());
            let mut expected = Vec::new();
            for i in 0..50u8 {
                let piece = bytes(i, 4096);
                append(&fs, &open.file, &mut expected, &piece);
                sync(&fs, &open.file, i % 2 == 0);
            }
            let stats = fs.stats().journal;
            assert_eq!(reasons(&fs), [], "{journal}");
            assert_eq!((stats.file_records, stats.file_pages), (50, 50));
            let log = device.log();
            assert_eq!(flushes(&log) - before, 0, "{journal}, FUA {fua}");
            // In addition to the data: a header of two cache lines, and a few for the content.
            let rest = stats.file_bytes - 50 * 4096;
            assert!(rest <= 50 * 1024, "{journal}: {rest}");
            let (device, fs) = rig.recovered();
            assert_eq!(read(&fs, &[b"log"]), Some(expected), "{journal}");
            finish(&device, &fs);
        }
    }
}

/// Data that was only overwritten is in a record, too, without a change of anything else in the
/// inode.
#[test]
fn overwrites_wait_for_no_device() {
    let rig = Recorded::new(fresh(SHAPE), 4);
    let (device, fs) = (&rig.device, rig.open("ijournal"));
    let open = create(&fs, ROOT_INO, b"table");
    let mut expected = bytes(1, 20 * 4096);
    let write = |at: usize, piece: &[u8]| {
        fs.write(&Ctx::ROOT, &open.file, at as u64, piece, false)
            .unwrap();
    };
    write(0, &expected);
    sync_all(&fs);
    // It is not noted yet that the data written back for the commit is durable.
    write(0, &expected[..4096]);
    sync(&fs, &open.file, true);
    let before = flushes(&device.log());
    for i in 0..40u8 {
        let at = usize::from(i) * 7 % 20 * 4096;
        let piece = bytes(i, 4096);
        write(at, &piece);
        expected[at..at + 4096].copy_from_slice(&piece);
        sync(&fs, &open.file, true);
    }
    assert_eq!(reasons(&fs), []);
    assert_eq!(flushes(&device.log()) - before, 0);
    let (device, fs) = rig.recovered();
    assert!(read(&fs, &[b"table"]) == Some(expected));
    finish(&device, &fs);
}

/// A volume with a file of two committed blocks, and a third block in a record in the region.
fn synced() -> (MemDevice, MemRegion, Vec<u8>) {
    let device = Arc::new(fresh(SHAPE));
    let region = region(1);
    let fs = Fs::open(device.clone(), options("ijournal", at(region.clone()))).unwrap();
    let open = create(&fs, ROOT_INO, b"file");
    let content = bytes(1, 3 * 4096);
    let write = |from: usize, to: usize| {
        fs.write(
            &Ctx::ROOT,
            &open.file,
            from as u64,
            &content[from..to],
            false,
        )
        .unwrap();
    };
    write(0, 8192);
    sync_all(&fs);
    write(8192, 3 * 4096);
    sync(&fs, &open.file, false);
    (device.fork(), region.fork(), content)
}

#[test]
fn a_region_that_is_lost_is_told() {
    let (device, region, content) = synced();
    let refused = |source| refused(&device, source);
    for (source, why) in [
        (RegionSource::None, "name it with nvm=PATH"),
        (
            at(Arc::new(MemRegion::new(1 << 20))),
            "it holds only zeroes",
        ),
        (at(Arc::new(MemRegion::new(64))), "it has 64 bytes"),
        (at(Arc::new(synced().1)), "another mount of the volume"),
        (at(Arc::new(MemRegion::from_bytes(&[3; 1 << 20]))), "magic"),
    ] {
        let said = refused(source);
        assert!(said.contains(why), "{said}");
        assert!(said.contains("stetfs recover --without-nvm"), "{said}");
    }
    let whole = at(Arc::new(region.fork()));
    let (_, fs) = recovered(device.fork(), whole).unwrap();
    assert_eq!(read(&fs, &[b"file"]).unwrap(), content);
    let (device, fs) = recovered(device.fork(), RegionSource::GivenUp).unwrap();
    assert_eq!(read(&fs, &[b"file"]).unwrap(), content[..8192]);
    finish(&device, &fs);
}

/// A closed volume no longer needs its region, so another volume may have it. A volume that was not
/// closed keeps it.
#[test]
fn a_region_is_free_once_its_volume_is_closed() {
    let region = region(1);
    let opts = options("ijournal", at(region.clone()));
    let (one, two) = (
        Arc::new(fresh(SHAPE)),
        Arc::new(fresh(Shape { mib: 40, ..SHAPE })),
    );
    let fs = Fs::open(one.clone(), opts.clone()).unwrap();
    let open = create(&fs, ROOT_INO, b"file");
    fs.write(&Ctx::ROOT, &open.file, 0, &[1; 5000], false)
        .unwrap();
    sync(&fs, &open.file, false);
    let crashed = one.fork();
    let refused = Fs::open(two.clone(), opts.clone())
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("records of volume"), "{refused}");
    drop(open);
    finish(&one, &fs);
    let (_, fs) = recovered(one.fork(), RegionSource::None).unwrap();
    assert_eq!(read(&fs, &[b"file"]).unwrap(), [1; 5000]);
    fs.unmount().unwrap();
    // The same volume again, then another.
    for device in [&one, &two] {
        let fs = Fs::open(device.clone(), opts.clone()).unwrap();
        let open = create(&fs, ROOT_INO, b"other");
        fs.write(&Ctx::ROOT, &open.file, 0, &[2; 100], false)
            .unwrap();
        sync(&fs, &open.file, false);
        assert_eq!(reasons(&fs), []);
        drop(open);
        finish(device, &fs);
    }
    // Now the region belongs to another volume. A crash of the first volume from before then is one
    // without its region.
    let gone = recovered(crashed, at(region)).err().unwrap().to_string();
    assert!(gone.contains("belongs to volume"), "{gone}");
}

/// More than the region holds, and data that is written back meanwhile.
#[test]
fn a_region_that_is_full_has_room_again_after_a_commit() {
    let device = Arc::new(fresh(SHAPE));
    let region = region(1);
    let opts = options("ijournal,records=2", at(region.clone()));
    let fs = Fs::open(device.clone(), opts).unwrap();
    let open = create(&fs, ROOT_INO, b"file");
    let mut expected = Vec::new();
    for i in 0..100u8 {
        let piece = bytes(i, 50_000);
        append(&fs, &open.file, &mut expected, &piece);
        sync(&fs, &open.file, false);
    }
    assert!(fs.stats().journal.file_records > 20);
    let left = at(Arc::new(region.fork()));
    let (device, fs) = recovered(device.fork(), left).unwrap();
    assert_eq!(read(&fs, &[b"file"]), Some(expected));
    finish(&device, &fs);
}

/// The result of a run of operations: both recordings, cut at the same times, and the synced bytes
/// at each time.
struct Run {
    disk: (MemDevice, Log),
    region: (MemRegion, RegionLog),
    /// Position in the region's recording at which the volume was open.
    begun: usize,
    /// Position in the region's recording, file, and how many of its bytes were synced by then.
    synced: Vec<(usize, usize, usize)>,
}

const FILES: usize = 3;

fn run() -> Run {
    let base = fresh(SHAPE);
    let disk = Arc::new(Recorder::new(base.fork()));
    let memory = region(1);
    let clock = Arc::clone(&disk);
    let empty = memory.fork();
    let region = RegionRecorder::beside(memory, move || clock.position() as u64);
    let region = Arc::new(region);
    let opts = options("ijournal,records=2", at(region.clone()));
    let fs = Fs::open(disk.clone(), opts).unwrap();
    let mut rng = fastrand::Rng::with_seed(35);
    let mut files: Vec<_> = (0..FILES)
        .map(|n| (create(&fs, ROOT_INO, name(n).as_bytes()), 0))
        .collect();
    let begun = region.position();
    let mut synced = Vec::new();
    for _ in 0..60 {
        let n = rng.usize(..FILES);
        let (open, len) = &mut files[n];
        let more = rng.usize(1..20_000);
        let piece = &content(n)[*len..*len + more];
        fs.write(&Ctx::ROOT, &open.file, *len as u64, piece, false)
            .unwrap();
        *len += more;
        match rng.u8(..6) {
            0 => sync_all(&fs),
            _ => {
                sync(&fs, &open.file, false);
                synced.push((region.position(), n, *len));
            }
        }
    }
    assert!(fs.stats().journal.file_records > 40);
    Run {
        disk: (base, disk.log()),
        region: (empty, region.log()),
        begun,
        synced,
    }
}

/// The device and the region are cut at the same time, each with a part of what was not durable.
#[test]
fn what_was_synced_outlives_every_crash_of_device_and_region() {
    let run = run();
    let (base, log) = &run.disk;
    let (empty, stored) = &run.region;
    let all = stored.len();
    assert!(run.begun < all);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut cuts: Vec<usize> = (0..120).map(|_| rng.usize(run.begun..=all)).collect();
    cuts.sort_unstable();
    let (mut disk, mut memory) = (Replay::new(base, log), RegionReplay::new(empty, stored));
    for (i, at_region) in cuts.into_iter().enumerate() {
        let clock = |n: usize| stored.events.get(n).map(|event| event.at as usize);
        let from = at_region.checked_sub(1).and_then(clock).unwrap_or(0);
        let to = clock(at_region).unwrap_or(log.len());
        memory.advance_to(at_region);
        disk.advance_to(rng.usize(from..=to));
        let left = disk.crash(|_| rng.bool());
        let left_of_region = Arc::new(memory.state(i as u64, rng.u64(..40)));
        let (device, fs) = recovered(left, at(left_of_region)).unwrap();
        for n in 0..FILES {
            let is_synced = |(at, file, _): &&(usize, usize, usize)| *file == n && *at <= at_region;
            let least = run.synced.iter().rev().find(is_synced).map(|s| s.2);
            let now = read(&fs, &[name(n).as_bytes()]);
            let len = now.as_ref().map(Vec::len);
            assert!(
                len >= least,
                "cut {at_region}: file {n} has {len:?} of {least:?}"
            );
            let now = now.unwrap_or_default();
            assert!(now == content(n)[..now.len()], "cut {at_region}: file {n}");
        }
        if i % 3 == 0 {
            finish(&device, &fs);
        }
    }
}

fn name(n: usize) -> String {
    format!("file{n}")
}

fn content(n: usize) -> Vec<u8> {
    bytes(n as u8, 2 << 20)
}
