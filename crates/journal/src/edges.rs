//! Edges between transactions, and which transactions are valid.
//!
//! A transaction depends on every older one of its lane, and on the transactions its edges name.
//! It is valid when it and all it depends on are durable. The same rule
//! serves the running engine and recovery.

use std::collections::HashMap;

use crate::engine::no_lane;
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, TxId};

/// For each lane, up to which sequence its transactions are valid.
///
/// `durable` are the durable transactions beyond `valid`, per lane in sequence order without gaps,
/// each with its edges. Returns the new valid front of each lane; it never falls below `valid`.
pub fn valid_fronts(
    valid: &HashMap<Lane, u64>,
    durable: &HashMap<Lane, Vec<(u64, CommitPoint)>>,
) -> HashMap<Lane, u64> {
    // Greatest fixpoint: assume all durable ones valid, then cut lanes back until nothing depends
    // on what is not there. All or nothing chains (cycles) stand or fall together this way.
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

/// The front of a lane among those of all.
///
/// # Errors
/// There is no such lane.
pub(crate) fn front(fronts: &HashMap<Lane, u64>, lane: Lane) -> Result<u64> {
    let front = fronts.get(&lane).copied();
    front.ok_or_else(|| no_lane(lane))
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
}
