//! Crash states built from recorded regions, against the states that the promises allow.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use stetfs_block::{BlockDevice, MemDevice, Recorder};
use stetfs_nvm::{
    LINE, MemRegion, Region, RegionEvent, RegionLog, RegionRecorder, RegionReplay, What,
};

fn recorder(lines: u64) -> (MemRegion, RegionRecorder<MemRegion>) {
    let base = MemRegion::new(lines * LINE);
    let region = RegionRecorder::new(base.fork());
    (base, region)
}

/// All states that a crash at this point can leave, by trying every combination.
fn states(replay: &RegionReplay<'_>) -> BTreeSet<Vec<u8>> {
    let pending = replay.pending();
    let count: usize = pending.iter().map(|line| line.stores + 1).product();
    assert!(count < 10_000);
    (0..count)
        .map(|mut n| {
            let arrived = |line: &stetfs_nvm::PendingLine| {
                let mine = n % (line.stores + 1);
                n /= line.stores + 1;
                mine
            };
            replay.crash(arrived).to_vec()
        })
        .collect()
}

/// The words at these offsets, of each state.
fn words<const N: usize>(replay: &RegionReplay<'_>, at: [usize; N]) -> BTreeSet<[u8; N]> {
    let heads = |state: &Vec<u8>| at.map(|at| state[at]);
    states(replay).iter().map(heads).collect()
}

fn whole(log: &RegionLog, base: &MemRegion) -> RegionReplay<'static> {
    // A test's log may live on.
    let log: &'static RegionLog = Box::leak(Box::new(log.clone()));
    let mut replay = RegionReplay::new(base, log);
    replay.advance_to(usize::MAX);
    replay
}

/// The states after data and a flag in another line, with or without a flush and a fence between
/// them.
fn data_and_flag(flush: bool, fence: bool) -> BTreeSet<[u8; 2]> {
    let (base, region) = recorder(2);
    region.store(0, &[1; 8]).unwrap();
    if flush {
        region.flush(0..8).unwrap();
    }
    if fence {
        region.fence().unwrap();
    }
    region.store_u64(LINE, 1).unwrap();
    words(&whole(&region.log(), &base), [0, LINE as usize])
}

#[test]
fn without_flush_or_fence_the_flag_comes_before_the_data() {
    assert_eq!(data_and_flag(true, true), [[1, 0], [1, 1]].into());
    let torn = [[0, 0], [0, 1], [1, 0], [1, 1]];
    assert_eq!(data_and_flag(false, true), torn.into(), "no flush");
    assert_eq!(data_and_flag(true, false), torn.into(), "no fence");
    assert_eq!(data_and_flag(false, false), torn.into());
}

#[test]
fn words_of_a_line_arrive_in_their_order_and_lines_in_any() {
    let (base, region) = recorder(2);
    region.store_u64(16, 2).unwrap();
    region.store_u64(0, 1).unwrap();
    region.store_u64(8, 3).unwrap();
    region.store_u64(64, 4).unwrap();
    let line = [[0, 0, 0], [0, 0, 2], [1, 0, 2], [1, 3, 2]];
    let both = line
        .iter()
        .flat_map(|[a, b, c]| [[*a, *b, *c, 0], [*a, *b, *c, 4]]);
    let replay = whole(&region.log(), &base);
    assert_eq!(words(&replay, [0, 8, 16, 64]), both.collect());
    assert_eq!(replay.pending().len(), 2);
}

#[test]
fn a_store_tears_at_words() {
    let (base, region) = recorder(2);
    region.store(5, &[1; 70]).unwrap();
    let replay = whole(&region.log(), &base);
    let stores: Vec<_> = replay
        .pending()
        .iter()
        .map(|l| (l.offset, l.stores))
        .collect();
    assert_eq!(stores, [(0, 8), (64, 2)]);
    let torn = replay
        .crash(|line| if line.offset == 0 { 2 } else { 1 })
        .to_vec();
    let set: Vec<_> = (0..128).filter(|at| torn[*at] == 1).collect();
    assert_eq!(set, (5..16).chain(64..72).collect::<Vec<_>>());
}

#[test]
fn what_is_stored_after_a_flush_is_not_covered_by_it() {
    let (base, region) = recorder(1);
    region.store_u64(0, 1).unwrap();
    region.flush(0..8).unwrap();
    region.store_u64(0, 2).unwrap();
    region.fence().unwrap();
    let replay = whole(&region.log(), &base);
    assert_eq!(words(&replay, [0]), [[1], [2]].into());
    region.persist(0..1).unwrap();
    assert_eq!(words(&whole(&region.log(), &base), [0]), [[2]].into());
}

#[test]
fn a_fence_is_its_threads_own() {
    let (base, region) = recorder(1);
    region.store_u64(0, 1).unwrap();
    region.flush(0..8).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| region.fence().unwrap());
    });
    assert_eq!(words(&whole(&region.log(), &base), [0]), [[0], [1]].into());
    region.fence().unwrap();
    assert_eq!(words(&whole(&region.log(), &base), [0]), [[1]].into());
    // A flush covers the line, whichever thread stored to it.
    std::thread::scope(|s| {
        s.spawn(|| region.store_u64(0, 2).unwrap());
    });
    region.persist(0..8).unwrap();
    assert_eq!(words(&whole(&region.log(), &base), [0]), [[2]].into());
}

#[test]
fn the_first_states_are_special_and_all_are_repeatable() {
    let (base, region) = recorder(3);
    for at in [0, 8, 64, 128] {
        region.store_u64(at, 1).unwrap();
    }
    let replay = whole(&region.log(), &base);
    let heads = |n, seed| {
        let bytes = replay.state(seed, n).to_vec();
        [0, 8, 64, 128].map(|at: usize| bytes[at])
    };
    assert_eq!(replay.special_states(), 8);
    let special: Vec<_> = (0..8).map(|n| heads(n, 5)).collect();
    assert_eq!(special[..2], [[0; 4], [1; 4]]);
    assert_eq!(special[2..4], [[1, 1, 0, 0], [0, 0, 1, 1]]);
    assert_eq!(special[6..], [[0, 0, 0, 1], [1, 1, 1, 0]]);
    assert!((0..100).all(|n| heads(n, 5) == heads(n, 5)));
    assert!((8..100).any(|n| heads(n, 5) != heads(n, 6)));
    let mixed: BTreeSet<_> = (8..300).map(|n| heads(n, 5)).collect();
    assert_eq!(mixed.len(), 3 * 2 * 2, "every mixture comes");
}

/// One clock orders both logs: a crash cuts them at one moment.
#[test]
fn a_block_devices_record_is_the_clock() {
    let disk = Arc::new(Recorder::new(MemDevice::new(4096)));
    let clock = disk.clone();
    let region = RegionRecorder::beside(MemRegion::new(4096), move || clock.position() as u64);
    region.store_u64(0, 1).unwrap();
    disk.write(0, &[1; 512]).unwrap();
    region.persist(0..8).unwrap();
    region.mark("durable", 7);
    disk.flush().unwrap();
    region.store_u64(0, 2).unwrap();
    let log = region.take_log();
    let at: Vec<_> = log.events.iter().map(|event| event.at).collect();
    assert_eq!(at, [0, 2, 2, 2, 4]);
    // Before the write was done only the first store had happened.
    assert_eq!((log.position_at(1), log.position_at(2)), (1, 1));
    assert_eq!((log.position_at(3), log.position_at(5)), (4, 5));
}

/// A store is in the log before a disk write by a thread that saw the store.
#[test]
fn a_store_is_not_behind_its_consequences() {
    let seen = Arc::new(AtomicU64::new(0));
    let memory = Arc::new(MemRegion::new(64));
    let (shown, below) = (seen.clone(), memory.clone());
    let clock = move || {
        shown.store(below.load_u64(0).unwrap(), Ordering::Relaxed);
        0
    };
    let region = RegionRecorder::beside(memory, clock);
    region.store_u64(0, 1).unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 0, "the clock was read first");
}

const LINES: u64 = 4;

fn event() -> impl Strategy<Value = RegionEvent> {
    let store = (0..LINES * LINE - 1, 1..90usize, any::<u8>()).prop_map(|(offset, len, with)| {
        let len = len.min((LINES * LINE - offset) as usize);
        let data = (0..len).map(|n| with.wrapping_add(n as u8)).collect();
        What::Store { offset, data }
    });
    let what = prop_oneof![
        4 => store,
        3 => (0..LINES, 1..3u64).prop_map(|(n, len)| What::Flush { lines: n..(n + len).min(LINES) }),
        2 => Just(What::Fence),
    ];
    (0..3u32, what).prop_map(|(thread, what)| RegionEvent {
        at: 0,
        thread,
        what,
    })
}

/// The model: the successive contents of each line, and the first of them that a crash may leave.
#[derive(Clone)]
struct Model {
    contents: Vec<Vec<[u8; LINE as usize]>>,
    first: Vec<usize>,
    /// By thread: line and content.
    flushed: Vec<Vec<(usize, usize)>>,
}

impl Model {
    fn pass(&mut self, event: &RegionEvent) {
        let flushed = &mut self.flushed[event.thread as usize];
        match &event.what {
            What::Store { offset, data } => {
                // Byte by byte; a content is complete when the next byte is in another word or
                // there is none.
                for (n, byte) in (*offset as usize..).zip(data.iter()) {
                    let contents = &mut self.contents[n / LINE as usize];
                    let begins = n as u64 == *offset || n % 8 == 0;
                    if begins {
                        contents.push(*contents.last().unwrap());
                    }
                    contents.last_mut().unwrap()[n % LINE as usize] = *byte;
                }
            }
            What::Flush { lines } => flushed.extend(
                lines
                    .clone()
                    .map(|n| (n as usize, self.contents[n as usize].len() - 1)),
            ),
            What::Fence => {
                for (line, content) in flushed.drain(..) {
                    self.first[line] = self.first[line].max(content);
                }
            }
            What::Mark { .. } => {}
        }
    }
}

proptest! {
    /// At every point the pending lines match, line by line, exactly what a slow model allows.
    #[test]
    fn crashes_agree_with_a_model(events in prop::collection::vec(event(), 1..50), seed: u64) {
        let log = RegionLog { events };
        let base = MemRegion::new(LINES * LINE);
        let mut replay = RegionReplay::new(&base, &log);
        let mut model = Model {
            contents: vec![vec![[0; LINE as usize]]; LINES as usize],
            first: vec![0; LINES as usize],
            flushed: vec![Vec::new(); 3],
        };
        for (n, event) in log.events.iter().enumerate() {
            replay.advance_to(n + 1);
            model.pass(event);
            let allowed = |line: usize| &model.contents[line][model.first[line]..];
            let line_of = |state: &MemRegion, line: usize| {
                state.to_vec()[line * LINE as usize..][..LINE as usize].to_vec()
            };
            // Every prefix of a line's stores is one of the model's contents: none missing, none
            // too many.
            let pending = replay.pending();
            for line in 0..LINES as usize {
                let mine = pending.iter().find(|p| p.offset == line as u64 * LINE);
                let stores = mine.map_or(0, |p| p.stores);
                prop_assert_eq!(stores + 1, allowed(line).len());
                for (count, content) in allowed(line).iter().enumerate() {
                    let state = replay.crash(|p| if Some(p) == mine { count } else { 0 });
                    prop_assert_eq!(&line_of(&state, line), &content.to_vec());
                }
            }
            for n in 0..replay.special_states() + 4 {
                let state = replay.state(seed, n);
                for line in 0..LINES as usize {
                    let now = line_of(&state, line);
                    prop_assert!(allowed(line).iter().any(|c| c[..] == now[..]));
                }
            }
        }
    }
}
