//! A tree with the longest free run of every group. It finds a group with room without a look at
//! all of them.

use stetfs_sync::timed::atomic::{AtomicU32, Ordering};

/// Maxima over halves, quarters and so on of a list of numbers: finds the next number of at least a
/// given size in logarithmic time. Each number has one writer at a time (under its group's lock).
/// Readers need no lock, and may see a slightly outdated maximum.
#[derive(Debug)]
pub(super) struct Summary {
    /// Node `i` is the larger of nodes `2i` and `2i + 1`; the second half of the nodes are the
    /// numbers.
    nodes: Box<[AtomicU32]>,
}

impl Summary {
    pub(super) fn new(numbers: impl ExactSizeIterator<Item = u32>) -> Summary {
        let leaves = numbers.len().next_power_of_two();
        let mut nodes = vec![0; 2 * leaves];
        for (node, number) in nodes.iter_mut().skip(leaves).zip(numbers) {
            *node = number;
        }
        for i in (1..leaves).rev() {
            nodes[i] = nodes[2 * i].max(nodes[2 * i + 1]);
        }
        Summary {
            nodes: nodes.into_iter().map(AtomicU32::new).collect(),
        }
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn node(&self, i: usize) -> u32 {
        // Sequentially consistent, here and in `set`: the thread that stores a maximum last has
        // seen every number below it.
        self.nodes.get(i).map_or(0, |n| n.load(Ordering::SeqCst))
    }

    /// Number `i`.
    pub(super) fn get(&self, i: u32) -> u32 {
        self.node(self.leaves() + i as usize)
    }

    /// The largest number.
    pub(super) fn max(&self) -> u32 {
        self.node(1)
    }

    /// Sets number `i`.
    pub(super) fn set(&self, i: u32, number: u32) {
        let mut at = self.leaves() + i as usize;
        let Some(leaf) = self.nodes.get(at) else {
            return;
        };
        leaf.store(number, Ordering::SeqCst);
        while at > 1 {
            at /= 2;
            let larger = || self.node(2 * at).max(self.node(2 * at + 1));
            let mut max = larger();
            if self.node(at) == max {
                return;
            }
            // Each writer checks again after its store: if a change below overtook it, it corrects
            // the maximum.
            loop {
                self.nodes[at].store(max, Ordering::SeqCst);
                let now = larger();
                if now == max {
                    break;
                }
                max = now;
            }
        }
    }

    /// The first index from `from` on whose number is at least `need` (above 0).
    pub(super) fn next(&self, from: u32, need: u32) -> Option<u32> {
        let leaves = self.leaves();
        let mut at = leaves.checked_add(from as usize)?;
        if at >= self.nodes.len() {
            return None;
        }
        loop {
            if self.node(at) >= need {
                // Descend to the first such number, as long as the maxima are right.
                while at < leaves {
                    at *= 2;
                    if self.node(at) < need {
                        at += 1;
                    }
                }
                if self.node(at) >= need {
                    return u32::try_from(at - leaves).ok();
                }
            }
            // Continue with the next subtree on the right.
            while at % 2 == 1 {
                at /= 2;
            }
            if at == 0 {
                return None;
            }
            at += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_what_a_list_has(
            start in proptest::collection::vec(0u32..20, 1..40),
            sets in proptest::collection::vec((0usize..40, 0u32..20), 0..40), need in 1u32..20,
        ) {
            let mut list = start;
            let tree = Summary::new(list.iter().copied());
            for (i, number) in sets {
                let i = i % list.len();
                list[i] = number;
                tree.set(i as u32, number);
                prop_assert_eq!(tree.max(), *list.iter().max().unwrap());
            }
            for from in 0..list.len() + 2 {
                let found = (from..list.len()).find(|i| list[*i] >= need);
                prop_assert_eq!(tree.next(from as u32, need), found.map(|i| i as u32));
            }
        }
    }

    #[test]
    fn threads_leave_true_maxima() {
        const EACH: u32 = 5;
        for seed in 0..20 {
            let tree = Arc::new(Summary::new(vec![0; 4 * EACH as usize].into_iter()));
            std::thread::scope(|scope| {
                for t in 0..4 {
                    let tree = &tree;
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(seed * 4 + t);
                        for _ in 0..2000 {
                            let i = t as u32 + 4 * rng.u32(..EACH);
                            tree.set(i, rng.u32(..50));
                        }
                    });
                }
            });
            let list: Vec<u32> = (0..4 * EACH).map(|i| tree.get(i)).collect();
            assert_eq!(tree.max(), *list.iter().max().unwrap());
            for need in 1..50 {
                let found = list.iter().position(|n| *n >= need).map(|i| i as u32);
                assert_eq!(tree.next(0, need), found, "{list:?}");
            }
        }
    }
}
