//! Room in the log: no wait is endless, whatever a transaction frees.
use std::sync::Arc;
use std::time::Duration;

use crate::common::lanes::{LONG, Lanes, on};
use crate::common::superblock;
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::jbd2::{Features, Jbd2Log, LogArea};
use stetfs_journal::policy::{Copies, Scheme};
use stetfs_journal::stet::{Compression, StetLog, StetOptions};
use stetfs_journal::{
    Cache, Canary, CommitPoint, Journal, JournalConfig, RecoveryOptions, Result, recover,
};
use stetfs_ondisk::jbd2::JournalSuperblock;
use zerocopy::IntoBytes;

/// The number of home blocks: enough for a revoke of each to take more than a narrow lane.
const HOMES: u64 = 12_000;

/// The codecs, each with the numbers of lanes to test.
const CODECS: [(Option<Compression>, &[u16]); 5] = [
    (None, &[1]),
    (Some(Compression::None), &[1, 2, 3, 10, 40]),
    (Some(Compression::Lz4), &[1, 3, 10]),
    (Some(Compression::Zstd), &[1, 2, 3, 10, 40]),
    (Some(Compression::Auto), &[10]),
];

/// A volume with a log at its start.
#[derive(Clone, Copy, Debug)]
struct Shape {
    block_size: u32,
    /// Log blocks.
    log: u64,
    /// The compression; none for jbd2's format.
    compression: Option<Compression>,
    lanes: u16,
}

struct Volume {
    shape: Shape,
    device: Arc<MemDevice>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
}

impl Shape {
    fn options(&self) -> StetOptions {
        StetOptions {
            lanes: self.lanes,
            compression: self.compression.unwrap_or_default(),
            chunk: 16 << 10,
            // One lane is wide, and the others are as narrow as possible.
            least: 9,
            most: 120,
            ..StetOptions::default()
        }
    }

    fn blocks(&self) -> u64 {
        self.log + HOMES
    }

    fn area(&self, device: Arc<dyn BlockDevice>) -> LogArea {
        LogArea::new(device, self.block_size, &[(0, self.log)])
    }

    /// The policies of the log on the device, or with `fresh` of a new log.
    fn scheme(&self, device: &Arc<dyn BlockDevice>, fresh: bool) -> Result<Scheme> {
        let area = self.area(device.clone());
        let Some(_) = self.compression else {
            let log = Jbd2Log::open(area, Canary::default())?;
            let features = Features {
                checksums: true,
                wide: true,
                async_commit: false,
            };
            return if fresh {
                log.prepare(features)
            } else {
                Ok(log.scheme())
            };
        };
        let bytes = area.read(std::iter::once(0))?;
        let sb = JournalSuperblock::decode(&bytes[0], self.block_size, self.log)?;
        let options = self.options();
        let log = match fresh {
            true => StetLog::make(area, sb, &options, None, Canary::default()),
            false => StetLog::open(area, sb, Canary::default()),
        };
        Ok(log?.scheme(&options, true))
    }

    /// Starts the volume, if a log of this size is accepted.
    fn start(self, canary: Canary) -> Result<Volume> {
        let size = u64::from(self.block_size);
        let device = Arc::new(MemDevice::new(self.blocks() * size));
        let mut sb = superblock(self.block_size, u32::try_from(self.log).unwrap());
        sb.update_checksum();
        device.write(0, sb.as_bytes()).unwrap();
        let as_device: Arc<dyn BlockDevice> = device.clone();
        let mut scheme = self.scheme(&as_device, true)?;
        if self.compression.is_some() {
            scheme.ordering = Box::new(Lanes::new(self.lanes, Copies::default()));
        }
        let cache = Arc::new(Cache::new(
            as_device,
            CacheConfig {
                block_size: self.block_size as usize,
                capacity: 64 << 10,
                policy: PolicyKind::Clock,
            },
        ));
        let config = JournalConfig {
            commit_secs: 3600,
            canary,
            ..JournalConfig::default()
        };
        Ok(Volume {
            journal: Journal::start(cache.clone(), scheme, config)?,
            shape: self,
            device,
            cache,
        })
    }

    /// Starts the volume with the smallest log that is accepted.
    fn smallest(mut self, canary: Canary) -> Volume {
        self.log = 2;
        loop {
            match self.start(canary) {
                Ok(volume) => return volume,
                Err(_) => self.log += 1,
            }
            assert!(self.log < 1 << 16, "{self:?}");
        }
    }
}

/// Waits for a commit, with a time limit.
fn committed(v: &Volume, point: CommitPoint) -> std::result::Result<(), String> {
    let (done, is_done) = std::sync::mpsc::channel();
    let journal = v.journal.clone();
    std::thread::spawn(move || done.send(journal.commit(&point).map_err(|e| e.to_string())));
    let committed = is_done.recv_timeout(LONG);
    committed.unwrap_or_else(|_| panic!("{:?}: the commit does not end", v.shape))
}

impl Volume {
    /// Logs a block for each home, by transactions of the largest size in the first lane.
    fn fill(&self) {
        on(0);
        let mut at = 0;
        while at < HOMES {
            let handle = self.journal.begin(self.journal.max_credits()).unwrap();
            let end = (at + u64::from(self.journal.max_credits())).min(HOMES);
            for nr in at..end {
                let block = self.cache.get(self.shape.log + nr);
                handle.create(&block).unwrap().fill(7);
            }
            let point = handle.stop();
            committed(self, point).unwrap();
            at = end;
        }
    }

    /// Frees every home block in one transaction of a lane.
    fn free_all(&self, lane: u16) -> CommitPoint {
        on(lane);
        let handle = self.journal.begin(1).unwrap();
        handle.revoke(self.shape.log, HOMES).unwrap();
        handle.stop()
    }

    /// Writes to every home block outside the journal, as a new owner would, and crashes: recovery
    /// leaves them as they are.
    fn is_kept(&self) {
        let size = self.shape.block_size as usize;
        let device: Arc<dyn BlockDevice> = Arc::new(self.device.fork());
        let first = self.shape.log * size as u64;
        let data = vec![9; HOMES as usize * size];
        device.write(first, &data).unwrap();
        let scheme = self.shape.scheme(&device, false).unwrap();
        let how = RecoveryOptions::default();
        recover(&scheme, &*device, self.shape.blocks(), how, &mut |_, _| {}).unwrap();
        let mut found = vec![0; data.len()];
        device.read(first, &mut found).unwrap();
        assert!(
            found == data,
            "{:?}: a freed block was replayed",
            self.shape
        );
    }
}

/// room.W1: one transaction frees everything in the log of all lanes, in the smallest log of each
/// kind. Its revokes take more than its ring, or the ring is full of the images that they void.
#[test]
fn a_transaction_that_frees_all_ends() {
    for block_size in [1024, 4096] {
        for (compression, lanes) in CODECS {
            // A block of 1 KiB holds the fewest revokes.
            let some = if block_size == 1024 { 1 } else { 3 };
            for lanes in lanes.iter().copied().rev().step_by(some) {
                let shape = Shape {
                    block_size,
                    log: 0,
                    compression,
                    lanes,
                };
                let v = shape.smallest(Canary::default());
                v.fill();
                let freed = v.free_all(lanes - 1);
                committed(&v, freed).unwrap();
                v.is_kept();
                // The log can still be used.
                v.fill();
                v.is_kept_after_all_lanes(lanes);
                v.journal.shutdown().unwrap();
            }
        }
    }
}

impl Volume {
    /// Frees parts of the home blocks in all lanes at once.
    fn is_kept_after_all_lanes(&self, lanes: u16) {
        let mut all = CommitPoint::none();
        let each = HOMES / u64::from(lanes);
        for lane in 0..lanes {
            on(lane);
            let handle = self.journal.begin(1).unwrap();
            handle
                .revoke(self.shape.log + u64::from(lane) * each, each)
                .unwrap();
            all.merge(&handle.stop());
        }
        committed(self, all).unwrap();
    }
}

/// A deliberate fault keeps revokes of images that have left the log: the commit is refused, and
/// does not wait.
#[test]
fn what_no_ring_holds_is_an_error() {
    let shape = Shape {
        block_size: 1024,
        log: 0,
        compression: Some(Compression::Zstd),
        lanes: 10,
    };
    let v = shape.smallest(Canary {
        revoke_all: true,
        ..Canary::default()
    });
    v.fill();
    let freed = v.free_all(9);
    let refused = committed(&v, freed).unwrap_err();
    assert!(refused.contains("room.W1"), "{refused}");
}

/// A ring that is too small for the smallest transaction starts no journal: its first handle would
/// wait for ever.
#[test]
fn a_log_without_room_is_refused() {
    let shape = |log| Shape {
        block_size: 1024,
        log,
        compression: None,
        lanes: 1,
    };
    let mut accepted = Vec::new();
    for log in 2..64 {
        let Ok(v) = shape(log).start(Canary::default()) else {
            continue;
        };
        accepted.push(log);
        let (done, is_done) = std::sync::mpsc::channel();
        let journal = v.journal.clone();
        std::thread::spawn(move || {
            let begun = journal.begin(journal.max_credits()).map(drop);
            done.send(begun.map_err(|e| e.to_string()))
        });
        let begun = is_done.recv_timeout(Duration::from_secs(5));
        begun
            .unwrap_or_else(|_| panic!("a log of {log} blocks"))
            .unwrap();
    }
    assert!(accepted[0] > 17, "{accepted:?}");
    assert!(accepted.is_sorted() && accepted.len() > 40, "{accepted:?}");
}
