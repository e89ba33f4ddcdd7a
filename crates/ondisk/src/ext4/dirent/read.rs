//! Reading and checking directory entries.

use super::entry::{DirLayout, Entry, FileType, WHAT, check_size, decode_rec_len, min_rec_len};
use super::tail::has_tail;
use crate::error::{Result, corrupt};

/// The fields of an entry before its name.
pub(super) struct Head {
    pub(super) inode: u32,
    pub(super) rec_len: usize,
    name_len: usize,
    raw_type: u8,
}

impl Head {
    /// Splits `rest` into the head of its first entry and the bytes behind it; `block` gives the
    /// block's length.
    #[inline]
    fn split<'a>(rest: &'a [u8], block: &[u8]) -> Option<(Head, &'a [u8])> {
        let (&[i0, i1, i2, i3, l0, l1, name_len, raw_type], names) = rest.split_first_chunk()?;
        let head = Head {
            inode: u32::from_le_bytes([i0, i1, i2, i3]),
            rec_len: decode_rec_len(u16::from_le_bytes([l0, l1]), block.len()),
            name_len: usize::from(name_len),
            raw_type,
        };
        Some((head, names))
    }

    /// See [`Entry::room`].
    #[inline]
    fn room(&self) -> usize {
        if self.inode == 0 {
            self.rec_len
        } else {
            self.rec_len.saturating_sub(min_rec_len(self.name_len))
        }
    }

    /// The fault of the entry, if it has one; `left` is the number of bytes from its beginning to
    /// the end of the space for entries.
    #[inline]
    fn wrong(&self, layout: &DirLayout, left: usize) -> Option<String> {
        let Head {
            inode,
            rec_len,
            name_len,
            raw_type,
        } = *self;
        if !rec_len.is_multiple_of(4) || rec_len < min_rec_len(name_len.max(1)) {
            return Some(format!("rec_len {rec_len} for a name of {name_len} bytes"));
        }
        if left != rec_len && left < rec_len + min_rec_len(1) {
            return Some(format!("rec_len {rec_len} where {left} bytes are left"));
        }
        if inode > layout.max_inode {
            return Some(format!("inode {inode} of {}", layout.max_inode));
        }
        if inode != 0 && name_len == 0 {
            return Some(format!("inode {inode} without a name"));
        }
        if !layout.filetype && raw_type != 0 {
            // Without the feature the byte is the high half of a 16-bit name_len.
            return Some(format!(
                "name_len {}",
                usize::from(raw_type) << 8 | name_len
            ));
        }
        None
    }
}

/// Reads and checks the entry at `offset`; `space` is the end of the space for entries.
#[inline]
fn entry_at<'a>(
    block: &'a [u8],
    layout: &DirLayout,
    space: usize,
    offset: usize,
) -> Result<Entry<'a>> {
    let short = || corrupt!(WHAT, "at {offset}: no room for an entry before {space}");
    let rest = block.get(offset..space).ok_or_else(short)?;
    let (head, names) = Head::split(rest, block).ok_or_else(short)?;
    if let Some(wrong) = head.wrong(layout, rest.len()) {
        return Err(corrupt!(WHAT, "at {offset}: {wrong}"));
    }
    Ok(Entry {
        offset,
        inode: head.inode,
        rec_len: head.rec_len,
        file_type: FileType::from_raw(head.raw_type),
        name: names.get(..head.name_len).ok_or_else(short)?,
    })
}

/// Iterator over all entries of a block, free ones included; ends after an error.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    block: &'a [u8],
    layout: DirLayout,
    space: usize,
    next: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        if self.next >= self.space {
            return None;
        }
        let entry = entry_at(self.block, &self.layout, self.space, self.next);
        self.next = match &entry {
            // `rec_len` is at least 12, so the iteration ends.
            Ok(e) => self.next + e.rec_len,
            Err(_) => self.space,
        };
        Some(entry)
    }
}

impl core::iter::FusedIterator for Entries<'_> {}

/// The entries of a linear directory block, which a leaf of an indexed directory is, too. Fails if
/// the layout requires a checksum tail and the block has none.
pub fn entries<'a>(block: &'a [u8], layout: &DirLayout) -> Result<Entries<'a>> {
    check_size(block)?;
    if layout.tail && !has_tail(block) {
        return Err(corrupt!("directory block", "no checksum tail"));
    }
    Ok(Entries {
        block,
        layout: *layout,
        space: layout.space(block.len()),
        next: 0,
    })
}

/// The entries of one of the two parts of a directory in its inode (`inline_data`). A part too
/// short for an entry has none.
#[must_use]
pub fn inline_entries<'a>(part: &'a [u8], layout: &DirLayout) -> Entries<'a> {
    let space = if part.len() < min_rec_len(1) {
        0
    } else {
        part.len()
    };
    Entries {
        block: part,
        layout: *layout,
        space,
        next: 0,
    }
}

/// Iterates over the heads of a block's entries, with their offsets and the bytes behind each. It
/// checks only the link to the next entry: look-ups, the most frequent reads, need no more.
pub(super) struct Heads<'a> {
    block: &'a [u8],
    layout: DirLayout,
    space: usize,
    next: usize,
}

pub(super) fn heads<'a>(block: &'a [u8], layout: &DirLayout) -> Result<Heads<'a>> {
    let Entries {
        block,
        layout,
        space,
        next,
    } = entries(block, layout)?;
    Ok(Heads {
        block,
        layout,
        space,
        next,
    })
}

impl<'a> Heads<'a> {
    /// The entry at `offset`, fully checked.
    pub(super) fn entry(&self, offset: usize) -> Result<Entry<'a>> {
        entry_at(self.block, &self.layout, self.space, offset)
    }

    /// Checks that the chain ended where it has to; call it after the last head.
    ///
    /// # Errors
    /// The entry that leads neither to another nor to the end of the space for entries.
    pub(super) fn end(self) -> Result<()> {
        if self.next == self.space {
            return Ok(());
        }
        self.entry(self.next).map(drop)
    }
}

impl<'a> Iterator for Heads<'a> {
    type Item = (usize, Head, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.next;
        let rest = self.block.get(offset..self.space)?;
        let (head, names) = Head::split(rest, self.block)?;
        if !(min_rec_len(1)..=rest.len()).contains(&head.rec_len) {
            return None;
        }
        self.next += head.rec_len;
        Some((offset, head, names))
    }
}

/// The first entry whose head satisfies the condition; later entries are not read.
#[inline]
fn first_of<'a>(
    block: &'a [u8],
    layout: &DirLayout,
    wanted: impl Fn(&Head, &[u8]) -> bool,
) -> Result<Option<Entry<'a>>> {
    let mut heads = heads(block, layout)?;
    match heads.find(|(_, head, names)| wanted(head, names)) {
        Some((offset, ..)) => heads.entry(offset).map(Some),
        None => heads.end().map(|()| None),
    }
}

/// The entry in use with this name.
pub fn find<'a>(block: &'a [u8], layout: &DirLayout, name: &[u8]) -> Result<Option<Entry<'a>>> {
    first_of(block, layout, |head, names| {
        head.name_len == name.len() && names.get(..name.len()) == Some(name) && head.inode != 0
    })
}

/// Checks the whole block: every entry, and the end of the chain.
pub fn check(block: &[u8], layout: &DirLayout) -> Result<()> {
    entries(block, layout)?.try_for_each(|e| e.map(drop))
}

/// The first entry with [room](Entry::room) for a name of `name_len` bytes.
pub fn find_room<'a>(
    block: &'a [u8],
    layout: &DirLayout,
    name_len: usize,
) -> Result<Option<Entry<'a>>> {
    let need = min_rec_len(name_len);
    first_of(block, layout, |head, _| head.room() >= need)
}
