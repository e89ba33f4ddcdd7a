//! The tree of a quota file: it leads from ids to entries and has room for new ones. Entries are
//! never removed here. The kernel removes those without usage and limits when it next handles them.

use std::collections::{HashMap, HashSet};

use stetfs_ondisk::ext4::quota::{
    BLOCK, DEPTH, ENTRIES, ENTRY_LEN, Entry, Info, Leaf, REFERENCES, ROOT, entry_offset, index,
    reference, set_reference,
};

use crate::error::{FsError, Result};
use stetfs_ondisk::num::count32;

/// A block of a quota file.
pub(crate) type Bytes = [u8; BLOCK];

/// The most ids of a quota file: all of them are in memory while the volume is open for writing.
pub(crate) const IDS_MAX: usize = 1 << 20;

/// The blocks of a quota file.
pub(crate) trait Blocks {
    fn read(&self, nr: u32) -> Result<Bytes>;
    fn write(&mut self, nr: u32, bytes: &Bytes) -> Result<()>;
}

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The leaf block.
    pub(crate) block: u32,
    /// Byte offset in the leaf.
    pub(crate) offset: usize,
}

fn corrupt(nr: u32, detail: &str) -> FsError {
    FsError::corrupt("quota file", 0, format!("its block {nr}: {detail}"))
}

// Every slot lies in its leaf.
const _: () = assert!(entry_offset(ENTRIES) <= BLOCK);

fn slots(leaf: &Bytes) -> impl Iterator<Item = (usize, Option<Entry>)> {
    (0..ENTRIES).map(|slot| {
        let offset = entry_offset(slot);
        (offset, Entry::decode(&leaf[offset..offset + ENTRY_LEN]))
    })
}

/// The content of a quota file.
#[derive(Default)]
pub(crate) struct Found {
    /// All entries of leaves that the tree refers to.
    pub(crate) entries: HashMap<u32, (Place, Entry)>,
    /// Ids of entries without a reference. A crash without a journal leaves such entries, and
    /// e2fsck counts them.
    pub(crate) loose: HashSet<u32>,
}

/// Reads the tree. References to a leaf that has no entry for the id are ignored, as in e2fsck.
/// Lists of free blocks that contradict themselves are removed from `info`.
///
/// # Errors
/// References outside the file; two references to one node; two entries for an id; more than
/// [`IDS_MAX`] ids.
pub(crate) fn scan(blocks: &impl Blocks, info: &mut Info) -> Result<Found> {
    let mut nodes = HashSet::from([ROOT]);
    let mut referred = Vec::new();
    // Nodes under examination: bytes of the id so far, block, next reference.
    let mut path = vec![(0u32, blocks.read(ROOT)?, 0usize)];
    while let Some((prefix, node, next)) = path.last_mut() {
        if *next == REFERENCES {
            path.pop();
            continue;
        }
        let (at, to) = (*next, reference(node, *next));
        *next += 1;
        if to == 0 {
            continue;
        }
        info.check_block(to)?;
        let id = *prefix << 8 | count32(at);
        if path.len() == DEPTH {
            referred.push((id, to));
            check_count(referred.len())?;
        } else if nodes.insert(to) {
            path.push((id, blocks.read(to)?, 0));
        } else {
            return Err(corrupt(to, "two references lead to this node"));
        }
    }
    let leaves: HashSet<u32> = referred.iter().map(|(_, leaf)| *leaf).collect();
    if let Some(both) = nodes.intersection(&leaves).next() {
        return Err(corrupt(*both, "it is used as a node and as a leaf"));
    }
    let referred: HashSet<(u32, u32)> = referred.into_iter().collect();
    let mut found = Found::default();
    for leaf in &leaves {
        for (offset, entry) in slots(&blocks.read(*leaf)?) {
            let Some(entry) = entry else {
                continue;
            };
            let place = Place {
                block: *leaf,
                offset,
            };
            if found.entries.insert(entry.id, (place, entry)).is_some() {
                return Err(corrupt(*leaf, &format!("{} has two entries", entry.id)));
            }
            if !referred.contains(&(entry.id, *leaf)) {
                found.loose.insert(entry.id);
            }
            check_count(found.entries.len())?;
        }
    }
    nodes.extend(leaves.iter());
    if !room_is_right(blocks, info, &leaves)? {
        info.free_entry = 0;
    }
    if !free_blocks_are_right(blocks, info, &nodes)? {
        info.free_block = 0;
    }
    Ok(found)
}

fn check_count(count: usize) -> Result<()> {
    if count > IDS_MAX {
        let text = format!("a quota file with more than {IDS_MAX} ids");
        return Err(FsError::Unsupported(text));
    }
    Ok(())
}

/// Whether the list of leaves with room is valid.
fn room_is_right(blocks: &impl Blocks, info: &Info, leaves: &HashSet<u32>) -> Result<bool> {
    let (mut prev, mut nr) = (0, info.free_entry);
    let mut seen = HashSet::new();
    while nr != 0 {
        if !leaves.contains(&nr) || !seen.insert(nr) {
            return Ok(false);
        }
        let bytes = blocks.read(nr)?;
        let used = slots(&bytes).filter(|(_, e)| e.is_some()).count();
        match Leaf::decode(&bytes) {
            Ok(leaf)
                if leaf.prev == prev && usize::from(leaf.entries) == used && used < ENTRIES =>
            {
                (prev, nr) = (nr, leaf.next);
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether the list of free blocks is valid, and none of them is in use.
fn free_blocks_are_right(blocks: &impl Blocks, info: &Info, used: &HashSet<u32>) -> Result<bool> {
    let mut nr = info.free_block;
    let mut seen = HashSet::new();
    while nr != 0 {
        let next = match info.check_block(nr) {
            Ok(()) => Leaf::decode(&blocks.read(nr)?),
            Err(e) => Err(e),
        };
        match next {
            Ok(free) if !used.contains(&nr) && seen.insert(nr) => nr = free.next,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Blocks that [`insert`] of `id` may append to the file.
pub(crate) fn missing(blocks: &impl Blocks, info: &Info, id: u32) -> Result<u32> {
    let mut nr = ROOT;
    for level in 0..DEPTH - 1 {
        nr = reference(&blocks.read(nr)?, index(id, level));
        if nr == 0 {
            return Ok(count32(DEPTH - level));
        }
        info.check_block(nr)?;
    }
    Ok(u32::from(info.free_entry == 0))
}

/// Adds an entry for an id that has none. The file has room for [`missing`] more blocks. The caller
/// stores `info`.
///
/// # Errors
/// Lists of free blocks that contradict themselves; errors of the device. Then the file may be half
/// changed.
pub(crate) fn insert(blocks: &mut impl Blocks, info: &mut Info, entry: &Entry) -> Result<Place> {
    let place = place_for(blocks, info)?;
    let mut leaf = blocks.read(place.block)?;
    if let Some(to) = leaf.get_mut(place.offset..place.offset + ENTRY_LEN) {
        to.copy_from_slice(&entry.encode());
    }
    blocks.write(place.block, &leaf)?;
    link(blocks, info, entry.id, place.block)?;
    Ok(place)
}

/// Makes the tree lead from an id to a leaf. The file has room for [`missing`] more blocks. The
/// caller stores `info`.
///
/// # Errors
/// As for [`insert`].
pub(crate) fn link(blocks: &mut impl Blocks, info: &mut Info, id: u32, leaf: u32) -> Result<()> {
    let mut nr = ROOT;
    for level in 0..DEPTH {
        let at = index(id, level);
        let mut node = blocks.read(nr)?;
        let mut below = reference(&node, at);
        if level + 1 == DEPTH || below == 0 {
            below = match level {
                _ if level + 1 == DEPTH => leaf,
                _ => take_block(blocks, info)?,
            };
            set_reference(&mut node, at, below)?;
            blocks.write(nr, &node)?;
        }
        info.check_block(below)?;
        nr = below;
    }
    Ok(())
}

/// A free slot in a leaf, which counts it as used.
fn place_for(blocks: &mut impl Blocks, info: &mut Info) -> Result<Place> {
    if info.free_entry == 0 {
        info.free_entry = take_block(blocks, info)?;
    }
    let nr = info.free_entry;
    info.check_block(nr)?;
    let mut bytes = blocks.read(nr)?;
    let mut leaf = Leaf::decode(&bytes)?;
    let free = slots(&bytes).find(|(_, e)| e.is_none());
    let Some((offset, _)) = free.filter(|_| usize::from(leaf.entries) < ENTRIES) else {
        return Err(corrupt(nr, "a full leaf among those with room"));
    };
    leaf.entries += 1;
    if usize::from(leaf.entries) == ENTRIES {
        info.free_entry = leaf.next;
        if leaf.next != 0 {
            info.check_block(leaf.next)?;
            let mut after = blocks.read(leaf.next)?;
            let mut next = Leaf::decode(&after)?;
            next.prev = 0;
            next.encode(&mut after)?;
            blocks.write(leaf.next, &after)?;
        }
        (leaf.next, leaf.prev) = (0, 0);
    }
    leaf.encode(&mut bytes)?;
    blocks.write(nr, &bytes)?;
    Ok(Place { block: nr, offset })
}

/// A free block, zeroed: the first of the list, or a new one.
fn take_block(blocks: &mut impl Blocks, info: &mut Info) -> Result<u32> {
    let nr = if info.free_block == 0 {
        let nr = info.blocks;
        info.blocks = nr
            .checked_add(1)
            .ok_or_else(|| corrupt(nr, "no more blocks can be added"))?;
        nr
    } else {
        let nr = info.free_block;
        info.check_block(nr)?;
        let next = Leaf::decode(&blocks.read(nr)?)?.next;
        if next != 0 {
            info.check_block(next)?;
        }
        info.free_block = next;
        nr
    };
    blocks.write(nr, &[0; BLOCK])?;
    Ok(nr)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use stetfs_ondisk::ext4::quota::QuotaKind;

    use super::*;

    #[derive(Clone)]
    struct File(Vec<Bytes>);

    impl Blocks for File {
        fn read(&self, nr: u32) -> Result<Bytes> {
            let block = self.0.get(nr as usize);
            block.copied().ok_or_else(|| corrupt(nr, "outside"))
        }
        fn write(&mut self, nr: u32, bytes: &Bytes) -> Result<()> {
            let nr = nr as usize;
            assert!(nr <= self.0.len(), "blocks are added one after the other");
            self.0.resize(self.0.len().max(nr + 1), [0; BLOCK]);
            self.0[nr] = *bytes;
            Ok(())
        }
    }

    /// An empty file, as mke2fs makes it.
    fn empty() -> (File, Info) {
        let mut head = [0; BLOCK];
        head[..4].copy_from_slice(&QuotaKind::User.magic().to_le_bytes());
        head[4] = 1;
        head[20] = 2;
        let info = Info::decode(QuotaKind::User, &head).unwrap();
        (File(vec![head, [0; BLOCK]]), info)
    }

    fn all(file: &File, info: &Info) -> Result<BTreeMap<u32, Place>> {
        let found = scan(file, &mut info.clone())?;
        assert!(found.loose.is_empty());
        Ok(found.entries.iter().map(|(id, e)| (*id, e.0)).collect())
    }

    fn entry(id: u32) -> Entry {
        Entry {
            id,
            ..Entry::default()
        }
    }

    proptest! {
        #[test]
        fn what_was_inserted_is_found(ids in prop::collection::hash_set(prop_oneof![0u32..2000, any::<u32>()], 1..120)) {
            let (mut file, mut info) = empty();
            let mut places = BTreeMap::new();
            for id in ids {
                let (before, most) = (info.blocks, missing(&file, &info, id).unwrap());
                places.insert(id, insert(&mut file, &mut info, &entry(id)).unwrap());
                prop_assert!(info.blocks - before <= most);
                prop_assert_eq!(info.blocks as usize, file.0.len());
            }
            prop_assert_eq!(&all(&file, &info).unwrap(), &places);
            let distinct: HashSet<_> = places.values().collect();
            prop_assert_eq!(distinct.len(), places.len());
        }

        /// Any damage leads to an error or a result, and soon.
        #[test]
        fn damage_is_an_error(at in 8usize..BLOCK * 12, to: [u8; 4], blocks in 2u32..40) {
            let (mut file, mut info) = empty();
            for id in [0, 1, 256, 70_000] {
                insert(&mut file, &mut info, &entry(id)).unwrap();
            }
            let (block, offset) = (at / BLOCK % file.0.len(), (at % BLOCK).min(BLOCK - 4));
            file.0[block][offset..offset + 4].copy_from_slice(&to);
            info.blocks = blocks;
            file.0.resize(64, [0; BLOCK]);
            let Ok(found) = scan(&file, &mut info) else {
                return Ok(());
            };
            // A file that a scan accepts takes new entries, and is valid afterwards.
            for id in (5..40).filter(|id| !found.entries.contains_key(id)) {
                file.0.truncate(info.blocks as usize);
                insert(&mut file, &mut info, &entry(id)).unwrap();
            }
            for id in found.loose {
                link(&mut file, &mut info, id, found.entries[&id].0.block).unwrap();
            }
            let now = all(&file, &info).unwrap();
            prop_assert!((5..40).all(|id| now.contains_key(&id)));
        }
    }

    #[test]
    fn free_blocks_and_leaves_with_room_are_used_first() {
        let (mut file, mut info) = empty();
        for id in 0..28 {
            insert(&mut file, &mut info, &entry(id)).unwrap();
        }
        // Header, root, three nodes, two full leaves.
        assert_eq!((info.blocks, info.free_entry), (7, 0));
        // Two free blocks, of which one comes back as a leaf.
        file.0.extend([[0; BLOCK]; 2]);
        Leaf {
            next: 8,
            ..Leaf::default()
        }
        .encode(&mut file.0[7])
        .unwrap();
        (info.blocks, info.free_block) = (9, 7);
        let place = insert(&mut file, &mut info, &entry(28)).unwrap();
        assert_eq!(
            (place.block, info.free_block, info.free_entry, info.blocks),
            (7, 8, 7, 9)
        );
        // Leaves with room form a list; the full one leaves it, and the other becomes the first.
        let mut second = Leaf::decode(&file.0[6]).unwrap();
        second.prev = 7;
        second.entries = 13;
        second.encode(&mut file.0[6]).unwrap();
        file.0[6][entry_offset(3)..entry_offset(4)].fill(0);
        let mut first = Leaf::decode(&file.0[7]).unwrap();
        first.next = 6;
        first.encode(&mut file.0[7]).unwrap();
        for id in 29..42 {
            assert_eq!(insert(&mut file, &mut info, &entry(id)).unwrap().block, 7);
        }
        assert_eq!(info.free_entry, 6);
        assert_eq!(Leaf::decode(&file.0[6]).unwrap().prev, 0);
        let place = insert(&mut file, &mut info, &entry(42)).unwrap();
        assert_eq!((place.block, place.offset), (6, entry_offset(3)));
        assert_eq!(info.free_entry, 0);
    }

    #[test]
    fn loops_and_wild_references_end() {
        let (mut file, mut info) = empty();
        insert(&mut file, &mut info, &entry(9)).unwrap();
        let node = reference(&file.0[1], 0);
        for to in [ROOT, node, 0xffff_ffff, info.blocks] {
            let mut bad = file.clone();
            set_reference(&mut bad.0[1], 200, to).unwrap();
            assert!(all(&bad, &info).is_err(), "{to}");
            let mut bad = file.clone();
            set_reference(&mut bad.0[node as usize], 7, to).unwrap();
            assert!(all(&bad, &info).is_err(), "{to}");
        }
        // Lists that contradict themselves are not used.
        let (leaf, mut bad) = (info.free_entry, file.clone());
        bad.0[leaf as usize][0] = leaf as u8;
        info.free_block = node;
        let mut healed = info;
        assert_eq!(scan(&bad, &mut healed).unwrap().entries.len(), 1);
        assert_eq!((healed.free_entry, healed.free_block), (0, 0));
        // A reference without an entry is ignored; an entry without a reference is found.
        info.free_block = 0;
        let lost = index(9, DEPTH - 1);
        let last = info.blocks - 1;
        set_reference(&mut file.0[last as usize], lost, 0).unwrap();
        set_reference(&mut file.0[last as usize], lost + 1, leaf).unwrap();
        let found = scan(&file, &mut info).unwrap();
        assert_eq!((found.entries.len(), found.loose), (1, HashSet::from([9])));
        link(&mut file, &mut info, 9, leaf).unwrap();
        insert(&mut file, &mut info, &entry(10)).unwrap();
        assert_eq!(all(&file, &info).unwrap().len(), 2);
    }
}
