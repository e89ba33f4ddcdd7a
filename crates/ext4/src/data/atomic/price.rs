//! What the commit of a group takes, as numbers.

use std::collections::BTreeSet;
use std::ops::Add;

/// What changes take, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Blocks that change, but for those that allocations change.
    pub(super) blocks: u64,
    /// Allocations of data.
    pub(super) allocations: u64,
    /// Clusters for data.
    pub(super) clusters: u64,
    /// Of what was written early, blocks that the file did not have before.
    pub(super) grown: u64,
    /// Blocks that maps may take for themselves.
    pub(super) nodes: u64,
}

/// Of the blocks of a file that were written early, what the cost of the commit depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct EarlySum {
    /// Runs of them.
    pub(super) places: u64,
    /// Groups of the volume in which they lie, and those that they replace.
    pub(super) groups: BTreeSet<u32>,
    /// Blocks that the file did not have before.
    pub(super) grown: u64,
}

impl EarlySum {
    /// With others.
    pub(super) fn and(&self, mut other: EarlySum) -> EarlySum {
        other.groups.extend(&self.groups);
        EarlySum {
            places: self.places + other.places,
            grown: self.grown + other.grown,
            groups: other.groups,
        }
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            blocks: self.blocks.saturating_add(other.blocks),
            allocations: self.allocations.saturating_add(other.allocations),
            clusters: self.clusters.saturating_add(other.clusters),
            grown: self.grown.saturating_add(other.grown),
            nodes: self.nodes.saturating_add(other.nodes),
        }
    }
}

impl Cost {
    /// Clusters that the owners of the files have more then, at most.
    pub(super) fn charged(&self) -> u64 {
        self.clusters.saturating_add(self.grown)
    }

    /// Clusters of the volume to be promised.
    pub(super) fn space(&self) -> u64 {
        self.clusters.saturating_add(self.nodes)
    }
}
