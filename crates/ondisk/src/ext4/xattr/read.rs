//! Reading attributes in place, with checks.

use super::attr::{
    ALIGN, Attr, BLOCK_HEADER, ENTRY, INODE_HEADER, MAGIC, TERMINATOR, VALUE_MAX, Value, WHAT,
    entry_len,
};
use crate::bytes::{le16, le32};
use crate::error::{Result, corrupt};

/// A checked list of attributes.
#[derive(Debug, Clone, Copy)]
pub struct Attrs<'a> {
    /// The bytes that value offsets refer to.
    base: &'a [u8],
    /// Offset of the first entry in it.
    first: usize,
}

impl<'a> Attrs<'a> {
    /// The attributes in an inode; `body` is everything behind its `i_extra_isize` bytes. Without
    /// the magic number there are none.
    pub fn in_inode(body: &'a [u8]) -> Result<Attrs<'a>> {
        match body.split_first_chunk::<INODE_HEADER>() {
            Some((magic, base)) if u32::from_le_bytes(*magic) == MAGIC => {
                Attrs { base, first: 0 }.checked()
            }
            _ => Ok(Attrs {
                base: &[],
                first: 0,
            }),
        }
    }

    /// The attributes in an attribute block.
    pub fn in_block(block: &'a [u8]) -> Result<Attrs<'a>> {
        BlockHeader::read(block)?;
        Attrs {
            base: block,
            first: BLOCK_HEADER,
        }
        .checked()
    }

    fn checked(self) -> Result<Attrs<'a>> {
        let (mut at, mut values) = (self.first, self.base.len());
        while let Some((attr, next)) = self.entry_at(at)? {
            if let (Value::Bytes(&[_, ..]), Some(offset)) = (attr.value, le16(self.base, at + 2)) {
                values = values.min(usize::from(offset));
            }
            at = next;
        }
        if values < at + TERMINATOR {
            return Err(corrupt!(
                WHAT,
                "value at {values} in the entries, which end at {at}"
            ));
        }
        Ok(self)
    }

    /// Reads and checks the entry at `at`; also returns the offset of the next one. `None` at the
    /// terminator.
    fn entry_at(&self, at: usize) -> Result<Option<(Attr<'a>, usize)>> {
        let past_end = || corrupt!(WHAT, "entry at {at} ends past {}", self.base.len());
        if le32(self.base, at).ok_or_else(past_end)? == 0 {
            return Ok(None);
        }
        let bytes = self.base.get(at..).ok_or_else(past_end)?;
        let (head, rest) = bytes.split_at_checked(ENTRY).ok_or_else(past_end)?;
        let &[name_len, index, ..] = head else {
            return Err(past_end());
        };
        let field = |off| le32(head, off).ok_or_else(past_end);
        let offset = usize::from(le16(head, 2).ok_or_else(past_end)?);
        let (ino, size, hash) = (field(4)?, field(8)?, field(12)?);
        let name = rest.get(..usize::from(name_len)).ok_or_else(past_end)?;
        if name.contains(&0) {
            return Err(corrupt!(WHAT, "entry at {at}: NUL in its name"));
        }
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let value = match (ino, len) {
            (0, 0) => Value::Bytes(&[]),
            (0, 1..=VALUE_MAX) => {
                let padded = self
                    .base
                    .get(offset..)
                    .and_then(|b| b.get(..len.next_multiple_of(ALIGN)));
                let value = padded.and_then(|b| b.get(..len));
                Value::Bytes(value.ok_or_else(|| {
                    corrupt!(
                        WHAT,
                        "entry at {at}: value of {size} bytes at {offset} of {}",
                        self.base.len()
                    )
                })?)
            }
            (1.., 0..=VALUE_MAX) => Value::Inode { ino, size, hash },
            _ => return Err(corrupt!(WHAT, "entry at {at}: value of {size} bytes")),
        };
        Ok(Some((
            Attr { index, name, value },
            at + entry_len(name.len()),
        )))
    }

    /// All attributes, in the order stored.
    pub fn iter(&self) -> impl Iterator<Item = Attr<'a>> + use<'a> {
        let this = *self;
        let mut at = this.first;
        core::iter::from_fn(move || {
            // All were checked before: the only `Err` is the empty body of an inode without
            // attributes.
            let (attr, next) = this.entry_at(at).ok()??;
            at = next;
            Some(attr)
        })
    }

    /// The attribute with this name.
    #[must_use]
    pub fn find(&self, index: u8, name: &[u8]) -> Option<Attr<'a>> {
        self.iter().find(|a| a.index == index && a.name == name)
    }
}

/// Header of an attribute block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// `h_refcount`: number of inodes that share the block.
    pub refcount: u32,
    /// `h_hash`: hash of all attributes, for finding blocks to share; 0 if it has none.
    pub hash: u32,
}

impl BlockHeader {
    /// Reads and checks the header.
    pub fn read(block: &[u8]) -> Result<BlockHeader> {
        let field =
            |off| le32(block, off).ok_or_else(|| corrupt!(WHAT, "block of {} bytes", block.len()));
        let (magic, refcount, blocks, hash) = (field(0)?, field(4)?, field(8)?, field(12)?);
        if magic != MAGIC || blocks != 1 || refcount == 0 {
            return Err(corrupt!(
                WHAT,
                "block with magic {magic:#x}, blocks {blocks}, refcount {refcount}"
            ));
        }
        Ok(BlockHeader { refcount, hash })
    }
}
