//! Crash tests of the log of transactions in a region, at every store.

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs_nvm::{MemRegion, Region, RegionLog, RegionRecorder, RegionReplay, What};
use stetfs_ondisk::stet::changes::ChangesHead;
use stetfs_ondisk::stet::checksum;
use stetfs_ondisk::stet::region::{LANES_AT, RegionHeader, State};

use super::log::{ChangesLog, Next, UNIT};
use crate::canary::Canary;

const ROOM: u64 = 8 << 10;
const EPOCH: u64 = 7;

fn log(region: Arc<dyn Region>, epoch: u64, canary: Canary) -> ChangesLog {
    let header = RegionHeader {
        generation: 1,
        epoch,
        uuid: [1; 16],
        size: LANES_AT + 2 * ROOM,
        state: State::InUse,
        lanes: 1,
        block_size: 1024,
        log: true,
    };
    ChangesLog::of(region, &header, canary).unwrap()
}

/// Transaction `seq`, of a random length, which is the same for all epochs.
fn transaction(epoch: u64, seq: u64) -> Vec<u8> {
    let len = fastrand::Rng::with_seed(seq).usize(0..900);
    let mut rng = fastrand::Rng::with_seed(epoch << 32 | seq);
    let rest: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
    let head = ChangesHead {
        epoch,
        seq,
        stamp: seq + 100,
        floor: 0,
        at: 0,
        rest_sum: checksum(&rest),
        rest_bytes: rest.len() as u64,
        images: 0,
        revokes: 0,
    };
    let mut bytes = head.encode().0.to_vec();
    bytes.extend(rest);
    bytes.resize(bytes.len().next_multiple_of(UNIT as usize), 0);
    bytes
}

struct Run {
    base: MemRegion,
    log: RegionLog,
    /// The first line of each transaction.
    lines: BTreeMap<u64, u64>,
}

/// Writes `count` transactions over those of an earlier mount. The tail moves when there is no
/// room.
fn run(canary: Canary, count: u64) -> Run {
    let region = Arc::new(RegionRecorder::new(MemRegion::new(LANES_AT + 2 * ROOM)));
    let mut base = None;
    let mut lines = BTreeMap::new();
    for epoch in [EPOCH - 1, EPOCH] {
        let log = log(region.clone(), epoch, canary);
        let all = log.lines();
        let len = all.end - all.start;
        let (mut head, mut tail, mut free) = (0, 1, len);
        lines.clear();
        for seq in 1..=count {
            let bytes = transaction(epoch, seq);
            let need = bytes.len() as u64 / UNIT;
            while free < need {
                free += transaction(epoch, tail).len() as u64 / UNIT;
                tail += 1;
                region.mark("tail", tail);
            }
            let line = all.start + head % len;
            log.put(line, &bytes).unwrap();
            lines.insert(seq, line);
            (head, free) = (head + need, free - need);
            region.mark("sealed", seq);
        }
        if epoch < EPOCH {
            region.take_log();
            base = Some(region.inner().fork());
        }
    }
    let log = region.take_log();
    let base = base.unwrap();
    Run { base, log, lines }
}

/// Crashes after every event. Returns the number of states, or what does not hold.
fn crash(run: &Run, canary: Canary, mixtures: u64) -> Result<u64, String> {
    let mut replay = RegionReplay::new(&run.base, &run.log);
    let (mut states, mut sealed, mut tail) = (0, 0, 1);
    for at in 0..=run.log.len() {
        replay.advance_to(at);
        if let Some(n) = at.checked_sub(1)
            && let What::Mark { label, value } = &run.log.events[n].what
        {
            *if &label[..] == "tail" {
                &mut tail
            } else {
                &mut sealed
            } = *value;
        }
        for n in 0..replay.special_states() + mixtures {
            states += 1;
            let failed = |what: String| Err(format!("{what} at event {at}, state {n}"));
            let log = log(Arc::new(replay.state(at as u64, n)), EPOCH, canary);
            let mut seq = tail;
            while let Some(line) = run.lines.get(&seq) {
                let Next::Sealed(head) = log.next(*line, seq).unwrap() else {
                    break;
                };
                let Some(rest) = log.rest(&head).unwrap() else {
                    return failed(format!("damage: {seq}"));
                };
                let expected = transaction(EPOCH, seq);
                if head.stamp != seq + 100 || !expected[128..].starts_with(&rest) {
                    return failed(format!("foreign: {seq}"));
                }
                seq += 1;
            }
            if seq <= sealed {
                return failed(format!("missing: {seq} of {sealed}"));
            }
            if let Some(later) = log.find(seq).unwrap() {
                return failed(format!("out of order: {later} without {seq}"));
            }
        }
    }
    Ok(states)
}

/// region.R1, region.R2: over several laps.
#[test]
fn transactions_are_whole_or_absent_and_there_once_they_are_sealed() {
    let run = run(Canary::default(), 60);
    let laps = |what: &What| matches!(what, What::Mark { label, .. } if &label[..] == "tail");
    assert!(run.log.events.iter().filter(|e| laps(&e.what)).count() > 30);
    let states = crash(&run, Canary::default(), 3).unwrap();
    assert!(states > 3_000, "{states}");
}

#[test]
fn what_breaks_the_order_of_a_transaction_is_found() {
    // Within the first lap the transactions of an earlier mount are at the same places.
    let with = |set: fn(&mut Canary)| {
        let mut canary = Canary::default();
        set(&mut canary);
        crash(&run(canary, 8), canary, 4).unwrap_err()
    };
    let early = with(|canary| canary.region_seal_early = true);
    assert!(early.starts_with("damage"), "{early}");
    let unfenced = with(|canary| canary.region_unfenced = true);
    assert!(unfenced.starts_with("damage"), "{unfenced}");
    let volatile = with(|canary| canary.no_barrier = true);
    assert!(volatile.starts_with("missing"), "{volatile}");
    let epoch = with(|canary| canary.region_any_epoch = true);
    assert!(epoch.starts_with("foreign"), "{epoch}");
}

/// region.R3.
#[test]
fn what_the_memory_lost_is_damage() {
    let run = run(Canary::default(), 6);
    let mut replay = RegionReplay::new(&run.base, &run.log);
    replay.advance_to(usize::MAX);
    let all = Arc::new(replay.everything());
    let log = log(all.clone(), EPOCH, Canary::default());
    assert_eq!(log.find(6).unwrap(), Some(6));
    assert_eq!(log.find(7).unwrap(), None);
    let third = run.lines[&3] * UNIT;
    all.store(third, &[0; 8]).unwrap();
    assert_eq!(log.next(run.lines[&3], 3).unwrap(), Next::None);
    assert!(log.find(3).unwrap().is_some(), "those behind it");
}
