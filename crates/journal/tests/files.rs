//! Records of files in their lanes.
use std::sync::Arc;

use crate::common::{BLOCKS, BS, area, format, put};
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_cache::{CacheConfig, Page, PolicyKind};
use stetfs_journal::stet::{Compression, StetLog, StetOptions};
use stetfs_journal::{Cache, Canary, Journal, JournalConfig, Recovery, RecoveryOptions, recover};
use stetfs_ondisk::jbd2::JournalSuperblock;

const OPTIONS: StetOptions = options(1);

const fn options(file_lanes: u16) -> StetOptions {
    StetOptions {
        lanes: 1,
        compression: Compression::Lz4,
        chunk: 4096,
        trim: stetfs_journal::stet::Trim::Off,
        file_lanes,
        changes: None,
        least: 0,
        most: 0,
        fewer: false,
    }
}

fn superblock(device: &Arc<dyn BlockDevice>) -> JournalSuperblock {
    let bytes = area(device.clone()).read(std::iter::once(0)).unwrap();
    JournalSuperblock::decode(&bytes[0], BS as u32, crate::common::LOG).unwrap()
}

fn start(device: &Arc<MemDevice>) -> (Arc<Cache>, Arc<Journal>) {
    start_with(device, &OPTIONS)
}

fn start_with(device: &Arc<MemDevice>, options: &StetOptions) -> (Arc<Cache>, Arc<Journal>) {
    start_holding(device, options, None)
}

fn start_holding(
    device: &Arc<MemDevice>,
    options: &StetOptions,
    hold_horizon: Option<u64>,
) -> (Arc<Cache>, Arc<Journal>) {
    let device: Arc<dyn BlockDevice> = device.clone();
    let log = StetLog::make(
        area(device.clone()),
        superblock(&device),
        options,
        None,
        Canary::default(),
    );
    let config = CacheConfig {
        block_size: BS,
        capacity: 64 << 10,
        policy: PolicyKind::Clock,
    };
    let cache = Arc::new(Cache::new(device, config));
    let config = JournalConfig {
        commit_secs: 3600,
        hold_horizon,
        ..Default::default()
    };
    let journal = Journal::start(cache.clone(), log.unwrap().scheme(options, true), config);
    (cache, journal.unwrap())
}

/// Recovers a copy of the device.
fn recovered(device: &MemDevice) -> Result<Recovery, String> {
    let device: Arc<dyn BlockDevice> = Arc::new(device.fork());
    let log = StetLog::open(area(device.clone()), superblock(&device), Canary::default());
    let scheme = log.unwrap().scheme(&OPTIONS, true);
    recover(
        &scheme,
        &*device,
        BLOCKS,
        RecoveryOptions::default(),
        &mut |_, _| {},
    )
    .map_err(|e| e.to_string())
}

fn bodies(device: &MemDevice) -> Vec<Vec<u8>> {
    let records = recovered(device).unwrap().records;
    records.into_iter().map(|r| r.body).collect()
}

fn sync(journal: &Journal, body: &[u8]) {
    let place = journal
        .records()
        .unwrap()
        .reserve(body.len(), 0, None)
        .unwrap();
    journal.records().unwrap().write(&place, body, &[]).unwrap();
}

/// The log blocks at which records begin.
fn records(device: &MemDevice) -> Vec<u64> {
    let kind = |nr: &u64| crate::common::block(device, *nr)[50] == 2;
    crate::common::frames(device)
        .into_iter()
        .filter(kind)
        .collect()
}

fn stamp(device: &MemDevice, at: u64) -> u64 {
    u64::from_le_bytes(crate::common::block(device, at)[32..40].try_into().unwrap())
}

/// record.F1, record.F3.
#[test]
fn records_live_until_a_transaction_holds_what_they_hold() {
    let device = Arc::new(format(crate::common::Kind::Stet));
    let (cache, journal) = start(&device);
    let point = put(&cache, &journal, 300, 1);
    sync(&journal, b"one");
    let page = Arc::new(Page::copy_of(&[7; BS]));
    let place = journal.records().unwrap().reserve(3, 1, None).unwrap();
    journal
        .records()
        .unwrap()
        .write(&place, b"two", &[(400, page.clone())])
        .unwrap();
    let found = recovered(&device).unwrap();
    assert_eq!(found.records.len(), 2);
    assert_eq!(found.records[1].body, b"two");
    let (nr, logged) = &found.records[1].pages[0];
    assert_eq!((*nr, &logged[..]), (400, &page[..]));
    assert!(found.records[0].stamp < found.records[1].stamp);

    journal.commit(&point).unwrap();
    sync(&journal, b"three");
    assert_eq!(bodies(&device), [b"three"]);
    // The same holds when the transaction has left the log.
    journal.checkpoint().unwrap();
    assert_eq!(bodies(&device), [b"three"]);
    put(&cache, &journal, 301, 1);
    journal.commit_all().unwrap();
    assert!(bodies(&device).is_empty());
}

/// The lane is filled several times over.
#[test]
fn a_lane_has_room_again_after_a_commit() {
    let device = Arc::new(format(crate::common::Kind::Stet));
    let (cache, journal) = start(&device);
    for round in 0..5u8 {
        put(&cache, &journal, 300, round);
        let mut full = 0;
        for i in 0..100 {
            let place = journal
                .records()
                .unwrap()
                .reserve(1500, 0, None)
                .or_else(|| {
                    full += 1;
                    let point = put(&cache, &journal, 301, i);
                    journal.commit(&point).unwrap();
                    journal.records().unwrap().reserve(1500, 0, None)
                });
            let body = [i; 1500];
            journal
                .records()
                .unwrap()
                .write(&place.unwrap(), &body, &[])
                .unwrap();
            // There is none if a transaction has superseded it already.
            if let Some(newest) = bodies(&device).last() {
                assert_eq!(newest, &body, "round {round}");
            }
            put(&cache, &journal, 301, i);
        }
        assert!(full < 50, "{full} waits for a commit");
        journal.commit_all().unwrap();
        assert!(bodies(&device).is_empty());
    }
}

/// A copy of the device with damage in the frame at this block.
fn damaged(device: &MemDevice, at: u64) -> MemDevice {
    let torn = device.fork();
    torn.write(at * BS as u64 + 96, b"xxx").unwrap();
    torn
}

#[test]
fn a_record_vouches_for_the_newest_transaction() {
    let device = Arc::new(format(crate::common::Kind::Stet));
    let (cache, journal) = start(&device);
    put(&cache, &journal, 300, 1);
    journal.commit_all().unwrap();
    put(&cache, &journal, 300, 2);
    journal.commit_all().unwrap();
    let newest = *crate::common::frames(&device).last().unwrap();
    // Nothing proves that it was durable: a power cut may have torn it.
    assert_eq!(
        recovered(&damaged(&device, newest))
            .unwrap()
            .report
            .transactions,
        1
    );
    put(&cache, &journal, 301, 1);
    sync(&journal, b"one");
    let told = recovered(&damaged(&device, newest)).unwrap_err();
    assert!(told.contains("transaction 2 of lane 0"), "{told}");
    assert_eq!(bodies(&device), [b"one"]);
}

#[test]
fn a_record_vouches_for_those_in_other_lanes() {
    let device = Arc::new(format(crate::common::Kind::Stet));
    // No commit makes room.
    let (cache, journal) = start_holding(&device, &options(2), Some(0));
    put(&cache, &journal, 300, 1);
    let lane = |at: u64| crate::common::block(&device, at)[48];
    let by_lane = || {
        let (one, two) = records(&device).into_iter().partition(|at| lane(*at) == 1);
        [one, two]
    };
    // The thread moves to the other lane when its own is full, if it stays on one processor.
    let first_is_full = || {
        sync(&journal, &[7; 1500]);
        by_lane().iter().all(|lane: &Vec<u64>| !lane.is_empty())
    };
    assert!((0..200).any(|_| first_is_full()));
    let all = bodies(&device).len();
    sync(&journal, b"last");
    let newest = lane(
        *records(&device)
            .iter()
            .max_by_key(|at| stamp(&device, **at))
            .unwrap(),
    );
    let other = &by_lane()[usize::from(newest == 1)];
    let vouched = *other.iter().max_by_key(|at| stamp(&device, **at)).unwrap();
    let told = recovered(&damaged(&device, vouched)).unwrap_err();
    assert!(told.contains("a later one says so"), "{told}");
    assert_eq!(bodies(&device).len(), all + 1);
}

#[test]
fn a_torn_record_is_none_and_one_that_was_synced_is_missed() {
    let device = Arc::new(format(crate::common::Kind::Stet));
    let (cache, journal) = start(&device);
    put(&cache, &journal, 300, 1);
    for body in [b"one", b"two", b"six"] {
        sync(&journal, body);
    }
    let at = records(&device);
    let broken = |nr: usize| damaged(&device, at[nr]);
    assert_eq!(bodies(&broken(2)), [b"one", b"two"]);
    for nr in [0, 1] {
        let told = recovered(&broken(nr)).unwrap_err();
        assert!(
            told.contains(&format!("record {} of lane 1", nr + 1)),
            "{told}"
        );
    }
}

#[test]
fn threads_share_flushes_and_lose_nothing() {
    let device = Arc::new(format(crate::common::Kind::Stet));
    let (cache, journal) = start(&device);
    put(&cache, &journal, 300, 1);
    std::thread::scope(|scope| {
        for t in 0..4u8 {
            let journal = &journal;
            scope.spawn(move || {
                for i in 0..3u8 {
                    sync(journal, &[t, i]);
                }
            });
        }
    });
    let mut found = bodies(&device);
    found.sort();
    let all: Vec<Vec<u8>> = (0..4)
        .flat_map(|t| (0..3).map(move |i| vec![t, i]))
        .collect();
    assert_eq!(found, all);
    let stats = journal.stats();
    assert_eq!(stats.file_records, 12);
    assert!(stats.file_flushes <= 12);
}

#[test]
fn records_stay_alive_while_they_are_applied() {
    let device = Arc::new(format(crate::common::Kind::Stet));
    let (cache, journal) = start(&device);
    put(&cache, &journal, 300, 1);
    sync(&journal, b"one");
    drop(journal);
    drop(cache);
    let found = recovered(&device).unwrap();
    // This time the device itself is recovered.
    let at: Arc<dyn BlockDevice> = device.clone();
    let scheme = |at: &Arc<dyn BlockDevice>| {
        StetLog::open(area(at.clone()), superblock(at), Canary::default())
            .unwrap()
            .scheme(&OPTIONS, true)
    };
    recover(
        &scheme(&at),
        &*at,
        BLOCKS,
        RecoveryOptions::default(),
        &mut |_, _| {},
    )
    .unwrap();
    let config = CacheConfig {
        block_size: BS,
        capacity: 64 << 10,
        policy: PolicyKind::Clock,
    };
    let cache = Arc::new(Cache::new(at.clone(), config));
    let config = JournalConfig {
        first_stamp: found.last_stamp,
        hold_horizon: Some(found.horizon),
        ..Default::default()
    };
    let journal = Journal::start(cache.clone(), scheme(&at), config).unwrap();
    put(&cache, &journal, 300, 9);
    journal.commit_all().unwrap();
    assert_eq!(bodies(&device), [b"one"], "it is not wholly applied yet");
    journal.release_horizon().unwrap();
    assert!(bodies(&device).is_empty());
}
