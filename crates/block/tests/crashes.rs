//! Crash states built from recorded devices, against the states that the promises allow.
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stetfs_block::{
    BlockDevice, Event, Fault, FaultInjector, MemDevice, Op, Recorder, Replay, Write,
};

const SECTOR: u64 = 512;

fn recorder(sectors: u64) -> (MemDevice, Recorder<MemDevice>) {
    let base = MemDevice::new(sectors * SECTOR);
    let dev = Recorder::new(base.fork());
    (base, dev)
}

/// The first byte of each sector.
fn heads(dev: &MemDevice) -> Vec<u8> {
    dev.to_vec().chunks(SECTOR as usize).map(|s| s[0]).collect()
}

fn fill(dev: &impl BlockDevice, sector: u64, count: usize, with: u8) {
    dev.write(sector * SECTOR, &vec![with; count * SECTOR as usize])
        .unwrap();
}

/// All states a crash at this point can leave, by trying every subset.
fn states(replay: &Replay<'_>) -> BTreeSet<Vec<u8>> {
    let pending = replay.pending();
    assert!(pending.len() < 16);
    (0..1u32 << pending.len())
        .map(|subset| {
            let arrives = |s: &_| {
                pending
                    .iter()
                    .position(|p| p == s)
                    .is_some_and(|i| subset >> i & 1 == 1)
            };
            heads(&replay.crash(arrives))
        })
        .collect()
}

fn set<const N: usize>(states: [&[u8]; N]) -> BTreeSet<Vec<u8>> {
    states.iter().map(|s| s.to_vec()).collect()
}

#[test]
fn any_subset_of_sectors_until_a_flush_then_all() {
    let (base, dev) = recorder(3);
    fill(&dev, 0, 2, 1);
    fill(&dev, 2, 1, 2);
    dev.mark("before flush", 7);
    dev.flush().unwrap();
    dev.mark("after flush", 8);
    let log = dev.take_log();
    let mut replay = Replay::new(&base, &log);
    assert_eq!(states(&replay), set([&[0, 0, 0]]));
    replay.advance_to(1);
    assert_eq!(
        states(&replay),
        set([&[0, 0, 0], &[1, 0, 0], &[0, 1, 0], &[1, 1, 0]])
    );
    let flush = log
        .events
        .iter()
        .position(|e| matches!(e, Event::Flush { .. }))
        .unwrap();
    replay.advance_to(flush + 1);
    assert_eq!(
        states(&replay).len(),
        8,
        "a flush under way promises nothing"
    );
    replay.advance_to(flush + 2);
    assert_eq!(states(&replay), set([&[1, 1, 2]]));
    assert_eq!(
        log.marks(log.len()).collect::<Vec<_>>(),
        [("before flush", 7), ("after flush", 8)]
    );
    assert_eq!(log.marks(flush).count(), 1);
}

#[test]
fn a_sector_is_old_or_any_newer_but_not_older_than_what_was_flushed() {
    let (base, dev) = recorder(1);
    for value in [1, 2] {
        fill(&dev, 0, 1, value);
    }
    dev.flush().unwrap();
    for value in [3, 4] {
        fill(&dev, 0, 1, value);
    }
    let log = dev.take_log();
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(usize::MAX);
    assert_eq!(states(&replay), set([&[2], &[3], &[4]]));
    assert_eq!(heads(&replay.everything()), [4]);
    assert_eq!(heads(&replay.only_durable()), [2]);
}

#[test]
fn fua_stands_alone_and_hides_what_came_before() {
    let (base, dev) = recorder(3);
    fill(&dev, 0, 3, 1);
    dev.write_batch(&[Write::new(SECTOR, &[2; 512]).fua()])
        .unwrap();
    let log = dev.take_log();
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(log.len() - 1);
    assert_eq!(states(&replay).len(), 12, "not durable before it is done");
    replay.advance_to(log.len());
    assert_eq!(
        replay
            .pending()
            .iter()
            .map(|s| s.offset)
            .collect::<Vec<_>>(),
        [0, 2 * SECTOR]
    );
    assert_eq!(
        states(&replay),
        set([&[0, 2, 0], &[1, 2, 0], &[0, 2, 1], &[1, 2, 1]])
    );
}

/// A write that is submitted before a flush but returns after it is not covered.
#[test]
fn a_flush_covers_only_what_had_returned() {
    let write = |id, offset, byte| Event::Write {
        id,
        offset,
        data: vec![byte; 512].into(),
        fua: false,
    };
    let log = stetfs_block::Log {
        events: vec![
            write(1, 0, 1),
            write(2, SECTOR, 2),
            Event::Done { id: 1, ok: true },
            Event::Flush { id: 3 },
            Event::Done { id: 2, ok: true },
            Event::Done { id: 3, ok: true },
        ],
    };
    let base = MemDevice::new(2 * SECTOR);
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(log.len());
    assert_eq!(states(&replay), set([&[1, 0], &[1, 2]]));
}

#[test]
fn what_failed_stays_uncertain() {
    let base = MemDevice::new(2 * SECTOR);
    let dev = Recorder::new(FaultInjector::new(base.fork()));
    dev.inner().add(Fault::fail(Op::Write, libc::EIO).once());
    dev.write(0, &[1; 512]).unwrap_err();
    fill(&dev, 1, 1, 2);
    dev.inner().add(Fault::fail(Op::Flush, libc::EIO).once());
    dev.flush().unwrap_err();
    let failed = dev.position();
    dev.flush().unwrap();
    let flushed = dev.position();
    fill(&dev, 0, 1, 3);
    dev.flush().unwrap();
    let log = dev.take_log();
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(failed);
    assert_eq!(
        states(&replay).len(),
        4,
        "a flush that failed promises nothing"
    );
    replay.advance_to(flushed);
    assert_eq!(
        states(&replay).len(),
        4,
        "and a later one does not bring it back"
    );
    replay.advance_to(log.len());
    assert_eq!(states(&replay), set([&[3, 0], &[3, 2]]));
}

#[test]
fn discards_may_happen_until_a_flush() {
    let (base, dev) = recorder(2);
    fill(&base, 0, 2, 5);
    dev.discard(0..SECTOR).unwrap();
    let before = dev.position();
    dev.flush().unwrap();
    let log = dev.take_log();
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(before);
    assert_eq!(states(&replay), set([&[0, 5], &[5, 5]]));
    replay.advance_to(log.len());
    assert_eq!(states(&replay), set([&[0, 5]]));
}

#[test]
fn requests_tear_at_the_devices_sectors() {
    let (base, dev) = recorder(4);
    dev.write(500, &[1; 600]).unwrap();
    let log = dev.take_log();
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(log.len());
    let parts: Vec<_> = replay.pending().iter().map(|s| (s.offset, s.len)).collect();
    assert_eq!(parts, [(500, 12), (512, 512), (1024, 76)]);
    let torn = replay.crash(|s| s.len == 76).to_vec();
    assert!(torn[..1024].iter().all(|&b| b == 0) && torn[1024..1100].iter().all(|&b| b == 1));
}

/// One step of a random workload.
#[derive(Debug, Clone)]
enum Step {
    Write(Vec<(u64, usize, bool)>),
    Flush,
    Discard(u64, u64),
}

const SECTORS: u64 = 40;

fn step() -> impl Strategy<Value = Step> {
    let write = (0..SECTORS - 8, 1..9usize, prop::bool::weighted(0.1));
    prop_oneof![
        6 => prop::collection::vec(write, 1..4).prop_map(Step::Write),
        2 => Just(Step::Flush),
        1 => (0..SECTORS, 1..9u64).prop_map(|(s, n)| Step::Discard(s, n)),
    ]
}

proptest! {
    /// At every point each sector holds one of the values that a plain model allows: the durable
    /// one, or any newer; and both extremes are right.
    #[test]
    fn crashes_agree_with_a_model(steps in prop::collection::vec(step(), 1..40), seed: u64, skip in 0..200usize) {
        let (base, dev) = recorder(SECTORS);
        // Per sector: the values since the last durable one, that one first. Batches do not
        // overlap themselves.
        let mut model: BTreeMap<u64, Vec<u8>> = (0..SECTORS).map(|s| (s, vec![0])).collect();
        // The model after each step, by the position in the log.
        let mut points = vec![(0, model.clone())];
        let mut value = 0u8;
        for step in &steps {
            match step {
                Step::Write(ranges) => {
                    let mut used = BTreeSet::new();
                    let ranges: Vec<_> = ranges
                        .iter()
                        .filter(|(s, n, _)| (*s..*s + *n as u64).all(|s| used.insert(s)))
                        .map(|(s, n, fua)| {
                            value = value % 250 + 1;
                            (*s, *n, *fua, vec![value; *n * SECTOR as usize])
                        })
                        .collect();
                    let writes: Vec<_> = ranges
                        .iter()
                        .map(|(s, _, fua, data)| Write { fua: *fua, ..Write::new(s * SECTOR, data) })
                        .collect();
                    dev.write_batch(&writes).unwrap();
                    for (s, n, fua, data) in &ranges {
                        for s in *s..*s + *n as u64 {
                            let values = model.get_mut(&s).unwrap();
                            if *fua {
                                values.clear();
                            }
                            values.push(data[0]);
                        }
                    }
                }
                Step::Flush => {
                    dev.flush().unwrap();
                    for values in model.values_mut() {
                        values.drain(..values.len() - 1);
                    }
                }
                Step::Discard(s, n) => {
                    let end = (s + n).min(SECTORS);
                    dev.discard(s * SECTOR..end * SECTOR).unwrap();
                    for s in *s..end {
                        model.get_mut(&s).unwrap().push(0);
                    }
                }
            }
            points.push((dev.position(), model.clone()));
        }
        let whole = dev.inner().fork();
        let log = dev.take_log();
        let mut replay = Replay::new(&base, &log);
        let mut rng = stetfs_block::suite::Rng::new(seed);
        for (position, model) in points.iter().skip(skip % points.len()) {
            replay.advance_to(*position);
            let oldest: Vec<u8> = model.values().map(|v| v[0]).collect();
            let newest: Vec<u8> = model.values().map(|v| v[v.len() - 1]).collect();
            prop_assert_eq!(heads(&replay.only_durable()), oldest);
            prop_assert_eq!(heads(&replay.everything()), newest);
            let some = replay.crash(|_| rng.below(2) == 0);
            for (at, (head, values)) in heads(&some).iter().zip(model.values()).enumerate() {
                prop_assert!(values.contains(head), "sector {} holds {}, not one of {:?}", at, head, values);
            }
            // Whole sectors, never mixtures.
            for sector in some.to_vec().chunks(SECTOR as usize) {
                prop_assert!(sector.iter().all(|b| *b == sector[0]));
            }
        }
        prop_assert_eq!(replay.everything().differences(&whole), vec![]);
    }
}

/// The crash explorer needs thousands of states a minute.
#[test]
fn states_are_cheap() {
    let base = MemDevice::from_image(&vec![3; 64 << 20]);
    let dev = Recorder::new(base.fork());
    for i in 0..200u64 {
        dev.write((i * 7919 % 16_000) * 4096, &[i as u8; 4096])
            .unwrap();
    }
    let log = dev.take_log();
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(log.len());
    let begun = std::time::Instant::now();
    let mut rng = stetfs_block::suite::Rng::new(1);
    for _ in 0..200 {
        let state = replay.crash(|_| rng.below(2) == 0);
        assert!(state.differences(&base).len() <= 200);
    }
    let each = begun.elapsed() / 200;
    println!("{each:?} per state");
    assert!(
        each < std::time::Duration::from_millis(30),
        "{each:?} per state"
    );
}
