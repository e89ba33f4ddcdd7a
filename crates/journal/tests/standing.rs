//! A recovery of more images than are in memory at once: all are checked before the first goes
//! home, and those that the device shares are not read again (share.S5).
use std::sync::Arc;

use crate::common::superblock;
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::{
    Cache, Canary, CommitPoint, Composition, Journal, JournalConfig, JournalError, Log,
    LogFeatures, Recovery, RecoveryOptions,
};
use zerocopy::IntoBytes;

const BS: u64 = 4096;
/// The number of log blocks. All images take less than half, so that no checkpoint runs.
const LOG: u64 = 20_000;
/// The number of images: more than 32 MiB, which is one batch.
const IMAGES: u64 = 8_500;
/// The images of a transaction.
const EACH: u64 = 500;

fn log(device: &Arc<dyn BlockDevice>) -> Log {
    Log::open(device.clone(), BS as u32, &[(0, LOG)], Canary::default()).unwrap()
}

fn content(nr: u64) -> [u8; BS as usize] {
    let mut page = [nr as u8; BS as usize];
    page[..8].copy_from_slice(&(!nr).to_le_bytes());
    page
}

/// A volume with all these images in its log, and none of them home.
fn crashed() -> MemDevice {
    let memory = Arc::new(MemDevice::new((LOG + IMAGES) * BS).with_share(256, true));
    let mut sb = superblock(BS as u32, LOG as u32);
    sb.update_checksum();
    memory.write(0, sb.as_bytes()).unwrap();
    let device: Arc<dyn BlockDevice> = memory.clone();
    let config = CacheConfig {
        block_size: BS as usize,
        capacity: 64 << 20,
        policy: PolicyKind::Clock,
    };
    let cache = Arc::new(Cache::new(device.clone(), config));
    let features = LogFeatures {
        checksums: true,
        wide: true,
        async_commit: false,
    };
    let config = JournalConfig {
        commit_secs: 3600,
        ..JournalConfig::default()
    };
    let how: Composition = "data".parse().unwrap();
    let journal: Arc<Journal> = log(&device)
        .start(cache.clone(), features, &how, config)
        .unwrap();
    for first in (LOG..LOG + IMAGES).step_by(EACH as usize) {
        let mut point = CommitPoint::none();
        for nr in first..first + EACH {
            let handle = journal.begin(1).unwrap();
            let block = cache.get(nr);
            handle.create(&block).unwrap().copy_from_slice(&content(nr));
            point.merge(&handle.stop());
        }
        journal.commit(&point).unwrap();
    }
    assert_eq!(journal.stats().checkpoints, 0);
    memory.fork()
}

fn recover(
    device: &Arc<dyn BlockDevice>,
    home: &str,
    salvage: bool,
) -> Result<Recovery, JournalError> {
    let how: Composition = format!("data,home={home}").parse().unwrap();
    let options = RecoveryOptions {
        salvage,
        ..RecoveryOptions::default()
    };
    log(device).recover(LOG + IMAGES, options, how.home(), &mut |_, _| {})
}

fn at_home(device: &dyn BlockDevice, nr: u64) -> [u8; BS as usize] {
    let mut page = [0; BS as usize];
    device.read(nr * BS, &mut page).unwrap();
    page
}

#[test]
fn what_is_shared_is_read_once() {
    let crashed = crashed();
    let mut read = Vec::new();
    for home in ["copy", "share"] {
        let memory = Arc::new(crashed.fork());
        let device: Arc<dyn BlockDevice> = memory.clone();
        let before = memory.stats();
        let report = recover(&device, home, false).unwrap().report;
        let after = memory.stats().since(&before);
        read.push(after.bytes_read / BS);
        let shared = if home == "share" { IMAGES } else { 0 };
        assert_eq!((report.blocks, report.shared), (IMAGES, shared), "{home}");
        assert_eq!(after.shares > 0, home == "share");
        for nr in LOG..LOG + IMAGES {
            assert!(at_home(&*device, nr) == content(nr), "{home}: block {nr}");
        }
    }
    // The other blocks: descriptors and commit blocks with their surroundings, and the search
    // behind the end.
    let beside = |most: u64| most..most + 1024;
    let [copied, shared] = read[..] else { panic!() };
    assert!(beside(IMAGES).contains(&shared), "{read:?}");
    assert!(beside(2 * IMAGES).contains(&copied), "{read:?}");
}

/// share.S5: damage in the last image that would be shared. Nothing goes home, or with salvage all
/// other images.
#[test]
fn rot_is_found_before_anything_is_shared() {
    let crashed = crashed();
    let last = content(LOG + IMAGES - 1);
    let at = (0..LOG).rev().find(|nr| at_home(&crashed, *nr) == last);
    crashed.write(at.unwrap() * BS + 100, &[1]).unwrap();
    let memory = Arc::new(crashed.fork());
    let device: Arc<dyn BlockDevice> = memory.clone();
    let refused = recover(&device, "share", false);
    assert!(
        matches!(refused, Err(JournalError::Format(_))),
        "{refused:?}"
    );
    assert_eq!(memory.stats().shares, 0);
    assert!(memory.differences(&crashed).is_empty());
    let report = recover(&device, "share", true).unwrap().report;
    assert_eq!((report.blocks, report.shared), (IMAGES - 1, IMAGES - 1));
    assert_eq!(report.damage.lines().len(), 2, "{:?}", report.damage);
    assert!(at_home(&*device, LOG + IMAGES - 1) == [0; BS as usize]);
    assert!(at_home(&*device, LOG + IMAGES - 2) == content(LOG + IMAGES - 2));
}
