//! SHARE through every device that passes it on, and after crashes.
use std::collections::BTreeSet;
use std::sync::Arc;

use stetfs_block::{
    BlockDevice, BlockError, Event, FailStop, Fault, FaultInjector, Joined, MemDevice, Op, Overlay,
    Recorder, Replay, SharePair, Watched, suite,
};

const PAGE: u64 = 4096;

fn pair(dst: u64, src: u64, pages: u64) -> SharePair {
    SharePair {
        dst: dst * PAGE,
        src: src * PAGE,
        len: pages * PAGE,
    }
}

fn mem() -> MemDevice {
    MemDevice::new(64 * PAGE).with_share(16, true)
}

/// The first byte of each page.
fn firsts(dev: &dyn BlockDevice, pages: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut byte = [0];
    let mut first = |page: u64| {
        dev.read(page * PAGE, &mut byte).unwrap();
        byte[0]
    };
    pages.into_iter().map(&mut first).collect()
}

fn fill(dev: &dyn BlockDevice, page: u64, value: u8) {
    dev.write(page * PAGE, &[value; PAGE as usize]).unwrap();
}

#[test]
fn every_device_that_stands_for_another_passes_it_on() {
    let twice = Joined::new(Arc::new(mem()), Arc::new(mem()));
    let base = twice.base() / PAGE;
    let devices: [Box<dyn BlockDevice>; 9] = [
        Box::new(mem()),
        Box::new(Arc::new(mem())),
        Box::new(Recorder::new(mem())),
        Box::new(FaultInjector::new(mem())),
        Box::new(Overlay::new(Arc::new(mem()))),
        Box::new(twice),
        Box::new(FailStop::new(mem())),
        Box::new(Watched::new(mem(), "disk", Arc::default())),
        Box::new(Recorder::new(FaultInjector::new(Overlay::new(Arc::new(
            mem(),
        ))))),
    ];
    for device in &devices {
        suite::shares(device, 5);
    }
    // Sharing also works on the second of two joined devices, but not across them.
    let joined = &devices[5];
    fill(joined, base + 1, 9);
    let share = joined.share().unwrap();
    share.share_batch(&[pair(base, base + 1, 1)]).unwrap();
    assert_eq!(firsts(joined, [base]), [9]);
    let across = share.share_batch(&[pair(0, base, 1)]);
    assert!(matches!(across, Err(BlockError::ShareAcross { .. })));
    let plain: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(64 * PAGE));
    for device in [
        Box::new(Recorder::new(plain.clone())) as Box<dyn BlockDevice>,
        Box::new(FaultInjector::new(plain.clone())),
        Box::new(Overlay::new(plain.clone())),
        Box::new(FailStop::new(plain.clone())),
        Box::new(Watched::new(plain.clone(), "disk", Arc::default())),
        Box::new(Joined::new(plain.clone(), Arc::new(mem()))),
    ] {
        assert!(device.share().is_none(), "not where the other cannot");
    }
}

/// A recorded device: pages 0 to 3 hold 1 to 4, and pages 10 to 13 hold 11 to 14, all durable; then
/// two batches are shared and one page is written.
fn recorded(atomic: bool) -> (MemDevice, stetfs_block::Log) {
    let device = MemDevice::new(64 * PAGE).with_share(16, atomic);
    for page in 0..4 {
        fill(&device, page, page as u8 + 1);
        fill(&device, page + 10, page as u8 + 11);
    }
    let base = device.fork();
    let recorder = Recorder::new(device);
    let share = recorder.share().unwrap();
    share
        .share_batch(&[pair(0, 10, 2), pair(3, 12, 1)])
        .unwrap();
    // The second batch shares content that the first one left.
    fill(&recorder, 10, 77);
    share.share_batch(&[pair(20, 0, 2)]).unwrap();
    recorder.flush().unwrap();
    assert_eq!(
        firsts(&recorder, [0, 1, 3, 10, 20, 21]),
        [11, 12, 13, 77, 11, 12]
    );
    let log = recorder.take_log();
    (base, log)
}

/// All contents of some pages that crashes after `events` can leave.
fn outcomes(
    base: &MemDevice,
    log: &stetfs_block::Log,
    events: usize,
    pages: &[u64],
) -> BTreeSet<Vec<u8>> {
    let mut replay = Replay::new(base, log);
    replay.advance_to(events);
    let pending = replay.pending();
    // Whole pages: the sectors of a write arrive together.
    let mut places: Vec<_> = pending.iter().map(|s| (s.event, s.offset / PAGE)).collect();
    places.dedup();
    let each = |mask: usize| {
        let device = replay.crash(|s| {
            let at = places.iter().position(|p| *p == (s.event, s.offset / PAGE));
            at.is_some_and(|at| mask >> at & 1 == 1)
        });
        firsts(&device, pages.iter().copied())
    };
    (0..1 << places.len()).map(each).collect()
}

#[test]
fn a_batch_is_torn_where_atomicity_is_not_promised() {
    let (base, log) = recorded(true);
    // Position 2: the event and its end.
    assert_eq!(
        outcomes(&base, &log, 2, &[0, 1, 3]),
        BTreeSet::from([vec![1, 2, 4], vec![11, 12, 13]])
    );
    let torn = outcomes(&recorded(false).0, &recorded(false).1, 2, &[0, 1, 3]);
    assert_eq!(torn.len(), 8);
    assert!(torn.contains(&vec![1, 12, 4]) && torn.contains(&vec![11, 2, 13]));
    // A shared page has its source's content at that time, whatever else arrives.
    for seen in outcomes(&base, &log, 6, &[20, 21, 10]) {
        let [a, b, source] = seen[..] else {
            panic!("{seen:?}")
        };
        assert!(
            [(0, 0), (11, 12)].contains(&(a, b)) && [11, 77].contains(&source),
            "{seen:?}"
        );
    }
    // A flush makes all of it durable.
    let end = outcomes(&base, &log, log.len(), &[0, 1, 3, 10, 20, 21]);
    assert_eq!(end, BTreeSet::from([vec![11, 12, 13, 77, 11, 12]]));
    let shares = log
        .events
        .iter()
        .filter(|e| matches!(e, Event::Share { .. }))
        .count();
    assert_eq!(shares, 2);
}

#[test]
fn a_later_write_hides_what_was_shared_before() {
    let recorder = Recorder::new(mem());
    fill(&recorder, 5, 5);
    recorder.flush().unwrap();
    recorder
        .share()
        .unwrap()
        .share_batch(&[pair(0, 5, 1)])
        .unwrap();
    let write = [8; PAGE as usize];
    recorder
        .write_batch(&[stetfs_block::Write::new(0, &write).fua()])
        .unwrap();
    let log = recorder.take_log();
    let empty = MemDevice::new(64 * PAGE);
    assert_eq!(
        outcomes(&empty, &log, log.len(), &[0]),
        BTreeSet::from([vec![8]])
    );
    let mut replay = Replay::new(&empty, &log);
    replay.advance_to(log.len());
    assert!(replay.pending().is_empty());
}

#[test]
fn faults_hit_what_is_shared() {
    let device = FaultInjector::new(mem());
    (0..4).for_each(|page| fill(&device, page, page as u8 + 1));
    let share = |pairs: &[SharePair]| device.share().unwrap().share_batch(pairs);
    device.add(Fault::fail(Op::Share, libc::EIO).once());
    assert_eq!(share(&[pair(10, 0, 2)]).unwrap_err().errno(), libc::EIO);
    assert_eq!(firsts(&device, [10, 11]), [0, 0]);
    device.set(vec![Fault::lose(Op::Share).within(11 * PAGE..12 * PAGE)]);
    share(&[pair(10, 0, 2)]).unwrap();
    assert_eq!(firsts(&device, [10, 11]), [0, 0]);
    share(&[pair(12, 0, 2)]).unwrap();
    assert_eq!(firsts(&device, [12, 13]), [1, 2]);
    device.set(vec![Fault::tear_share(|dst, _| dst == 21 * PAGE, None)]);
    share(&[pair(20, 0, 3)]).unwrap();
    assert_eq!(firsts(&device, [20, 21, 22]), [0, 2, 0]);
    device.clear();
    device.power_off_after(1);
    share(&[pair(30, 0, 2)]).unwrap();
    assert!(share(&[pair(32, 0, 2)]).is_err());
    assert_eq!(
        (firsts_below(&device), device.shares_seen()),
        (vec![1, 2, 0], 6)
    );
}

fn firsts_below(device: &FaultInjector<MemDevice>) -> Vec<u8> {
    firsts(device.inner(), [30, 31, 32])
}
