//! Names of transactions: lanes, sequence numbers, commit points.

use smallvec::SmallVec;

/// An inode number, as ext4 counts them (from 1).
pub type Ino = u32;
/// A block number on the volume.
pub type BlockNr = u64;
/// A place in the one order of all commits over all lanes, drawn when a snapshot is taken. No
/// commit has 0, which stands for "before all".
pub type Stamp = u64;
/// A number of blocks that a handle may change.
pub type Credits = u32;

/// A neighbourhood: changes with the same number are likely to share blocks of metadata.
pub type Near = u32;

/// A journal lane: a log of its own with its own running transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lane(pub u16);

/// One transaction: the `seq`-th of its lane. jbd2's tid is the low half of `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxId {
    /// The lane.
    pub lane: Lane,
    /// Sequence in the lane, from 1; never reused while mounted.
    pub seq: u64,
}

/// The newest transaction per lane that something depends on. Merges; never shrinks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitPoint(SmallVec<[TxId; 1]>);

impl CommitPoint {
    /// Depends on nothing.
    pub fn none() -> CommitPoint {
        CommitPoint::default()
    }

    /// Raises the point to include `tx`.
    pub fn add(&mut self, tx: TxId) {
        match self.0.iter_mut().find(|t| t.lane == tx.lane) {
            Some(mine) => mine.seq = mine.seq.max(tx.seq),
            None => self.0.push(tx),
        }
    }

    /// Raises the point to include all of `other`.
    pub fn merge(&mut self, other: &CommitPoint) {
        for tx in &other.0 {
            self.add(*tx);
        }
    }

    /// The newest transaction of `lane` in the point.
    pub fn seq(&self, lane: Lane) -> Option<u64> {
        self.0.iter().find(|t| t.lane == lane).map(|t| t.seq)
    }

    /// The transactions, one per lane.
    pub fn iter(&self) -> impl Iterator<Item = TxId> + '_ {
        self.0.iter().copied()
    }

    /// Whether it depends on nothing.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<TxId> for CommitPoint {
    fn from(tx: TxId) -> CommitPoint {
        let mut point = CommitPoint::none();
        point.add(tx);
        point
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_merge_to_the_newest_of_each_lane() {
        let tx = |lane, seq| TxId {
            lane: Lane(lane),
            seq,
        };
        let mut a = CommitPoint::from(tx(0, 5));
        a.merge(&CommitPoint::from(tx(1, 2)));
        a.merge(&CommitPoint::from(tx(0, 3)));
        assert_eq!(
            (a.seq(Lane(0)), a.seq(Lane(1)), a.seq(Lane(2))),
            (Some(5), Some(2), None)
        );
    }
}
