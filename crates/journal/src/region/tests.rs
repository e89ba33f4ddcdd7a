//! Crash tests of records in a region, at every store, with any subset of the unfenced lines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stetfs_cache::{Page, PageRef};
use stetfs_nvm::{MemRegion, Region, RegionLog, RegionRecorder, RegionReplay, What};
use stetfs_ondisk::stet::region::LANES_AT;

use super::{Lanes, Owner, RegionError, RegionLanes};
use crate::canary::Canary;
use crate::error::JournalError;
use crate::ids::{Lane, TxId};
use crate::policy::{RecordLog, RecordSize};

const BS: usize = 1024;
const LANE: u64 = 16 << 10;
const FIRST: u16 = 2;
const MINE: Owner = owner(7);

const fn owner(epoch: u64) -> Owner {
    Owner {
        uuid: *b"a volume's uuid.",
        epoch,
    }
}

fn make_with(
    region: Arc<dyn Region>,
    owner: Owner,
    lanes: u16,
    canary: Canary,
) -> Result<RegionLanes, JournalError> {
    let lanes = Lanes {
        count: lanes,
        first: FIRST,
        log: false,
    };
    RegionLanes::make(region, owner, lanes, BS as u32, true, canary)
}

fn make(region: Arc<dyn Region>, owner: Owner, lanes: u16) -> RegionLanes {
    make_with(region, owner, lanes, Canary::default()).unwrap()
}

fn open(region: MemRegion, owner: Owner) -> Result<RegionLanes, JournalError> {
    open_with(region, owner, Canary::default())
}

fn open_with(region: MemRegion, owner: Owner, canary: Canary) -> Result<RegionLanes, JournalError> {
    RegionLanes::open(Arc::new(region), owner, FIRST, canary)
}

fn why(e: JournalError) -> String {
    match e {
        JournalError::Region(why) => why.to_string(),
        other => panic!("{other}"),
    }
}

type Pages = Vec<(u64, PageRef)>;
type Said = (Vec<u8>, Vec<(u64, Vec<u8>)>);

fn said(body: &[u8], pages: &Pages) -> Said {
    let pages = pages.iter().map(|(nr, page)| (*nr, page.to_vec()));
    (body.to_vec(), pages.collect())
}

/// Record `n`, with its pages: lengths vary, and no two records are equal.
fn record(n: u64) -> (Vec<u8>, Pages) {
    let mut rng = fastrand::Rng::with_seed(n);
    let body = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
    let page = |rng: &mut fastrand::Rng| Arc::new(Page::copy_of(&[rng.u8(..); BS]));
    let pages = (0..rng.u64(..3))
        .map(|i| (n * 10 + i, page(&mut rng)))
        .collect();
    (body, pages)
}

/// A recorded run of one mount, on a region that an earlier mount used and emptied.
struct Run {
    base: MemRegion,
    log: RegionLog,
    /// The records, by stamp.
    written: BTreeMap<u64, Said>,
}

/// Writes `count` records in each thread, in a lane of its own. When a lane is full, a transaction
/// supersedes all records but the last few.
fn run(canary: Canary, threads: u16, count: u64) -> Run {
    let region = Arc::new(RegionRecorder::new(MemRegion::new(
        LANES_AT + LANE * u64::from(threads),
    )));
    let before = make(region.clone(), owner(6), threads);
    before.begin().unwrap();
    let stamps = AtomicU64::new(1000);
    let horizon = AtomicU64::new(0);
    let written = std::sync::Mutex::new(BTreeMap::new());
    let write = |lanes: &RegionLanes, lane: u16, n: u64| {
        let (body, pages) = record(u64::from(lane) << 32 | n);
        let size = RecordSize {
            bytes: body.len(),
            pages: pages.len(),
        };
        let durable = [TxId {
            lane: Lane(0),
            seq: n,
        }];
        let stamp = || {
            let stamp = stamps.fetch_add(1, Ordering::SeqCst) + 1;
            let said = said(&body, &pages);
            written.lock().unwrap().insert(stamp, said);
            stamp
        };
        let lane = lane.into();
        let over = horizon.load(Ordering::SeqCst);
        let place = lanes.reserve(lane, size, over, &durable, &stamp);
        let Some(place) = place else {
            // A transaction supersedes all records that are durable.
            let over = stamps.load(Ordering::SeqCst).saturating_sub(2);
            let over = horizon.fetch_max(over, Ordering::SeqCst).max(over);
            region.mark("horizon", over);
            return false;
        };
        let stamp = place.stamp();
        let flush = || panic!("nothing waits for the device");
        lanes.write_durably(&place, &body, &pages, &flush).unwrap();
        region.mark("synced", stamp);
        true
    };
    for n in 0..6 {
        assert!(write(&before, 0, n));
    }
    before.retire().unwrap();
    drop(before);
    written.lock().unwrap().clear();
    let lanes = make_with(region.clone(), MINE, threads, canary).unwrap();
    lanes.begin().unwrap();
    region.take_log();
    let base = region.inner().fork();
    std::thread::scope(|scope| {
        for lane in 0..threads {
            let (write, lanes) = (&write, &lanes);
            scope.spawn(move || {
                let mut n = 0;
                while n < count {
                    n += u64::from(write(lanes, lane, n));
                }
            });
        }
    });
    Run {
        base,
        log: region.take_log(),
        written: written.into_inner().unwrap(),
    }
}

/// Crashes after every event, in the special states and `mixtures` others. Returns the number of
/// states, or what does not hold.
fn crash(run: &Run, canary: Canary, mixtures: u64) -> Result<u64, String> {
    let mut replay = RegionReplay::new(&run.base, &run.log);
    let mut states = 0;
    let mut synced = Vec::new();
    let mut horizon = 0;
    for at in 0..=run.log.len() {
        replay.advance_to(at);
        if let Some(n) = at.checked_sub(1)
            && let What::Mark { label, value } = &run.log.events[n].what
        {
            match &label[..] {
                "horizon" => horizon = *value,
                _ => synced.push(*value),
            }
        }
        for n in 0..replay.special_states() + mixtures {
            states += 1;
            let lanes = open_with(replay.state(at as u64, n), MINE, canary);
            let lanes = lanes.map_err(|e| format!("event {at}, state {n}: {e}"))?;
            let found = lanes.scan(horizon).unwrap();
            if let Some(why) = found.lost {
                return Err(format!("damage at event {at}, state {n}: {why}"));
            }
            let mut there = BTreeMap::new();
            for record in found.records {
                let said = said(&record.body, &record.pages);
                if run.written.get(&record.stamp) != Some(&said) {
                    return Err(format!("foreign at event {at}, state {n}: {record:?}"));
                }
                there.insert(record.stamp, said);
            }
            let alive = synced.iter().filter(|stamp| **stamp > horizon);
            if let Some(stamp) = alive.into_iter().find(|stamp| !there.contains_key(stamp)) {
                return Err(format!("missing at event {at}, state {n}: {stamp}"));
            }
        }
    }
    Ok(states)
}

fn caught(canary: Canary, mixtures: u64) -> String {
    crash(&run(canary, 1, 40), canary, mixtures).unwrap_err()
}

/// region.R1, region.R2: after several laps.
#[test]
fn a_record_is_whole_or_absent_and_there_once_it_is_synced() {
    let run = run(Canary::default(), 1, 120);
    let bytes: usize = run.written.values().map(|(body, _)| body.len()).sum();
    assert!(bytes > 0 && run.written.len() >= 120);
    let laps = |what: &What| matches!(what, What::Mark { label, .. } if label == "horizon");
    assert!(run.log.events.iter().filter(|e| laps(&e.what)).count() > 3);
    let states = crash(&run, Canary::default(), 2).unwrap();
    assert!(states > 10_000, "{states}");
}

#[test]
fn lanes_of_several_threads_know_of_each_other() {
    let run = run(Canary::default(), 3, 30);
    crash(&run, Canary::default(), 1).unwrap();
}

/// region.R1.
#[test]
fn a_seal_before_its_record_is_found() {
    let canary = Canary {
        region_seal_early: true,
        ..Canary::default()
    };
    assert!(caught(canary, 4).starts_with("damage"));
}

/// region.R1.
#[test]
fn a_fence_that_is_left_out_is_found() {
    let before_the_seal = Canary {
        region_unfenced: true,
        ..Canary::default()
    };
    assert!(caught(before_the_seal, 4).starts_with("damage"));
    let behind_it = Canary {
        record_volatile: true,
        ..Canary::default()
    };
    assert!(caught(behind_it, 4).starts_with("missing"));
}

/// region.R2.
#[test]
fn an_earlier_mounts_records_are_found_where_the_epoch_is_not_looked_at() {
    let canary = Canary {
        region_any_epoch: true,
        ..Canary::default()
    };
    assert!(caught(canary, 0).starts_with("foreign"));
}

/// region.R3: also for the newest record of a lane, which no other record vouches for.
#[test]
fn what_changed_in_a_synced_record_is_damage() {
    let run = run(Canary::default(), 1, 3);
    let mut replay = RegionReplay::new(&run.base, &run.log);
    replay.advance_to(usize::MAX);
    let whole = replay.everything();
    let found = open(whole.fork(), MINE).unwrap().scan(0).unwrap();
    assert_eq!((found.records.len(), found.lost), (3, None));
    let newest = found.records.last().unwrap();
    whole.store(newest.at + 128, &[0xff]).unwrap();
    let found = open(whole, MINE).unwrap().scan(0).unwrap();
    let lost = found.lost.unwrap();
    assert!(lost.contains("does not match its checksum"), "{lost}");
    assert_eq!(found.records.len(), 2);
}

/// A copy of a record does not count, because it is not in the place that it names.
#[test]
fn a_record_in_another_place_does_not_count() {
    let run = run(Canary::default(), 1, 1);
    let mut replay = RegionReplay::new(&run.base, &run.log);
    replay.advance_to(usize::MAX);
    let region = replay.everything();
    let found = open(region.fork(), MINE).unwrap().scan(0).unwrap();
    let record = &found.records[0];
    let mut bytes = vec![0; record.bytes as usize];
    region.read(record.at, &mut bytes).unwrap();
    region.store(record.at + record.bytes + 64, &bytes).unwrap();
    let again = open(region, MINE).unwrap().scan(0).unwrap();
    assert_eq!((again.records.len(), again.lost), (1, None));
}

#[test]
fn a_full_lane_has_no_room_until_records_are_superseded() {
    let region = Arc::new(MemRegion::new(LANES_AT + LANE));
    let lanes = make(region, MINE, 4);
    assert_eq!(lanes.lanes(), 1, "so many fit");
    let size = RecordSize {
        bytes: 90,
        pages: 2,
    };
    let mut stamp = 0;
    let mut reserve = |horizon| {
        let next = stamp + 1;
        let place = lanes.reserve(5, size, horizon, &[], &|| next);
        stamp += u64::from(place.is_some());
        place
    };
    let pages: Pages = (0..2)
        .map(|nr| (nr, Arc::new(Page::copy_of(&[1; BS]))))
        .collect();
    let mut places = Vec::new();
    while let Some(place) = reserve(0) {
        places.push(place);
    }
    assert_eq!(places.len() as u64, LANE / (128 + 128 + 2 * BS as u64));
    assert!(lanes.is_half_full(0, 0));
    assert!(reserve(3).is_none(), "they are not written yet");
    for place in &places {
        let synced = lanes.write_durably(place, &[1; 90], &pages, &|| Ok(()));
        assert_eq!(synced.unwrap(), 128 + 128 + 2 * BS as u64);
    }
    assert!(reserve(0).is_none());
    let over = places.len() as u64 - 1;
    assert!(!lanes.is_half_full(0, over));
    assert!(reserve(over).is_some());
    // The last place was not written.
    let found = lanes.scan(over).unwrap();
    assert_eq!(
        (found.records.len(), found.superseded, found.lost),
        (1, over, None)
    );
}

/// While the header changes hands, a crash leaves the old or the new header, and records never
/// count for another owner.
#[test]
fn a_header_is_old_or_new() {
    let region = Arc::new(RegionRecorder::new(MemRegion::new(LANES_AT + LANE)));
    let base = region.inner().fork();
    for epoch in 1..4 {
        let lanes = make(region.clone(), owner(epoch), 1);
        lanes.begin().unwrap();
        region.mark("begun", epoch);
        lanes.retire().unwrap();
    }
    let log = region.take_log();
    let mut replay = RegionReplay::new(&base, &log);
    let (mut begun, mut refused) = (0, 0);
    for at in 0..=log.len() {
        replay.advance_to(at);
        if let Some(What::Mark { value, .. }) = at.checked_sub(1).map(|n| &log.events[n].what) {
            begun = *value;
        }
        for n in 0..replay.special_states() + 4 {
            let state = || replay.state(1, n);
            let of = |epoch: u64| open(state(), owner(epoch)).is_ok();
            let owners: Vec<u64> = (1..4).filter(|epoch| of(*epoch)).collect();
            let next = make_with(Arc::new(state()), owner(9), 1, Canary::default());
            if let Err(e) = next {
                assert_eq!(
                    why(e),
                    RegionError::Earlier.to_string(),
                    "event {at}, state {n}"
                );
                refused += 1;
            }
            let next = begun + 1;
            assert!(
                owners == [begun] || owners == [next] || (begun == 0 && owners.is_empty()),
                "event {at}, state {n}: {owners:?}"
            );
        }
    }
    assert_eq!(begun, 3);
    assert!(refused > 0, "while it is in use");
}

/// The part of a region that is beyond the one a closed volume used may belong to another volume.
#[test]
fn a_region_takes_only_zeroes_to_what_it_had() {
    let of = |lanes: u64| Arc::new(MemRegion::new(LANES_AT + lanes * LANE));
    let small = of(1);
    let lanes = make(small.clone(), MINE, 1);
    lanes.begin().unwrap();
    let begun = small.fork();
    lanes.retire().unwrap();
    let within = |bytes: &MemRegion, other: &[u8]| {
        let large = of(2);
        large.store(0, &bytes.to_vec()).unwrap();
        large.store(LANES_AT + LANE, other).unwrap();
        large
    };
    let take = |region| make_with(region, owner(8), 1, Canary::default());
    let refused = |region| take(region).map(drop).map_err(why).unwrap_err();
    let grown = RegionError::Grown(LANES_AT + LANE).to_string();
    assert_eq!(refused(within(&small, &[1])), grown);
    take(within(&small, &[])).unwrap();
    assert_eq!(
        refused(within(&begun, &[1])),
        RegionError::Earlier.to_string()
    );
}

#[test]
fn a_region_that_is_not_this_mounts_is_refused() {
    let region = Arc::new(MemRegion::new(LANES_AT + LANE));
    let take = |owner| make_with(region.clone(), owner, 1, Canary::default());
    let other = Owner {
        uuid: [9; 16],
        epoch: 7,
    };
    let find = |owner| open(region.fork(), owner).map(drop).map_err(why);
    assert!(find(MINE).unwrap_err().contains("only zeroes"));
    take(MINE).unwrap();
    find(MINE).unwrap();
    // The region is still empty, so others may take it, too.
    take(other).unwrap();
    assert!(find(MINE).unwrap_err().contains("belongs to volume"));
    let lanes = take(MINE).unwrap();
    lanes.begin().unwrap();
    let refused = |owner| take(owner).map(drop).map_err(why).unwrap_err();
    assert_eq!(refused(other), RegionError::InUse(MINE.uuid).to_string());
    assert_eq!(refused(owner(8)), RegionError::Earlier.to_string());
    assert!(find(owner(8)).unwrap_err().contains("another mount"));
    lanes.retire().unwrap();
    take(other).unwrap();

    let full = MemRegion::from_bytes(&[1; (LANES_AT + LANE) as usize]);
    let at_its_end = MemRegion::new(LANES_AT + LANE);
    at_its_end.store(LANES_AT + LANE - 1, &[1]).unwrap();
    for other in [full, at_its_end] {
        let bytes = other.to_vec();
        let other = Arc::new(other);
        let taken = make_with(other.clone(), MINE, 1, Canary::default());
        assert_eq!(
            taken.map(drop).map_err(why).unwrap_err(),
            RegionError::NotOurs.to_string()
        );
        assert!(other.to_vec() == bytes, "nothing changed");
    }
    let small = Arc::new(MemRegion::new(LANES_AT + LANE - 64));
    let taken = make_with(small, MINE, 1, Canary::default());
    assert!(
        taken
            .map(drop)
            .map_err(why)
            .unwrap_err()
            .contains("too small")
    );
}
