//! `home=share`: after checkpoints and recoveries the home blocks are as with `home=copy`.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::superblock;
use parking_lot::Mutex;
use proptest::prelude::*;
use stetfs_block::{
    BlockDevice, BlockError, Event, Fault, FaultInjector, MemDevice, Read, Recorder, Share,
    ShareLimits, SharePair, Stats, Write,
};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_flash::ftl::{FtlKind, Geometry};
use stetfs_flash::{Kept, PowerCut, Ssd};
use stetfs_journal::{
    Cache, Canary, CommitPoint, Composition, Journal, JournalConfig, JournalStats, Log,
    LogFeatures, RecoveryOptions, RecoveryReport,
};
use stetfs_ondisk::jbd2::MAGIC;
use zerocopy::IntoBytes;

/// The error of the device for a torn batch.
const EIO: i32 = 5;
/// The size of a block, and of a unit of the device, in bytes.
const BS: u64 = 4096;
const LOG: u64 = 128;
const BLOCKS: u64 = 256;

/// Data in jbd2's log, in raw frames, and in packed frames.
const JOURNALS: [&str; 3] = [
    "data",
    "data,codec=frames",
    "data,codec=frames,compress=lz4,chunk=4096",
];

fn journal(text: &str, home: &str) -> Composition {
    format!("{text},home={home}").parse().unwrap()
}

/// An empty volume in memory that shares batches of at most `pairs` units.
fn format(pairs: u64, block: u64) -> MemDevice {
    let device = MemDevice::new(BLOCKS * BS).with_share(pairs, false);
    let mut sb = superblock(block as u32, LOG as u32);
    sb.update_checksum();
    device.write(0, sb.as_bytes()).unwrap();
    device
}

/// A mounted volume.
struct Volume {
    block: u64,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
}

fn log(device: &Arc<dyn BlockDevice>, block: u64) -> Log {
    Log::open(device.clone(), block as u32, &[(0, LOG)], Canary::default()).unwrap()
}

impl Volume {
    fn start(device: Arc<dyn BlockDevice>, block: u64, how: &Composition) -> Volume {
        Volume::start_with(device, block, how, Canary::default())
    }

    fn start_with(
        device: Arc<dyn BlockDevice>,
        block: u64,
        how: &Composition,
        canary: Canary,
    ) -> Volume {
        let config = CacheConfig {
            block_size: block as usize,
            capacity: 64 << 10,
            policy: PolicyKind::Clock,
        };
        let cache = Arc::new(Cache::new(device.clone(), config));
        let config = JournalConfig {
            commit_secs: 3600,
            canary,
            ..JournalConfig::default()
        };
        let features = LogFeatures {
            checksums: true,
            wide: true,
            async_commit: false,
        };
        let journal = log(&device, block).start(cache.clone(), features, how, config);
        Volume {
            block,
            cache,
            journal: journal.unwrap(),
        }
    }

    fn put(&self, nr: u64, bytes: &[u8]) -> CommitPoint {
        let handle = self.journal.begin(1).unwrap();
        let block = self.cache.get(nr);
        handle.create(&block).unwrap().copy_from_slice(bytes);
        handle.stop()
    }

    /// Commits blocks from `first` on; jbd2 escapes one in eight.
    fn fill(&self, first: u64, count: u64, seed: u64) {
        let mut point = CommitPoint::none();
        for nr in first..first + count {
            point.merge(&self.put(nr, &content(self.block, seed + nr, nr % 8 == 7)));
        }
        self.journal.commit(&point).unwrap();
    }

    fn stats(&self) -> JournalStats {
        self.journal.stats()
    }
}

/// The content of a block: noise for two seeds of three, else one value.
fn content(block: u64, seed: u64, escaped: bool) -> Vec<u8> {
    let mut bytes = vec![seed as u8; block as usize];
    if !seed.is_multiple_of(3) {
        let mut rng = fastrand::Rng::with_seed(seed);
        rng.fill(&mut bytes);
    }
    if escaped {
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    bytes
}

fn recover(device: &Arc<dyn BlockDevice>, block: u64, how: &Composition) -> RecoveryReport {
    let found = log(device, block).recover(
        BLOCKS * BS / block,
        RecoveryOptions::default(),
        how.home(),
        &mut |_, _| {},
    );
    found.unwrap().report
}

/// The content behind the log.
fn homes(device: &dyn BlockDevice, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; (BLOCKS * BS - LOG * block) as usize];
    device.read(LOG * block, &mut bytes).unwrap();
    bytes
}

/// The volume after a crash now.
fn crashed(device: &MemDevice) -> Arc<dyn BlockDevice> {
    Arc::new(device.fork())
}

fn sent(stats: JournalStats) -> (u64, u64) {
    (stats.shared, stats.copied)
}

/// Checkpoint and recovery bring the same bytes home with both policies, and count the same shares.
#[test]
fn shared_homes_are_those_of_copying() {
    for text in JOURNALS {
        let mut found = Vec::new();
        for home in ["copy", "share"] {
            let how = journal(text, home);
            let device = Arc::new(format(7, BS));
            let volume = Volume::start(device.clone(), BS, &how);
            volume.fill(140, 20, 0);
            volume.fill(150, 20, 500);
            let after = crashed(&device);
            let report = recover(&after, BS, &how);
            volume.journal.checkpoint().unwrap();
            let stats = volume.stats();
            assert_eq!(stats.bytes_home, stats.copied * BS, "{text} {home}");
            assert_eq!(
                sent(stats),
                (report.shared, report.blocks - report.shared),
                "{text} {home}: the log tells recovery what the checkpoint knows"
            );
            found.push((sent(stats), homes(&*after, BS), homes(&*device, BS)));
        }
        let [(copied, ..), (shared, ..)] = &found[..] else {
            panic!()
        };
        let expected = match text {
            "data" => (26, 4),
            "data,codec=frames" => (30, 0),
            _ => (20, 10),
        };
        assert_eq!((*copied, *shared), ((0, 30), expected), "{text}");
        for (_, recovered, home) in &found {
            assert!(*recovered == found[0].1 && *home == found[0].1, "{text}");
        }
    }
}

/// Images that cannot be shared are written: the device takes no pairs, its unit is larger than a
/// block, or it has no SHARE.
#[test]
fn what_cannot_be_shared_is_copied() {
    let how = journal("data,codec=frames", "share");
    for (pairs, block) in [(0, BS), (7, 1024)] {
        let device = Arc::new(format(pairs, block));
        let volume = Volume::start(device.clone(), block, &how);
        let first = LOG + 100;
        volume.fill(first, 20, 0);
        volume.journal.checkpoint().unwrap();
        assert_eq!(sent(volume.stats()), (0, 20));
        let whole = homes(&*device, block);
        let at = (100 * block) as usize;
        assert_eq!(
            whole[at..][..block as usize],
            content(block, first, first % 8 == 7)
        );
    }
    let device = MemDevice::from_image(&{
        let mut bytes = vec![0; (BLOCKS * BS) as usize];
        format(1, BS).read(0, &mut bytes).unwrap();
        bytes
    });
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    assert!(device.share().is_none());
    let volume = Volume::start(device.clone(), BS, &how);
    volume.fill(140, 20, 0);
    volume.journal.checkpoint().unwrap();
    assert_eq!(sent(volume.stats()), (0, 20));
}

/// A device that shares less than its limits say.
struct Refusing {
    inner: MemDevice,
    /// The most units of a batch.
    most: u64,
    /// Home blocks that it does not share to.
    never: Vec<u64>,
    batches: Mutex<Vec<u64>>,
}

impl BlockDevice for Refusing {
    stetfs_block::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> stetfs_block::Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> stetfs_block::Result<()> {
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> stetfs_block::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: std::ops::Range<u64>) -> stetfs_block::Result<()> {
        self.inner.discard(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl Share for Refusing {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> stetfs_block::Result<()> {
        let units: Vec<u64> = pairs
            .iter()
            .flat_map(|pair| pair.units(BS as u32))
            .map(|(dst, _)| dst / BS)
            .collect();
        let count = units.len() as u64;
        if count > self.most {
            return Err(BlockError::ShareBatch {
                units: count,
                limit: self.most,
            });
        }
        if units.iter().any(|nr| self.never.contains(nr)) {
            return Err(BlockError::ShareReferences {
                offset: 0,
                limit: 2,
            });
        }
        self.batches.lock().push(count);
        self.inner.share().unwrap().share_batch(pairs)
    }
}

#[test]
fn a_refused_batch_is_shared_in_smaller_ones_and_copied_where_that_is_not_enough() {
    let how = journal("data,codec=frames", "share");
    let device = Arc::new(Refusing {
        inner: format(64, BS),
        most: 5,
        never: vec![143, 151],
        batches: Mutex::default(),
    });
    let volume = Volume::start(device.clone(), BS, &how);
    volume.fill(140, 20, 0);
    volume.journal.checkpoint().unwrap();
    assert_eq!(sent(volume.stats()), (18, 2));
    assert_eq!(device.batches.lock().iter().sum::<u64>(), 18);
    for nr in 140..160 {
        let mut bytes = vec![0; BS as usize];
        device.read(nr * BS, &mut bytes).unwrap();
        assert_eq!(bytes, content(BS, nr, nr % 8 == 7), "block {nr}");
    }
}

/// share.S4: a part of a batch arrives, then the power goes: in a checkpoint, in a recovery, and in
/// the next one. The last recovery brings all home.
#[test]
fn recovery_repeats_what_a_cut_left_of_a_batch() {
    for text in JOURNALS {
        let how = journal(text, "share");
        let tear = |odd: u64| Fault::tear_share(move |dst, _| (dst / BS) % 2 == odd, Some(EIO));
        let memory = Arc::new(format(32, BS));
        let device = Arc::new(FaultInjector::new(memory.clone()));
        let volume = Volume::start(device.clone(), BS, &how);
        volume.fill(140, 20, 0);
        volume.fill(150, 20, 500);
        device.add(tear(0));
        assert!(volume.journal.checkpoint().is_err(), "{text}");
        for odd in [1, 0] {
            let again = FaultInjector::new(memory.clone());
            again.add(tear(odd));
            let again: Arc<dyn BlockDevice> = Arc::new(again);
            let torn = log(&again, BS).recover(
                BLOCKS,
                RecoveryOptions::default(),
                how.home(),
                &mut |_, _| {},
            );
            assert!(torn.is_err(), "{text}");
        }
        let after: Arc<dyn BlockDevice> = memory;
        let report = recover(&after, BS, &how);
        assert!(report.shared > 0 && report.blocks == 30, "{report:?}");
        for nr in 140..170 {
            let seed = if nr < 150 { nr } else { 500 + nr };
            let mut bytes = vec![0; BS as usize];
            after.read(nr * BS, &mut bytes).unwrap();
            assert!(
                bytes == content(BS, seed, nr % 8 == 7),
                "{text}: block {nr}"
            );
        }
    }
}

/// The first use of log space that comes too early: a request to a place that was shared from,
/// before the share was flushed and the tail after it.
fn released_early(text: &str, canary: Canary) -> Option<String> {
    let how = journal(text, "share");
    let device = Arc::new(Recorder::new(format(32, BS)));
    let volume = Volume::start_with(device.clone(), BS, &how, canary);
    for round in 0..40 {
        volume.fill(140 + round % 30, 8, round * 100);
        volume.journal.checkpoint().unwrap();
    }
    // Places shared from since the last flush, and those whose tail is not yet written and flushed.
    let (mut young, mut old) = (Vec::<(u64, u64)>::new(), Vec::new());
    let (mut shared, mut tail_written) = (0, false);
    for event in device.take_log().events {
        let touched: Option<(u64, u64)> = match &event {
            Event::Write { offset, data, .. } => Some((*offset, data.len() as u64)),
            Event::Discard { range, .. } => Some((range.start, range.end - range.start)),
            _ => None,
        };
        if let Some((at, len)) = touched {
            let over = |(src, of): &(u64, u64)| *src < at + len && at < src + of;
            if young.iter().chain(&old).any(over) {
                return Some(format!("{len} bytes at {at}"));
            }
            // The superblock, or the copies of the header.
            tail_written |= at < 3 * BS;
            if at < 3 * BS && !young.is_empty() {
                return Some("the tail".into());
            }
        }
        match &event {
            Event::Share { pairs, .. } => {
                shared += pairs.len();
                young.extend(pairs.iter().map(|pair| (pair.src, pair.len)));
            }
            Event::Flush { .. } => {
                if std::mem::take(&mut tail_written) {
                    old.clear();
                }
                old.append(&mut young);
            }
            _ => {}
        }
    }
    assert!(shared > 40, "{text}: {shared}");
    None
}

/// share.S3, checkpoint.K2: the share, a flush, the tail durably, and only then a trim or a reuse
/// of the place that was shared from.
#[test]
fn a_log_block_is_released_after_the_flush_that_follows_its_share() {
    let trimmed = "data,codec=frames,trim=discard";
    for text in ["data", trimmed] {
        assert_eq!(released_early(text, Canary::default()), None, "{text}");
    }
    let home_volatile = Canary {
        home_volatile: true,
        ..Canary::default()
    };
    // Without a trim, the flush of a later commit makes the tail durable before its space is used
    // again.
    let tail_volatile = Canary {
        tail_volatile: true,
        ..Canary::default()
    };
    for (text, canary) in [
        ("data", home_volatile),
        (trimmed, home_volatile),
        (trimmed, tail_volatile),
    ] {
        assert!(released_early(text, canary).is_some(), "{text}");
    }
}

/// An SSD with a volatile cache, and an empty volume on it.
fn ssd() -> Arc<Ssd> {
    let geometry = Geometry::new(BLOCKS * BS, 16 * BS, 25).unwrap();
    let ssd = Ssd::new(FtlKind::Page.make(geometry), true);
    let mut bytes = vec![0; (BLOCKS * BS) as usize];
    format(1, BS).read(0, &mut bytes).unwrap();
    ssd.write(0, &bytes).unwrap();
    ssd.flush().unwrap();
    Arc::new(ssd)
}

/// The references of the simulated SSD keep shared content when the log is trimmed and reused, and
/// when the power goes.
#[test]
fn the_simulated_ssd_keeps_what_is_shared() {
    for text in [
        "data",
        "data,codec=frames",
        "data,codec=frames,trim=discard",
    ] {
        let how = journal(text, "share");
        let (ssd, mut expected) = (ssd(), BTreeMap::new());
        let mut shared = 0;
        for life in 0..6 {
            let device: Arc<dyn BlockDevice> = ssd.clone();
            shared += recover(&device, BS, &how).shared;
            for (nr, bytes) in &expected {
                let mut found = vec![0; BS as usize];
                ssd.read(nr * BS, &mut found).unwrap();
                assert!(found == *bytes, "{text}: block {nr} in life {life}");
            }
            let power = Arc::new(FaultInjector::new(ssd.clone()));
            let volume = Volume::start(power.clone(), BS, &how);
            for round in 0..23 {
                let (first, seed) = (140 + round * 3 % 30, life * 10_000 + round * 100);
                volume.fill(first, 8, seed);
                let filled = (first..first + 8).map(|nr| (nr, content(BS, seed + nr, nr % 8 == 7)));
                expected.extend(filled);
                if round % 4 < 3 {
                    volume.journal.checkpoint().unwrap();
                }
            }
            shared += volume.stats().shared;
            power.power_off_after(0);
            ssd.cut_power(Kept::Some(life)).unwrap();
        }
        assert!(shared > 600, "{text}: {shared}");
    }
}

/// Shared images are not written a second time.
#[test]
fn a_checkpoint_that_shares_writes_little() {
    let written = ["copy", "share"].map(|home| {
        let device = ssd();
        let volume = Volume::start(device.clone(), BS, &journal("data", home));
        let before = device.stats().bytes_written;
        for round in 0..40 {
            volume.fill(140 + round * 3 % 30, 20, round * 100);
            volume.journal.checkpoint().unwrap();
        }
        device.stats().bytes_written - before
    });
    let [copy, share] = written;
    println!("bytes written: {copy} by copying, {share} by sharing");
    assert!(share * 3 < copy * 2, "{share} of {copy}");
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u64, bool),
    Free(u64),
    Commit,
    Checkpoint,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let home = || LOG + 4..LOG + 40;
    prop_oneof![
        12 => (home(), 0..1000u64, proptest::bool::weighted(0.1))
            .prop_map(|(nr, seed, escaped)| Op::Put(nr, seed, escaped)),
        1 => home().prop_map(Op::Free),
        3 => Just(Op::Commit),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Crash),
    ]
}

/// Runs operations with both home policies, and compares the home blocks after each checkpoint and
/// recovery, and at the end. Freed blocks are not compared: the checkpoint thread, which runs by
/// the clock, may or may not have written them home.
fn compare(text: &str, pairs: u64, ops: &[Op]) {
    let ways = ["copy", "share"].map(|home| {
        let (device, how) = (Arc::new(format(pairs, BS)), journal(text, home));
        let volume = Volume::start(device.clone(), BS, &how);
        (device, how, volume)
    });
    let mut freed = BTreeSet::new();
    let same = |what: &str, freed: &BTreeSet<u64>, [copy, share]: [Vec<u8>; 2]| {
        let blocks = copy.chunks(BS as usize).zip(share.chunks(BS as usize));
        let mut differ = (LOG..).zip(blocks).filter(|(_, (a, b))| a != b);
        let block = differ.find(|(nr, _)| !freed.contains(nr)).map(|(nr, _)| nr);
        assert_eq!(block, None, "{text}: after {what} a block differs");
    };
    for op in ops {
        match op {
            Op::Put(nr, ..) => drop(freed.remove(nr)),
            Op::Free(nr) => drop(freed.insert(*nr)),
            _ => {}
        }
        for (_, _, volume) in &ways {
            match op {
                Op::Put(nr, seed, escaped) => {
                    volume.put(*nr, &content(BS, *seed, *escaped));
                }
                Op::Free(nr) => {
                    let handle = volume.journal.begin(1).unwrap();
                    handle.revoke(*nr, 1).unwrap();
                    handle.stop();
                    volume.journal.commit_all().unwrap();
                }
                Op::Commit => volume.journal.commit_all().unwrap(),
                // A crash finds the same transactions with both.
                Op::Checkpoint | Op::Crash => {
                    volume.journal.commit_all().unwrap();
                    if matches!(op, Op::Checkpoint) {
                        volume.journal.checkpoint().unwrap();
                    }
                }
            }
        }
        match op {
            Op::Checkpoint => {
                same(
                    "a checkpoint",
                    &freed,
                    ways.each_ref().map(|w| homes(&*w.0, BS)),
                );
            }
            Op::Crash => {
                let recovered = ways.each_ref().map(|(device, how, _)| {
                    let after = crashed(device);
                    recover(&after, BS, how);
                    homes(&*after, BS)
                });
                same("a recovery", &freed, recovered);
            }
            _ => {}
        }
    }
    for (_, _, volume) in &ways {
        volume.journal.shutdown().unwrap();
    }
    same("the end", &freed, ways.each_ref().map(|w| homes(&*w.0, BS)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn either_way_home_leaves_the_same(pairs in 1..20u64, ops in proptest::collection::vec(op(), 1..200)) {
        for text in JOURNALS {
            compare(text, pairs, &ops);
        }
    }
}
