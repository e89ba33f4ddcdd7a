//! The recovery figure of the Z-Journal paper (USENIX ATC 2021, fig. 5), rebuilt with the real log.
//! Its notation is "(lane, transaction)".
use std::sync::Arc;

use crate::common::lanes::{LONG, Volume, committing, tx};
use crate::common::{BS, LOG, block};
use stetfs_block::BlockDevice;
use stetfs_journal::{Canary, CommitPoint, Log, RecordKind, RecoveryOptions, TxId};

/// The figure's blocks 0 and 1, one that (1,8) and (2,7) both change, and one that each of them
/// changes alone.
const BLOCK_0: u64 = 400;
const BLOCK_1: u64 = 401;
const SHARED: u64 = 402;
const OF_1_8: u64 = 403;
const OF_2_7: u64 = 404;

/// The dependency between (1,8) and (2,7): edges in both directions, or a one-directional edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    BothWays,
    OneWay,
}

/// The complete log just before the crash.
fn log(chain: Chain) -> Volume {
    let v = Volume::new();
    // Earlier transactions have left the log.
    for (lane, count) in [(0, 2), (1, 6), (2, 5)] {
        for value in 0..count {
            commit(&v, &v.put(lane, 410 + u64::from(lane), value));
        }
    }
    v.journal.checkpoint().unwrap();
    commit(&v, &v.put(0, BLOCK_0, 3));
    commit(&v, &v.put(1, BLOCK_1, 17));
    commit(&v, &v.put(0, BLOCK_0, 4));
    commit(&v, &v.put(2, BLOCK_1, 26));
    v.put(2, OF_2_7, 27);
    let of_2 = v.put(2, SHARED, 27);
    let held = (chain == Chain::OneWay).then(|| {
        let held = v.journal.hold("snapshots-taken");
        let done = committing(&v, of_2.clone());
        held.await_one();
        (held, done)
    });
    v.put(1, BLOCK_0, 18);
    v.put(1, OF_1_8, 18);
    let of_1 = v.put(1, SHARED, 18);
    if let Some((held, done)) = held {
        drop(held);
        done.recv_timeout(LONG).unwrap().unwrap();
    }
    commit(&v, &of_1);
    v
}

fn commit(v: &Volume, point: &CommitPoint) {
    v.journal.commit(point).unwrap();
}

fn is(device: &Arc<dyn BlockDevice>) -> [u8; 5] {
    [BLOCK_0, BLOCK_1, SHARED, OF_1_8, OF_2_7].map(|nr| block(&**device, nr)[0])
}

/// The log has the figure's transactions, and the edges between them.
#[test]
fn the_log_is_that_of_the_figure() {
    for chain in [Chain::BothWays, Chain::OneWay] {
        let v = log(chain);
        let device: Arc<dyn BlockDevice> = Arc::new(v.device.fork());
        let found: Vec<(TxId, Vec<TxId>)> = (0..3)
            .flat_map(|lane| v.scan(&device, lane))
            .map(|tx| (tx.id, tx.edges.iter().collect()))
            .collect();
        let back = match chain {
            Chain::BothWays => vec![tx(1, 8)],
            Chain::OneWay => vec![],
        };
        let expected = [
            (tx(0, 3), vec![]),
            (tx(0, 4), vec![]),
            (tx(1, 7), vec![]),
            (tx(1, 8), vec![tx(2, 7)]),
            (tx(2, 6), vec![]),
            (tx(2, 7), back),
        ];
        assert_eq!(found, expected, "{chain:?}");
        let (device, found) = v.cut();
        assert_eq!(is(&device), [18, 26, 18, 18, 27], "{:?}", found.report);
    }
}

/// (1,8) depends on (2,7), which is missing, so it is dropped. Block 0 comes from (0,4), block 1
/// from (2,6).
#[test]
fn the_figure_recovers_as_the_paper_says() {
    for chain in [Chain::BothWays, Chain::OneWay] {
        let v = log(chain);
        let device = v.without(tx(2, 7));
        let report = v
            .recover(&device, RecoveryOptions::default())
            .unwrap()
            .report;
        assert_eq!(is(&device), [4, 26, 0, 0, 0], "{chain:?}: {report:?}");
        assert_eq!((report.transactions, report.invalid), (4, 1), "{report:?}");
        let dropped: Vec<_> = report.dropped.iter().map(|d| (d.tx, d.needs)).collect();
        assert_eq!(dropped, [(tx(1, 8), tx(2, 7))]);
        // A recovery that ignores edges is detected.
        let canary = Canary {
            ignore_edges: true,
            ..Canary::default()
        };
        let device = v.without(tx(2, 7));
        let how = RecoveryOptions {
            canary,
            ..RecoveryOptions::default()
        };
        v.recover(&device, how).unwrap();
        assert_eq!(is(&device)[0], 18, "what ignores edges replays (1,8)");
    }
}

/// The other transaction is missing. With edges in both directions (2,7) is dropped, too; with a
/// one-directional edge it stays.
#[test]
fn an_edge_holds_back_only_what_it_points_from() {
    for (chain, of_2_7) in [(Chain::BothWays, 0), (Chain::OneWay, 27)] {
        let v = log(chain);
        let device = v.without(tx(1, 8));
        let found = v.recover(&device, RecoveryOptions::default()).unwrap();
        assert_eq!(
            is(&device),
            [4, 26, of_2_7, 0, of_2_7],
            "{:?}",
            found.report
        );
        assert_eq!(found.report.invalid, u64::from(chain == Chain::BothWays));
    }
}

/// Damage in one lane is an error if a later frame proves that the content was durable. Salvage
/// leaves out the rest of that lane, and in other lanes only what depends on it.
#[test]
fn salvage_takes_of_other_lanes_only_what_depends_on_the_damage() {
    let v = log(Chain::BothWays);
    let device = v.without(tx(2, 6));
    let refused = v.recover(&device, RecoveryOptions::default());
    assert!(refused.is_err(), "(2,6) was durable once");
    let how = RecoveryOptions {
        salvage: true,
        ..RecoveryOptions::default()
    };
    let report = v.recover(&device, how).unwrap().report;
    assert_eq!(is(&device), [4, 17, 0, 0, 0], "{report:?}");
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let dropped: Vec<_> = report.dropped.iter().map(|d| (d.tx, d.needs)).collect();
    assert_eq!(dropped, [(tx(1, 8), tx(2, 7))]);
}

/// The output of `stetfs dump journal` for the figure: the walk finds (1,8) and its edge; the
/// verdict says why it is dropped, and that only the newest images go home.
#[test]
fn the_verdict_is_what_recovery_does() {
    let v = log(Chain::BothWays);
    let device = v.without(tx(2, 7));
    let log = Log::open(device.clone(), BS as u32, &[(0, LOG)], Canary::default()).unwrap();
    let verdict = log.judge().unwrap();
    let home: Vec<(TxId, u64)> = verdict.home.into_iter().collect();
    let expected = [(tx(0, 3), 0), (tx(0, 4), 1), (tx(1, 7), 0), (tx(2, 6), 1)];
    assert_eq!(home, expected);
    let dropped: Vec<_> = verdict.dropped.iter().map(|d| (d.tx, d.needs)).collect();
    assert_eq!(dropped, [(tx(1, 8), tx(2, 7))]);
    let mut chained = Vec::new();
    let mut lanes = Vec::new();
    log.walk(&mut |record| {
        match record.kind {
            RecordKind::Frame { edges, .. } if !edges.is_empty() => {
                chained.push((record.lane, record.tid, edges));
            }
            RecordKind::End(_) => lanes.push(record.lane),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(chained, [(Some(1), 8, vec![(2, 7)])]);
    assert_eq!(lanes, [Some(0), Some(1), Some(2)]);
    let done = v.recover(&device, RecoveryOptions::default()).unwrap();
    assert_eq!(done.report.blocks, 2);
}
