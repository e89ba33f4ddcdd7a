//! Edges between transactions, and the rule for which transactions are valid.
//!
//! A transaction depends on every older one of its lane, and on the transactions that its edges
//! name. It is valid when it and all it depends on are durable. The running engine and recovery
//! share this rule.

use std::collections::HashMap;
use std::fmt;

use crate::error::{Result, no_lane};
use crate::ids::{CommitPoint, Lane, TxId};

/// The new valid front of each lane: the sequence number up to which its transactions are valid.
///
/// `valid` has the fronts so far; no front falls below them. `durable` has the durable transactions
/// beyond them, per lane in sequence order without gaps, each with its edges.
pub fn valid_fronts(
    valid: &HashMap<Lane, u64>,
    durable: &HashMap<Lane, Vec<(u64, CommitPoint)>>,
) -> HashMap<Lane, u64> {
    // Greatest fixpoint: assume that all durable transactions are valid, then cut lanes back until
    // no transaction depends on a missing one. Transactions in a cycle stand or fall together this
    // way.
    let mut front: HashMap<Lane, u64> = valid.clone();
    for (lane, txs) in durable {
        if let Some((last, _)) = txs.last() {
            let entry = front.entry(*lane).or_insert(0);
            *entry = (*entry).max(*last);
        }
    }
    loop {
        let mut cut = false;
        for (lane, txs) in durable {
            for (seq, edges) in txs {
                if front.get(lane).is_none_or(|f| seq > f) {
                    break;
                }
                let holds = edges
                    .iter()
                    .all(|TxId { lane: l, seq: s }| front.get(&l).is_some_and(|f| *f >= s));
                if !holds {
                    front.insert(*lane, seq - 1);
                    cut = true;
                    break;
                }
            }
        }
        if !cut {
            return front;
        }
    }
}

/// The valid front of `lane`.
///
/// # Errors
/// `Aborted` if there is no such lane.
pub(crate) fn front(fronts: &HashMap<Lane, u64>, lane: Lane) -> Result<u64> {
    let front = fronts.get(&lane).copied();
    front.ok_or_else(|| no_lane(lane))
}

/// A durable transaction that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The transaction.
    pub tx: TxId,
    /// A transaction that it depends on and that is missing, or not valid either.
    pub needs: TxId,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dropped { tx, needs } = self;
        let ((seq, lane), (needs, of)) = ((tx.seq, tx.lane.0), (needs.seq, needs.lane.0));
        write!(
            f,
            "transaction {seq} of lane {lane}, which depends on transaction {needs} of lane {of}"
        )
    }
}

/// The durable transactions beyond the valid `fronts`, by lane and sequence.
pub(crate) fn dropped(
    fronts: &HashMap<Lane, u64>,
    durable: &HashMap<Lane, Vec<(u64, CommitPoint)>>,
) -> Vec<Dropped> {
    let front = |lane: Lane| fronts.get(&lane).copied().unwrap_or(0);
    let is_durable = |tx: &TxId| {
        let txs = durable.get(&tx.lane).map_or(&[][..], Vec::as_slice);
        tx.seq <= front(tx.lane) || txs.iter().any(|(seq, _)| *seq == tx.seq)
    };
    let mut all = Vec::new();
    for (lane, txs) in durable {
        let valid = front(*lane);
        for (seq, edges) in txs.iter().filter(|(seq, _)| *seq > valid) {
            let tx = TxId {
                lane: *lane,
                seq: *seq,
            };
            let before = TxId {
                lane: *lane,
                seq: seq - 1,
            };
            let missing = edges.iter().find(|edge| !is_durable(edge));
            let unmet = || edges.iter().find(|edge| front(edge.lane) < edge.seq);
            let after_invalid = (before.seq > valid).then_some(before);
            let needs = missing.or(after_invalid).or_else(unmet).unwrap_or(before);
            all.push(Dropped { tx, needs });
        }
    }
    all.sort_unstable_by_key(|dropped| dropped.tx);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(txs: &[(u16, u64)]) -> CommitPoint {
        let mut p = CommitPoint::none();
        for (lane, seq) in txs {
            p.add(TxId {
                lane: Lane(*lane),
                seq: *seq,
            });
        }
        p
    }

    fn fronts(durable: &[(u16, &[(u64, CommitPoint)])]) -> Vec<u64> {
        let map = durable
            .iter()
            .map(|(l, v)| (Lane(*l), v.to_vec()))
            .collect();
        let out = valid_fronts(&HashMap::new(), &map);
        durable
            .iter()
            .map(|(l, _)| out.get(&Lane(*l)).copied().unwrap_or(0))
            .collect()
    }

    #[test]
    fn one_lane_is_valid_as_far_as_it_is_durable() {
        assert_eq!(fronts(&[(0, &[(1, point(&[])), (2, point(&[]))])]), [2]);
    }

    #[test]
    fn a_chained_pair_counts_only_whole() {
        let a = (1, point(&[(1, 1)]));
        let b = (1, point(&[(0, 1)]));
        assert_eq!(
            fronts(&[(0, std::slice::from_ref(&a)), (1, std::slice::from_ref(&b))]),
            [1, 1]
        );
        assert_eq!(fronts(&[(0, &[a]), (1, &[])]), [0, 0]);
    }

    #[test]
    fn what_comes_after_an_invalid_one_is_invalid_too() {
        let lane0 = [(1, point(&[])), (2, point(&[(1, 9)])), (3, point(&[]))];
        assert_eq!(
            fronts(&[(0, &lane0), (1, &[(1, point(&[(0, 3)]))])]),
            [1, 0]
        );
    }

    #[test]
    fn what_was_valid_before_stays() {
        let valid = HashMap::from([(Lane(1), 9)]);
        let durable = HashMap::from([(Lane(0), vec![(1, point(&[(1, 9)]))])]);
        assert_eq!(valid_fronts(&valid, &durable)[&Lane(0)], 1);
    }

    #[test]
    fn what_does_not_count_says_what_it_lacks() {
        let tx = |lane, seq| TxId {
            lane: Lane(lane),
            seq,
        };
        let durable = HashMap::from([
            (Lane(0), vec![(1, point(&[])), (2, point(&[(1, 8)]))]),
            (
                Lane(1),
                vec![(8, point(&[(2, 7), (0, 2)])), (9, point(&[]))],
            ),
            (Lane(2), vec![(6, point(&[]))]),
        ]);
        let valid = HashMap::from([(Lane(1), 7), (Lane(2), 5)]);
        let fronts = valid_fronts(&valid, &durable);
        let found: Vec<(TxId, TxId)> = dropped(&fronts, &durable)
            .iter()
            .map(|d| (d.tx, d.needs))
            .collect();
        let lacks = [
            (tx(0, 2), tx(1, 8)),
            (tx(1, 8), tx(2, 7)),
            (tx(1, 9), tx(1, 8)),
        ];
        assert_eq!(found, lacks);
        assert_eq!(
            dropped(&fronts, &durable)[1].to_string(),
            "transaction 8 of lane 1, which depends on transaction 7 of lane 2"
        );
    }
}
