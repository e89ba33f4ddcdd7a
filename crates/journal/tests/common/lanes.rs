//! A volume whose tests choose the lane of each handle.

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use stetfs_block::{BlockDevice, FailStop, Gate, MemDevice};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::policy::{Copies, Ordering, ScannedTx, Scheme};
use stetfs_journal::stet::{StetLog, StetOptions};
use stetfs_journal::{
    Cache, Canary, CommitPoint, Journal, JournalConfig, Lane, Near, Recovery, RecoveryOptions,
    Result, TxId, recover,
};
use stetfs_ondisk::jbd2::JournalSuperblock;

use super::{BLOCKS, BS, Kind, area, format, put};

thread_local!(static LANE: Cell<u16> = const { Cell::new(0) });

/// Chooses the lane of this thread's next handles.
pub fn on(lane: u16) {
    LANE.set(lane);
}

pub struct Lanes {
    count: u16,
    copies: Copies,
}

impl Lanes {
    pub fn new(count: u16, copies: Copies) -> Lanes {
        Lanes { count, copies }
    }
}

impl Ordering for Lanes {
    fn lanes(&self) -> u16 {
        self.count
    }
    fn copies(&self) -> Copies {
        self.copies
    }
    fn commits_apart(&self) -> bool {
        true
    }
    fn lane(&self, _near: Option<Near>) -> Lane {
        Lane(LANE.get())
    }
}

pub struct Volume {
    pub device: Arc<MemDevice>,
    /// The gate that all writes of the journal pass.
    pub gate: Arc<Gate<Arc<MemDevice>>>,
    /// The device as the journal sees it.
    pub seen: Arc<dyn BlockDevice>,
    pub cache: Arc<Cache>,
    pub journal: Arc<Journal>,
    pub options: StetOptions,
}

fn superblock(device: &Arc<dyn BlockDevice>) -> JournalSuperblock {
    let bytes = area(device.clone()).read(std::iter::once(0)).unwrap();
    JournalSuperblock::decode(&bytes[0], BS as u32, super::LOG).unwrap()
}

impl Volume {
    pub fn new() -> Volume {
        Volume::with(3, 0)
    }

    pub fn with_records() -> Volume {
        Volume::with(2, 1)
    }

    pub fn with(count: u16, file_lanes: u16) -> Volume {
        Volume::with_fault(count, file_lanes, Canary::default())
    }

    pub fn with_fault(count: u16, file_lanes: u16, canary: Canary) -> Volume {
        let device = format(Kind::Stet);
        Volume::made(device, count, file_lanes, canary, Copies::default())
    }

    pub fn with_copies(copies: Copies) -> Volume {
        Volume::made(format(Kind::Stet), 2, 0, Canary::default(), copies)
    }

    pub fn with_fua(count: u16) -> Volume {
        let device = format(Kind::Stet).with_fua();
        Volume::made(device, count, 0, Canary::default(), Copies::default())
    }

    fn made(
        device: MemDevice,
        count: u16,
        file_lanes: u16,
        canary: Canary,
        copies: Copies,
    ) -> Volume {
        let options = StetOptions {
            lanes: count,
            file_lanes,
            ..StetOptions::default()
        };
        let device = Arc::new(device);
        let gate = Arc::new(Gate::new(device.clone()));
        let as_device: Arc<dyn BlockDevice> = Arc::new(FailStop::new(gate.clone()));
        let sb = superblock(&as_device);
        let log = StetLog::make(
            area(as_device.clone()),
            sb,
            &options,
            None,
            Canary::default(),
        );
        let mut scheme = log.unwrap().scheme(&options, true);
        scheme.ordering = Box::new(Lanes::new(count, copies));
        let cache = Arc::new(Cache::new(
            as_device.clone(),
            CacheConfig {
                block_size: BS,
                capacity: 64 << 10,
                policy: PolicyKind::Clock,
            },
        ));
        let config = JournalConfig {
            commit_secs: 3600,
            canary,
            ..JournalConfig::default()
        };
        Volume {
            journal: Journal::start(cache.clone(), scheme, config).unwrap(),
            device,
            gate,
            seen: as_device,
            cache,
            options,
        }
    }

    pub fn put(&self, lane: u16, nr: u64, value: u8) -> CommitPoint {
        on(lane);
        put(&self.cache, &self.journal, nr, value)
    }

    /// Writes a record of a file, durably.
    pub fn record(&self, body: &[u8]) {
        let records = self.journal.records().unwrap();
        let place = records.reserve(body.len(), 0, None).unwrap();
        records.write(&place, body, &[]).unwrap();
    }

    pub fn free(&self, lane: u16, nr: u64) -> CommitPoint {
        on(lane);
        let handle = self.journal.begin(1).unwrap();
        handle.revoke(nr, 1).unwrap();
        handle.stop()
    }

    /// The log on a copy of the device.
    pub fn log(&self, device: &Arc<dyn BlockDevice>) -> Scheme {
        let sb = superblock(device);
        let log = StetLog::open(area(device.clone()), sb, Canary::default());
        log.unwrap().scheme(&self.options, true)
    }

    /// The state after a power cut now, recovered.
    pub fn cut(&self) -> (Arc<dyn BlockDevice>, Recovery) {
        let device: Arc<dyn BlockDevice> = Arc::new(self.device.fork());
        let found = self.recover(&device, RecoveryOptions::default());
        (device, found.unwrap())
    }

    /// The transactions in a lane's log on a copy of the device.
    pub fn scan(&self, device: &Arc<dyn BlockDevice>, lane: usize) -> Vec<ScannedTx> {
        let scheme = self.log(device);
        let medium = &*scheme.media[lane];
        let scan = scheme.codec.scan(medium, medium.tail(), &mut |_, _| {});
        scan.unwrap().txs
    }

    /// A copy of the device without the frame of a transaction.
    pub fn without(&self, missing: TxId) -> Arc<dyn BlockDevice> {
        let device: Arc<dyn BlockDevice> = Arc::new(self.device.fork());
        let txs = self.scan(&device, usize::from(missing.lane.0));
        let frame = txs.iter().find(|tx| tx.id == missing).unwrap();
        let blank = vec![0; BS * frame.blocks as usize];
        device.write(frame.at * BS as u64, &blank).unwrap();
        device
    }

    /// The bytes of a lane's ring on the device.
    pub fn ring(&self, lane: u16) -> std::ops::Range<u64> {
        let device: Arc<dyn BlockDevice> = Arc::new(self.device.fork());
        let medium = &self.log(&device).media[usize::from(lane)];
        medium.first() * BS as u64..medium.end() * BS as u64
    }

    /// Recovers a copy of the device.
    pub fn recover(&self, device: &Arc<dyn BlockDevice>, how: RecoveryOptions) -> Result<Recovery> {
        recover(&self.log(device), &**device, BLOCKS, how, &mut |_, _| {})
    }
}

pub fn tx(lane: u16, seq: u64) -> TxId {
    TxId {
        lane: Lane(lane),
        seq,
    }
}

/// Begins a commit in a thread. The result comes through the channel.
pub fn committing(
    v: &Volume,
    point: CommitPoint,
) -> mpsc::Receiver<std::result::Result<(), String>> {
    let (done, is_done) = mpsc::channel();
    let journal = v.journal.clone();
    std::thread::spawn(move || {
        let _ = done.send(journal.commit(&point).map_err(|e| e.to_string()));
    });
    is_done
}

pub const LONG: Duration = Duration::from_secs(30);
