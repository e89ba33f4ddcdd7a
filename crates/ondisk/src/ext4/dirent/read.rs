//! Entries are read, and checked.

use super::entry::{
    DirLayout, Entry, FileType, HEADER, WHAT, check_size, decode_rec_len, min_rec_len,
};
use super::tail::has_tail;
use crate::bytes::{le16, le32};
use crate::error::{Result, corrupt};

/// Reads and checks the entry at `offset`; `space` is where entries end.
fn entry_at<'a>(
    block: &'a [u8],
    layout: &DirLayout,
    space: usize,
    offset: usize,
) -> Result<Entry<'a>> {
    let short = || corrupt!(WHAT, "at {offset}: no room for an entry before {space}");
    let head = block
        .get(..space)
        .and_then(|b| b.get(offset..))
        .ok_or_else(short)?;
    let inode = le32(head, 0).ok_or_else(short)?;
    let rec_len = decode_rec_len(le16(head, 4).ok_or_else(short)?, block.len());
    let &[name_len, raw_type] = head
        .get(6..HEADER)
        .and_then(|b| b.first_chunk::<2>())
        .ok_or_else(short)?;
    let name_len = usize::from(name_len);
    if !rec_len.is_multiple_of(4) || rec_len < min_rec_len(1) || rec_len < min_rec_len(name_len) {
        return Err(corrupt!(
            WHAT,
            "at {offset}: rec_len {rec_len} for a name of {name_len} bytes"
        ));
    }
    let left = head.len().checked_sub(rec_len);
    if !left.is_some_and(|l| l == 0 || l >= min_rec_len(1)) {
        return Err(corrupt!(
            WHAT,
            "at {offset}: rec_len {rec_len} where entries end at {space}"
        ));
    }
    if inode > layout.max_inode {
        return Err(corrupt!(
            WHAT,
            "at {offset}: inode {inode} of {}",
            layout.max_inode
        ));
    }
    if inode != 0 && name_len == 0 {
        return Err(corrupt!(WHAT, "at {offset}: inode {inode} without a name"));
    }
    if !layout.filetype && raw_type != 0 {
        // Without the feature the byte is the high half of a 16-bit name_len.
        return Err(corrupt!(
            WHAT,
            "at {offset}: name_len {}",
            usize::from(raw_type) << 8 | name_len
        ));
    }
    let name = head.get(HEADER..HEADER + name_len).ok_or_else(short)?;
    Ok(Entry {
        offset,
        inode,
        rec_len,
        file_type: FileType::from_raw(raw_type),
        name,
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
            // rec_len ≥ 12, so this ends.
            Ok(e) => self.next + e.rec_len,
            Err(_) => self.space,
        };
        Some(entry)
    }
}

impl core::iter::FusedIterator for Entries<'_> {}

/// The entries of a linear directory block (a leaf of an indexed directory is one, too).
/// Fails if the layout asks for a checksum tail and the block has none.
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

/// The entries of one of the two parts of a directory that lies in its inode (`inline_data`). A
/// part too short for an entry has none.
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

/// The entry in use that has this name. Entries behind it are not looked at, and of those before it
/// only what leads to the next: this is most of what directories are read for.
pub fn find<'a>(block: &'a [u8], layout: &DirLayout, name: &[u8]) -> Result<Option<Entry<'a>>> {
    let Entries { space, .. } = entries(block, layout)?;
    let mut rest = block.get(..space).unwrap_or_default();
    while let Some((head, names)) = rest.split_first_chunk::<HEADER>() {
        let &[i0, i1, i2, i3, l0, l1, name_len, _] = head;
        let rec_len = decode_rec_len(u16::from_le_bytes([l0, l1]), block.len());
        let offset = space - rest.len();
        let wanted = usize::from(name_len) == name.len()
            && names.get(..name.len()) == Some(name)
            && u32::from_le_bytes([i0, i1, i2, i3]) != 0;
        let next = rest.get(rec_len..).filter(|_| rec_len >= min_rec_len(1));
        match next {
            Some(next) if !wanted => rest = next,
            _ => {
                let entry = entry_at(block, layout, space, offset)?;
                return Ok(wanted.then_some(entry));
            }
        }
    }
    if rest.is_empty() {
        Ok(None)
    } else {
        entry_at(block, layout, space, space - rest.len()).map(|_| None)
    }
}

/// Checks the whole block: every entry, and that the chain ends where it has to.
pub fn check(block: &[u8], layout: &DirLayout) -> Result<()> {
    entries(block, layout)?.try_for_each(|e| e.map(drop))
}

/// Largest [`Entry::room`] in the block: a name fits if its [`min_rec_len`] is not above it.
pub fn max_room(block: &[u8], layout: &DirLayout) -> Result<usize> {
    entries(block, layout)?.try_fold(0, |max, e| Ok(max.max(e?.room())))
}
