//! Promises of blocks to records of files, for a recovery (`redo`).

use std::collections::VecDeque;

use stetfs_journal::Stamp;

/// The promises to live records, in the order in which they were written.
#[derive(Default)]
pub(super) struct RedoPromises {
    /// The stamp of each record, and its promise in clusters.
    by_record: VecDeque<(Stamp, u64)>,
    /// Their sum, clusters.
    sum: u64,
}

impl RedoPromises {
    /// Adds the promise of a record.
    pub(super) fn keep(&mut self, record: Stamp, clusters: u64) {
        self.by_record.push_back((record, clusters));
        self.sum += clusters;
    }

    /// Ends the promises of the oldest records that are no longer alive. Returns their clusters.
    pub(super) fn end(&mut self, is_alive: impl Fn(Stamp) -> bool) -> u64 {
        let mut ended = 0;
        // Syncs of two files may arrive in either order, with stamps that are close together.
        while let Some((record, clusters)) = self.by_record.front()
            && !is_alive(*record)
        {
            ended += clusters;
            self.by_record.pop_front();
        }
        self.sum -= ended;
        ended
    }

    /// Sum of the promises, clusters.
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_end_with_their_records() {
        let mut promises = RedoPromises::default();
        (1..=4).for_each(|record| promises.keep(record, 10 * record));
        assert_eq!(promises.sum(), 100);
        assert_eq!(promises.end(|record| record > 2), 30);
        assert_eq!(promises.end(|record| record > 2), 0);
        assert_eq!((promises.sum(), promises.by_record.len()), (70, 2));
    }
}
