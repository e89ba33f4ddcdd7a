//! The tree of a quota file: which entry an id has, and room for new ones. Entries are never taken away: the kernel does that
//! for those without usage and limits when it next has to do with them.

use std::collections::HashSet;

use stetfs_ondisk::ext4::quota::{
    BLOCK, DEPTH, ENTRIES, ENTRY_LEN, Entry, Info, Leaf, REFERENCES, ROOT, entry_offset, index,
    reference, set_reference,
};

use crate::error::{FsError, Result};

/// A block of a quota file.
pub(super) type Bytes = [u8; BLOCK];

/// Most ids that a quota file may have: all of them are in memory while the volume is open for writing.
pub(super) const IDS_MAX: usize = 1 << 20;

/// The blocks of a quota file.
pub(super) trait Blocks {
    fn read(&self, nr: u32) -> Result<Bytes>;
    fn write(&mut self, nr: u32, bytes: &Bytes) -> Result<()>;
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// The leaf.
    pub(super) block: u32,
    /// Where in it, bytes.
    pub(super) offset: usize,
}

fn corrupt(nr: u32, detail: &str) -> FsError {
    FsError::corrupt("quota file", 0, format!("its block {nr}: {detail}"))
}

fn slots(leaf: &Bytes) -> impl Iterator<Item = (usize, Option<Entry>)> {
    (0..ENTRIES).map(|slot| {
        let offset = entry_offset(slot);
        let bytes = leaf.get(offset..offset + ENTRY_LEN).unwrap_or_default();
        (offset, Entry::decode(bytes))
    })
}

/// Visits every entry, in the order of ids.
///
/// # Errors
/// References to what they must not lead to, twice to the same node, or to a leaf without the entry; more than [`IDS_MAX`].
pub(super) fn scan(
    blocks: &impl Blocks,
    info: &Info,
    mut visit: impl FnMut(Place, Entry) -> Result<()>,
) -> Result<()> {
    let mut nodes = HashSet::from([ROOT]);
    let mut leaves = HashSet::new();
    let mut count = 0;
    // Nodes whose references are being looked at: bytes of the id so far, block, next reference.
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
        let id = *prefix << 8 | at as u32;
        if path.len() < DEPTH {
            if !nodes.insert(to) {
                return Err(corrupt(to, "two references lead to this node"));
            }
            path.push((id, blocks.read(to)?, 0));
            continue;
        }
        leaves.insert(to);
        let leaf = blocks.read(to)?;
        let found = slots(&leaf).find(|(_, e)| e.is_some_and(|e| e.id == id));
        let Some((offset, Some(entry))) = found else {
            return Err(corrupt(to, &format!("no entry for {id} in this leaf")));
        };
        count += 1;
        if count > IDS_MAX {
            return Err(FsError::Unsupported(format!(
                "a quota file with more than {IDS_MAX} ids"
            )));
        }
        visit(Place { block: to, offset }, entry)?;
    }
    match nodes.intersection(&leaves).next() {
        Some(both) => Err(corrupt(*both, "a node, and a leaf")),
        None => Ok(()),
    }
}

/// Blocks that [`insert`] of `id` may append to the file.
pub(super) fn missing(blocks: &impl Blocks, info: &Info, id: u32) -> Result<u32> {
    let mut nr = ROOT;
    for level in 0..DEPTH - 1 {
        nr = reference(&blocks.read(nr)?, index(id, level));
        if nr == 0 {
            return Ok((DEPTH - level) as u32);
        }
        info.check_block(nr)?;
    }
    Ok(u32::from(info.free_entry == 0))
}

/// Adds an entry that is not there yet. The file has room for [`missing`] more blocks. The caller stores `info`.
///
/// # Errors
/// Lists of free blocks that contradict themselves; the device's. The file may be half changed then.
pub(super) fn insert(blocks: &mut impl Blocks, info: &mut Info, entry: &Entry) -> Result<Place> {
    let place = place_for(blocks, info)?;
    let mut leaf = blocks.read(place.block)?;
    if let Some(to) = leaf.get_mut(place.offset..place.offset + ENTRY_LEN) {
        to.copy_from_slice(&entry.encode());
    }
    blocks.write(place.block, &leaf)?;
    let mut nr = ROOT;
    for level in 0..DEPTH {
        let at = index(entry.id, level);
        let mut node = blocks.read(nr)?;
        let mut below = reference(&node, at);
        if below == 0 {
            below = match level {
                _ if level + 1 == DEPTH => place.block,
                _ => take_block(blocks, info)?,
            };
            set_reference(&mut node, at, below)?;
            blocks.write(nr, &node)?;
        } else if level + 1 == DEPTH {
            return Err(corrupt(nr, &format!("{} has an entry already", entry.id)));
        }
        info.check_block(below)?;
        nr = below;
    }
    Ok(place)
}

/// A free place in a leaf, which counts it as used.
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
        let mut found = BTreeMap::new();
        scan(file, info, |place, entry| {
            found.insert(entry.id, place);
            Ok(())
        })?;
        Ok(found)
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

        /// Any damage gives an error or an answer, and that soon.
        #[test]
        fn damage_is_an_error(at in 8usize..BLOCK * 12, to: [u8; 4], blocks in 2u32..40) {
            let (mut file, mut info) = empty();
            for id in [0, 1, 256, 70_000] {
                insert(&mut file, &mut info, &entry(id)).unwrap();
            }
            let (block, offset) = (at / BLOCK % file.0.len(), (at % BLOCK).min(BLOCK - 4));
            file.0[block][offset..offset + 4].copy_from_slice(&to);
            info.blocks = blocks;
            let _ = all(&file, &info);
            file.0.resize(64, [0; BLOCK]);
            let _ = missing(&file, &info, 5).and_then(|_| insert(&mut file, &mut info, &entry(5)));
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
        // Leaves with room are a list; the full one leaves it, and the other becomes the first.
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
        info.free_entry = node;
        let full = info.free_entry;
        file.0[full as usize][8] = 14;
        assert!(insert(&mut file, &mut info, &entry(10)).is_err());
    }
}
