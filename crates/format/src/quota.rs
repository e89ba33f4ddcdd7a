//! Quota files of a new volume: usage of the ids that own its directories.

use std::collections::BTreeMap;

use stetfs_ondisk::ext4::quota::{
    BLOCK, DEPTH, ENTRIES, Entry, Info, Leaf, QuotaKind, ROOT, entry_offset, index, set_reference,
};
use stetfs_ondisk::num::{count16, count32};

use crate::error::Result;

/// A grace time, seconds: seven days, as mke2fs sets it.
const GRACE: u32 = 7 * 24 * 3600;

/// The block of the only leaf.
const LEAF: u32 = ROOT + 1;

/// The usage of a new volume by id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage(BTreeMap<u32, Entry>);

impl Usage {
    /// Adds an inode of `id` with `space` bytes.
    pub(crate) fn add(&mut self, id: u32, space: u64) {
        let entry = self.0.entry(id).or_default();
        entry.id = id;
        entry.space += space;
        entry.inodes += 1;
    }

    /// Number of ids.
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The content of a quota file, whole blocks of [`BLOCK`] bytes.
///
/// # Errors
/// More ids than a leaf holds.
pub(crate) fn file(kind: QuotaKind, usage: &Usage) -> Result<Vec<u8>> {
    debug_assert!(usage.len() <= ENTRIES);
    let mut blocks = vec![vec![0; BLOCK]; 3];
    let mut nodes = BTreeMap::new();
    let mut leaf = vec![0; BLOCK];
    let head = Leaf {
        entries: count16(usage.len()),
        ..Leaf::default()
    };
    head.encode(&mut leaf)?;
    for (slot, (id, entry)) in usage.0.iter().enumerate() {
        if let Some(to) = leaf.get_mut(entry_offset(slot)..) {
            for (to, from) in to.iter_mut().zip(entry.encode()) {
                *to = from;
            }
        }
        let mut at = ROOT;
        for level in 0..DEPTH {
            let next = match level + 1 == DEPTH {
                true => LEAF,
                false => *nodes.entry((level, prefix(*id, level))).or_insert_with(|| {
                    blocks.push(vec![0; BLOCK]);
                    count32(blocks.len() - 1)
                }),
            };
            if let Some(block) = usize::try_from(at).ok().and_then(|at| blocks.get_mut(at)) {
                set_reference(block, index(*id, level), next)?;
            }
            at = next;
        }
    }
    let full = usage.len() == ENTRIES;
    let info = Info::new(GRACE, count32(blocks.len()), if full { 0 } else { LEAF });
    if let [header, _, place, ..] = &mut blocks[..] {
        info.begin(kind, header)?;
        *place = leaf;
    }
    Ok(blocks.concat())
}

/// The part of an id that leads to a block below `level`.
fn prefix(id: u32, level: usize) -> u32 {
    let bits = 8 * (DEPTH - 1 - level);
    id >> bits
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use stetfs_ondisk::ext4::quota::reference;

    fn find(file: &[u8], id: u32) -> Option<Entry> {
        let mut nr = ROOT;
        for level in 0..DEPTH {
            nr = reference(&file[nr as usize * BLOCK..], index(id, level));
            if nr == 0 {
                return None;
            }
        }
        let leaf = &file[nr as usize * BLOCK..][..BLOCK];
        let count = usize::from(Leaf::decode(leaf).unwrap().entries);
        let mut all = (0..count).filter_map(|slot| Entry::decode(&leaf[entry_offset(slot)..]));
        all.find(|entry| entry.id == id)
    }

    #[test]
    fn every_id_is_found() {
        let mut usage = Usage::default();
        let ids = [0, 1, 255, 256, 70_000, u32::MAX];
        for id in ids {
            usage.add(id, 4096);
            usage.add(id, 1024);
        }
        let file = file(QuotaKind::User, &usage).unwrap();
        let info = Info::decode(QuotaKind::User, &file).unwrap();
        assert_eq!(info.blocks as usize * BLOCK, file.len());
        for id in ids {
            let entry = find(&file, id).unwrap();
            assert_eq!((entry.space, entry.inodes), (5120, 2), "{id}");
        }
        assert_eq!(find(&file, 2), None);
    }
}
