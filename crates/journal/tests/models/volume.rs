//! A journal of several lanes over a [`Disk`], on the StetFS log, for models.

use std::cell::Cell;
use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::policy::Ordering;
use stetfs_journal::region::{RegionSource, RegionUse};
use stetfs_journal::stet::{StetLog, StetOptions};
use stetfs_journal::{
    Cache, Canary, CommitPoint, Handle, Journal, JournalConfig, Lane, Near, OpenLog, Recovery,
    RecoveryOptions, Result, Wait, recover,
};
use stetfs_nvm::Region;
use stetfs_ondisk::jbd2::JournalSuperblock;
use stetfs_sync::plain::{mpsc, thread, thread_local};

use super::acks::{Acks, Promise};
use super::common::{BLOCKS, BS, Kind, LOG, area, format};
use super::disk::{Cut, Disk};
use super::memory::{Memory, Stores};

/// The size of the memory in bytes: the least that a log takes, and as much for records.
const MEMORY: u64 = 8192 + (2 * 512 * BS as u64);
const UUID: [u8; 16] = [7; 16];

thread_local!(static LANE: Cell<u16> = Cell::new(0));

/// Chooses the lane of this thread's next handles.
pub fn on(lane: u16) {
    LANE.with(|mine| mine.set(lane));
}

struct Lanes(u16);

impl Ordering for Lanes {
    fn lanes(&self) -> u16 {
        self.0
    }
    fn commits_apart(&self) -> bool {
        true
    }
    fn lane(&self, _near: Option<Near>) -> Lane {
        Lane(LANE.with(Cell::get))
    }
}

pub struct Volume {
    pub disk: Arc<Disk>,
    pub cache: Arc<Cache>,
    pub journal: Arc<Journal>,
    pub acks: Acks,
    options: StetOptions,
}

fn superblock(device: &Arc<dyn BlockDevice>) -> JournalSuperblock {
    let bytes = area(device.clone()).read(std::iter::once(0)).unwrap();
    JournalSuperblock::decode(&bytes[0], BS as u32, LOG).unwrap()
}

/// Has a point committed; with `here` by this thread, if no other does it.
pub fn sync(journal: &Journal, point: CommitPoint, data: Vec<u32>, here: bool) -> Result<()> {
    let (answer, answered) = mpsc::sync_channel(1);
    let done = Box::new(move |result| answer.send(result).expect("somebody waits"));
    let wait = if here { Wait::Inline } else { Wait::Deferred };
    journal.sync(point, data, wait, done);
    answered.recv().expect("an answer")
}

/// The settings of a journal that commits on request only.
pub fn config(canary: Canary) -> JournalConfig {
    JournalConfig {
        commit_secs: 3600,
        canary,
        ..JournalConfig::default()
    }
}

impl Volume {
    /// A volume on a log of so many lanes.
    pub fn new(lanes: u16, file_lanes: u16, canary: Canary) -> Arc<Volume> {
        let options = StetOptions {
            lanes,
            file_lanes,
            ..StetOptions::default()
        };
        let acks = Acks::default();
        let disk = Arc::new(Disk::new(format(Kind::Stet), None, acks.clone()));
        Volume::on(disk, None, options, acks, canary)
    }

    /// A volume with its whole log in persistent memory: one lane of transactions, two of records.
    pub fn in_memory(canary: Canary) -> Arc<Volume> {
        let options = StetOptions {
            lanes: 1,
            file_lanes: 2,
            changes: Some(8),
            ..StetOptions::default()
        };
        let acks = Acks::default();
        let stores = Arc::new(Stores::new(MEMORY));
        let disk = Disk::new(format(Kind::Stet), Some(stores.clone()), acks.clone());
        let disk = Arc::new(disk);
        let region = RegionUse {
            region: Arc::new(Memory {
                disk: disk.clone(),
                stores,
            }),
            uuid: UUID,
            barrier: true,
        };
        Volume::on(disk, Some(region), options, acks, canary)
    }

    fn on(
        disk: Arc<Disk>,
        region: Option<RegionUse>,
        options: StetOptions,
        acks: Acks,
        canary: Canary,
    ) -> Arc<Volume> {
        let device: Arc<dyn BlockDevice> = disk.clone();
        let sb = superblock(&device);
        let log = StetLog::make(area(device.clone()), sb, &options, region.as_ref(), canary);
        let mut scheme = log.unwrap().scheme(&options, true);
        scheme.ordering = Box::new(Lanes(options.lanes));
        let cache = CacheConfig {
            block_size: BS,
            capacity: 64 << 10,
            policy: PolicyKind::Clock,
        };
        let cache = Arc::new(Cache::new(device, cache));
        Arc::new(Volume {
            journal: Journal::start(cache.clone(), scheme, config(canary)).unwrap(),
            disk,
            cache,
            acks,
            options,
        })
    }

    /// Gives a block its next version, and returns that.
    pub fn raise(&self, handle: &Handle<'_>, nr: u64) -> u8 {
        let block = self.cache.read(nr).unwrap();
        let mut bytes = handle.modify(&block).unwrap();
        bytes[0] += 1;
        bytes[0]
    }

    /// The states after cuts, recovered, each with the promises up to then.
    pub fn cuts(&self) -> Vec<(Arc<dyn BlockDevice>, Recovery, Promise)> {
        let cuts = self.disk.cuts().into_iter();
        cuts.map(|cut| self.recovered(cut)).collect()
    }

    fn recovered(&self, cut: Cut) -> (Arc<dyn BlockDevice>, Recovery, Promise) {
        let device: Arc<dyn BlockDevice> = Arc::new(cut.device);
        let sb = superblock(&device);
        let mut log = StetLog::open(area(device.clone()), sb, Canary::default()).unwrap();
        if let Some(region) = cut.region {
            let region = RegionSource::Open(Arc::new(region) as Arc<dyn Region>);
            let attached = log.attach(&region, UUID);
            attached.unwrap_or_else(|e| panic!("lost: the region is refused: {e}"));
        }
        let scheme = log.scheme(&self.options, true);
        let how = RecoveryOptions::default();
        let found = recover(&scheme, &*device, BLOCKS, how, &mut |_, _| {});
        let found = found.unwrap_or_else(|e| panic!("lost: recovery refuses: {e}"));
        (device, found, cut.promise)
    }
}

/// Runs these functions at the same time, in a thread each.
pub fn together<T: Send + Sync + 'static, const N: usize>(of: &Arc<T>, works: [fn(&T); N]) {
    let threads = works.map(|work| {
        let of = Arc::clone(of);
        thread::spawn(move || work(&of))
    });
    for thread in threads {
        thread.join().expect("the thread ends");
    }
}
