//! Adding, removing and changing entries of a directory block.

use super::entry::{
    DirLayout, FileType, HEADER, WHAT, check_size, encode_rec_len, min_rec_len, valid_name, written,
};
use super::read::{find_room, heads};
use super::tail::write_tail_head;
use crate::bytes::put;
use crate::error::{Result, corrupt};

/// Adds a name in the first place where it fits; returns the new entry's offset, `None` if the
/// block is too full. The caller has checked that the name does not exist.
pub fn insert(
    block: &mut [u8],
    layout: &DirLayout,
    name: &[u8],
    inode: u32,
    file_type: FileType,
) -> Result<Option<usize>> {
    check_new(name, inode, layout)?;
    let Some(place) = find_room(block, layout, name.len())? else {
        return Ok(None);
    };
    let (offset, room) = (place.offset, place.room());
    let used = place.rec_len - room;
    let at = offset + used;
    write_entry(block, layout, at, room, inode, file_type, name)?;
    if used != 0 {
        set_rec_len(block, offset, used)?;
    }
    Ok(Some(at))
}

/// Removes the entry in use at `offset`: its space goes to the previous entry, or it becomes free
/// if it is the first. The bytes of the removed entry are wiped.
pub fn delete(block: &mut [u8], layout: &DirLayout, offset: usize) -> Result<()> {
    let mut before = None;
    let mut found = None;
    let mut heads = heads(block, layout)?;
    for (at, head, _) in heads.by_ref() {
        if at >= offset {
            found = (at == offset && head.inode != 0).then_some(at);
            break;
        }
        before = Some(at);
    }
    // The entries that change are checked.
    let none = || corrupt!(WHAT, "no entry in use at {offset}");
    let removed = heads.entry(found.ok_or_else(none)?)?;
    let (rec_len, used) = (removed.rec_len, min_rec_len(removed.name.len()));
    let before = before.map(|at| heads.entry(at)).transpose()?;
    let before = before.map(|entry| (entry.offset, entry.rec_len));
    match before {
        Some((prev, prev_len)) => {
            set_rec_len(block, prev, prev_len + rec_len)?;
            wipe(block, offset, used);
        }
        None => {
            wipe(block, offset, used);
            set_rec_len(block, offset, rec_len)?;
        }
    }
    Ok(())
}

/// Makes the entry in use at `offset` refer to another inode (rename over a name, or a moved
/// directory's "..").
pub fn set_inode(
    block: &mut [u8],
    layout: &DirLayout,
    offset: usize,
    inode: u32,
    file_type: FileType,
) -> Result<()> {
    let mut heads = heads(block, layout)?;
    let there = heads.any(|(at, head, _)| at == offset && head.inode != 0);
    let entry = there.then(|| heads.entry(offset)).transpose()?;
    match entry {
        Some(e) if (1..=layout.max_inode).contains(&inode) => write_head(
            block,
            layout,
            offset,
            inode,
            e.rec_len,
            e.name.len(),
            file_type,
        ),
        _ => Err(corrupt!(
            WHAT,
            "no entry in use at {offset} that could name inode {inode}"
        )),
    }
}

/// Makes the block an empty directory block: one free entry, and a tail if the layout has one.
pub fn init_empty(block: &mut [u8], layout: &DirLayout) -> Result<()> {
    let space = clear(block, layout)?;
    set_rec_len(block, 0, space)
}

/// Makes the block the first of a new directory: "." is `inode`, ".." is `parent`.
pub fn init_dots(block: &mut [u8], layout: &DirLayout, inode: u32, parent: u32) -> Result<()> {
    check_new(b".", inode, layout)?;
    check_new(b"..", parent, layout)?;
    let space = clear(block, layout)?;
    let dot = min_rec_len(1);
    write_entry(block, layout, 0, dot, inode, FileType::Directory, b".")?;
    write_entry(
        block,
        layout,
        dot,
        space - dot,
        parent,
        FileType::Directory,
        b"..",
    )
}

/// Makes the block hold exactly these entries (inode, type, name), packed; the last takes the rest
/// of the block. Returns how many entries fitted.
pub fn fill<'n>(
    block: &mut [u8],
    layout: &DirLayout,
    names: impl IntoIterator<Item = (u32, FileType, &'n [u8])>,
) -> Result<usize> {
    init_empty(block, layout)?;
    let space = layout.space(block.len());
    let (mut at, mut count) = (0, 0);
    let mut last = None;
    for (inode, file_type, name) in names {
        check_new(name, inode, layout)?;
        let need = min_rec_len(name.len());
        if need > space - at {
            break;
        }
        write_entry(block, layout, at, need, inode, file_type, name)?;
        last = Some(at);
        at += need;
        count += 1;
    }
    if let Some(last) = last {
        set_rec_len(block, last, space - last)?;
    }
    Ok(count)
}

/// Refuses entries that must not be written.
fn check_new(name: &[u8], inode: u32, layout: &DirLayout) -> Result<()> {
    if !valid_name(name) || !(1..=layout.max_inode).contains(&inode) {
        return Err(corrupt!(
            WHAT,
            "new name of {} bytes for inode {inode}",
            name.len()
        ));
    }
    Ok(())
}

/// Zeroes the block and writes the tail; returns the end of the space for entries.
fn clear(block: &mut [u8], layout: &DirLayout) -> Result<usize> {
    check_size(block)?;
    block.fill(0);
    let space = layout.space(block.len());
    if layout.tail {
        write_tail_head(block, space)?;
    }
    Ok(space)
}

/// Writes an entry and zeroes the padding behind its name.
fn write_entry(
    block: &mut [u8],
    layout: &DirLayout,
    at: usize,
    rec_len: usize,
    inode: u32,
    file_type: FileType,
    name: &[u8],
) -> Result<()> {
    wipe(block, at, min_rec_len(name.len()));
    write_head(block, layout, at, inode, rec_len, name.len(), file_type)?;
    written(put(block, at + HEADER, name), at)
}

/// Writes the eight bytes before the name.
fn write_head(
    block: &mut [u8],
    layout: &DirLayout,
    at: usize,
    inode: u32,
    rec_len: usize,
    name_len: usize,
    file_type: FileType,
) -> Result<()> {
    let head = encode_rec_len(rec_len, block.len())
        .zip(u8::try_from(name_len).ok())
        .map(|(rec, len)| {
            let [i0, i1, i2, i3] = inode.to_le_bytes();
            let [r0, r1] = rec.to_le_bytes();
            [
                i0,
                i1,
                i2,
                i3,
                r0,
                r1,
                len,
                if layout.filetype { file_type as u8 } else { 0 },
            ]
        });
    written(head.and_then(|h| put(block, at, &h)), at)
}

fn set_rec_len(block: &mut [u8], at: usize, rec_len: usize) -> Result<()> {
    let raw = encode_rec_len(rec_len, block.len());
    written(raw.and_then(|r| put(block, at + 4, &r.to_le_bytes())), at)
}

fn wipe(block: &mut [u8], at: usize, len: usize) {
    if let Some(bytes) = block.get_mut(at..at + len) {
        bytes.fill(0);
    }
}
