//! One node of an extent tree, read and changed in place.

use super::{
    ENTRY_LEN, Extent, Index, LOGICAL_END, MAGIC, MAX_DEPTH, RawHeader, RawIndex, WHAT, max_entries,
};
use crate::bytes::{put, too_short};
use crate::error::{Result, corrupt};
use crate::num::count16;
use core::mem::offset_of;
use core::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// The properties of a node that follow from its parent and the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// Depth, one less than the parent's; `None` for the root.
    pub depth: Option<u16>,
    /// Logical blocks that the node may map: from its own index entry to the next.
    pub logical: Range<u64>,
    /// Blocks that it may point to
    /// ([`Geometry::valid_blocks`](crate::ext4::superblock::Geometry::valid_blocks)).
    pub blocks: Range<u64>,
}

impl Expect {
    /// The properties of the root in an inode.
    #[must_use]
    pub fn root(blocks: Range<u64>) -> Self {
        Expect {
            depth: None,
            logical: 0..LOGICAL_END,
            blocks,
        }
    }
}

/// An extent tree node in a byte container: `i_block`, or a whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<B> {
    bytes: B,
    /// `eh_max`, checked to fit.
    max: u16,
}

/// A borrowed node.
pub type NodeRef<'a> = Node<&'a [u8]>;
/// A mutably borrowed node.
pub type NodeMut<'a> = Node<&'a mut [u8]>;

impl<B: AsRef<[u8]>> Node<B> {
    /// Wraps a node's bytes after a check of its header: magic, depth, and entries that fit.
    pub fn new(bytes: B) -> Result<Self> {
        let b = bytes.as_ref();
        let (h, _) =
            RawHeader::read_from_prefix(b).map_err(|_| too_short(WHAT, b.len(), ENTRY_LEN))?;
        let (entries, max, depth) = (h.entries.get(), h.max.get(), h.depth.get());
        if h.magic.get() != MAGIC {
            return Err(corrupt!(WHAT, "magic {:#06x}", h.magic.get()));
        }
        if depth > MAX_DEPTH {
            return Err(corrupt!(WHAT, "depth {depth}"));
        }
        if max == 0 || max > max_entries(b.len()) || entries > max {
            return Err(corrupt!(
                WHAT,
                "{entries} of {max} entries in {} bytes",
                b.len()
            ));
        }
        if depth > 0 && entries == 0 {
            return Err(corrupt!(WHAT, "no entries at depth {depth}"));
        }
        Ok(Node { bytes, max })
    }

    /// Checks all entries: sorted, disjoint, not empty, in the expected logical and physical
    /// ranges, and the depth.
    pub fn check(&self, expect: &Expect) -> Result<()> {
        if expect.depth.is_some_and(|d| d != self.depth()) {
            return Err(corrupt!(
                WHAT,
                "depth {} instead of {:?}",
                self.depth(),
                expect.depth
            ));
        }
        let mut free_from = expect.logical.start;
        if self.is_leaf() {
            for e in self.extents() {
                let end = e.start.checked_add(u64::from(e.len));
                let inside =
                    e.start >= expect.blocks.start && end.is_some_and(|n| n <= expect.blocks.end);
                let ordered = u64::from(e.block) >= free_from
                    && e.logical_end() <= expect.logical.end.min(LOGICAL_END);
                if e.len == 0 || !inside || !ordered {
                    return Err(corrupt!(
                        WHAT,
                        "{e:?} where logical blocks {free_from}..{} are left",
                        expect.logical.end
                    ));
                }
                free_from = e.logical_end();
            }
        } else {
            for i in self.indexes() {
                let ordered =
                    u64::from(i.block) >= free_from && u64::from(i.block) < expect.logical.end;
                if !ordered || !expect.blocks.contains(&i.child) {
                    return Err(corrupt!(
                        WHAT,
                        "{i:?} where logical blocks {free_from}..{} are left",
                        expect.logical.end
                    ));
                }
                free_from = u64::from(i.block) + 1;
            }
        }
        Ok(())
    }

    fn u16_at(&self, off: usize) -> u16 {
        crate::bytes::le16(self.bytes.as_ref(), off).unwrap_or(0)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// `eh_depth`: levels below this node.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.u16_at(offset_of!(RawHeader, depth))
    }

    /// Whether the entries are extents.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.depth() == 0
    }

    /// `eh_entries`.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.u16_at(offset_of!(RawHeader, entries)).min(self.max))
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `eh_max`: maximum number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        usize::from(self.max)
    }

    /// Whether no further entry fits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity()
    }

    /// Bytes of entry `i`, if there is one.
    fn entry(&self, i: usize) -> Option<&[u8]> {
        let at = offset(i);
        (i < self.len())
            .then(|| self.bytes().get(at..at + ENTRY_LEN))
            .flatten()
    }

    /// First logical block of entry `i` of either kind.
    #[must_use]
    pub fn first_block(&self, i: usize) -> Option<u32> {
        crate::bytes::le32(self.entry(i)?, 0)
    }

    /// Extent `i` of a leaf.
    #[must_use]
    pub fn extent(&self, i: usize) -> Option<Extent> {
        Extent::from_entry(self.entry(i).filter(|_| self.is_leaf())?)
    }

    /// Index entry `i` of a node that is no leaf.
    #[must_use]
    pub fn index(&self, i: usize) -> Option<Index> {
        let raw = self.entry(i).filter(|_| !self.is_leaf())?;
        RawIndex::read_from_bytes(raw)
            .ok()
            .map(|r| Index::decode(&r))
    }

    /// All extents of a leaf; nothing in other nodes.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        (0..self.len()).map_while(|i| self.extent(i))
    }

    /// All index entries; nothing in a leaf.
    pub fn indexes(&self) -> impl Iterator<Item = Index> + '_ {
        (0..self.len()).map_while(|i| self.index(i))
    }

    /// The last entry that starts at or before logical block `block`: the one that maps it, if it
    /// is mapped.
    #[must_use]
    pub fn find(&self, block: u32) -> Option<usize> {
        let (mut lo, mut hi) = (0, self.len());
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if self.first_block(mid).is_some_and(|b| b <= block) {
                lo = mid + 1
            } else {
                hi = mid
            }
        }
        lo.checked_sub(1)
    }

    /// The expected properties of the child of index entry `i`, if `expect` holds for this node.
    #[must_use]
    pub fn expect_child(&self, i: usize, expect: &Expect) -> Option<Expect> {
        let start = u64::from(self.index(i)?.block);
        let end = self
            .first_block(i + 1)
            .map_or(expect.logical.end, u64::from);
        Some(Expect {
            depth: self.depth().checked_sub(1),
            logical: start..end,
            blocks: expect.blocks.clone(),
        })
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Node<B> {
    /// Makes the bytes an empty node of `depth` with room for as many entries as fit. The remaining
    /// bytes become zero. At a depth above 0 entries must be added before the node is read.
    pub fn init(mut bytes: B, depth: u16) -> Result<Self> {
        let b = bytes.as_mut();
        let max = max_entries(b.len());
        if max == 0 || depth > MAX_DEPTH {
            return Err(corrupt!(
                WHAT,
                "depth {depth} in {} bytes cannot be stored",
                b.len()
            ));
        }
        b.fill(0);
        let header = RawHeader {
            magic: MAGIC.into(),
            entries: 0.into(),
            max: max.into(),
            depth: depth.into(),
            generation: 0.into(),
        };
        put(b, 0, header.as_bytes()).ok_or_else(|| too_short(WHAT, b.len(), ENTRY_LEN))?;
        Ok(Node { bytes, max })
    }

    fn set_len(&mut self, len: usize) {
        let stored = put(
            self.bytes.as_mut(),
            offset_of!(RawHeader, entries),
            &count16(len).to_le_bytes(),
        );
        debug_assert!(stored.is_some() && len <= self.capacity());
    }

    /// Makes room for `count` entries at `at`, and includes them in the count.
    fn open_gap(&mut self, at: usize, count: usize) -> Result<()> {
        let len = self.len();
        if at > len || count > self.capacity() - len {
            return Err(corrupt!(
                WHAT,
                "no room for {count} entries at {at}: {len} of {}",
                self.capacity()
            ));
        }
        // In bounds: both ends lie within `max` entries, which fit.
        self.bytes
            .as_mut()
            .copy_within(offset(at)..offset(len), offset(at + count));
        self.set_len(len + count);
        Ok(())
    }

    fn store(&mut self, i: usize, raw: &[u8]) -> Result<()> {
        let slot = (i < self.len())
            .then(|| put(self.bytes.as_mut(), offset(i), raw))
            .flatten();
        slot.ok_or_else(|| corrupt!(WHAT, "entry {i} of {}", self.len()))
    }

    /// Replaces extent `i`. Fails if there is none, in an index node, or for a value that cannot be
    /// stored.
    pub fn set_extent(&mut self, i: usize, e: &Extent) -> Result<()> {
        self.need_leaf(true)?;
        self.store(i, e.encode()?.as_bytes())
    }

    /// Inserts an extent at position `i`; the caller keeps the order. Also fails when the node is
    /// full.
    pub fn insert_extent(&mut self, i: usize, e: &Extent) -> Result<()> {
        self.need_leaf(true)?;
        let raw = e.encode()?;
        self.open_gap(i, 1)?;
        self.store(i, raw.as_bytes())
    }

    /// Replaces index entry `i`. Fails if there is none, in a leaf, or for a value that cannot be
    /// stored.
    pub fn set_index(&mut self, i: usize, x: &Index) -> Result<()> {
        self.need_leaf(false)?;
        self.store(i, x.encode()?.as_bytes())
    }

    /// Inserts an index entry at position `i`; the caller keeps the order. Also fails when the node
    /// is full.
    pub fn insert_index(&mut self, i: usize, x: &Index) -> Result<()> {
        self.need_leaf(false)?;
        let raw = x.encode()?;
        self.open_gap(i, 1)?;
        self.store(i, raw.as_bytes())
    }

    fn need_leaf(&self, leaf: bool) -> Result<()> {
        if self.is_leaf() == leaf {
            return Ok(());
        }
        Err(corrupt!(
            WHAT,
            "entry of the wrong kind for depth {}",
            self.depth()
        ))
    }

    /// Removes the entries of `range` (cut to those that exist). The caller frees an index node
    /// left without entries.
    pub fn remove(&mut self, range: Range<usize>) {
        let len = self.len();
        let (start, end) = (range.start.min(len), range.end.min(len));
        if start < end {
            let kept = len - (end - start);
            self.bytes
                .as_mut()
                .copy_within(offset(end)..offset(len), offset(start));
            if let Some(stale) = self.bytes.as_mut().get_mut(offset(kept)..offset(len)) {
                stale.fill(0);
            }
            self.set_len(kept);
        }
    }

    /// Appends the entries of `range` of `other`, a node of the same depth.
    pub fn append<C: AsRef<[u8]>>(&mut self, other: &Node<C>, range: Range<usize>) -> Result<()> {
        let from =
            (range.start <= range.end && range.end <= other.len() && self.depth() == other.depth())
                .then(|| other.bytes().get(offset(range.start)..offset(range.end)))
                .flatten()
                .ok_or_else(|| {
                    corrupt!(
                        WHAT,
                        "entries {range:?} of {} at depth {}",
                        other.len(),
                        other.depth()
                    )
                })?;
        let at = self.len();
        self.open_gap(at, range.len())?;
        put(self.bytes.as_mut(), offset(at), from)
            .ok_or_else(|| corrupt!(WHAT, "entries {range:?}"))
    }

    /// Makes the node empty and of another depth: the root, when the tree grows or shrinks.
    pub fn reset(&mut self, depth: u16) -> Result<()> {
        let node = NodeMut::init(self.bytes.as_mut(), depth)?;
        self.max = node.max;
        Ok(())
    }
}

/// Byte offset of entry `i`.
const fn offset(i: usize) -> usize {
    ENTRY_LEN + i * ENTRY_LEN
}
