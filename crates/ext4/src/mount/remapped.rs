//! `Remapped`: file blocks that later records map to other places.
//!
//! A record has the content of blocks that were mapped when it was written. An interrupted recovery
//! may have come to a later record, which maps them elsewhere or not at all. Then only the later
//! record determines their content (replay.A5).

use std::collections::HashMap;
use std::ops::Range;

use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView};
use stetfs_ondisk::stet::record::FileRecord;

use crate::types::Ino;

/// The changes of maps in the records of a log.
#[derive(Default)]
pub(super) struct Remapped {
    /// For each file, the indexes of the records that map some of its blocks, with these file
    /// blocks.
    ranges: HashMap<Ino, Vec<(usize, Range<u64>)>>,
}

/// Whether the record has its file inline.
fn is_inline(record: &FileRecord) -> bool {
    let view = InodeView::new(&record.file.inode[..]);
    view.is_ok_and(|view| view.flags().contains(InodeFlags::INLINE_DATA))
}

impl Remapped {
    /// The changes of maps in these records, in their order.
    pub(super) fn of<'r>(records: impl Iterator<Item = &'r FileRecord>) -> Remapped {
        let mut remapped = Remapped::default();
        for (at, record) in records.enumerate() {
            let of_file = remapped.ranges.entry(record.file.ino).or_default();
            if is_inline(record) {
                of_file.push((at, 0..u64::MAX));
            }
            of_file.extend(record.ranges.iter().map(|range| {
                let first = u64::from(range.first);
                (at, first..first + u64::from(range.count))
            }));
        }
        remapped
    }

    /// Whether a record behind number `at` maps this block of a file.
    pub(super) fn is_said_later(&self, at: usize, ino: Ino, lblk: u32) -> bool {
        let ranges = self.ranges.get(&ino).into_iter().flatten();
        let mut later = ranges.filter(|(by, _)| *by > at);
        later.any(|(_, range)| range.contains(&u64::from(lblk)))
    }
}
