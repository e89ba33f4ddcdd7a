//! Writing attributes: a change lays out the whole set anew.

use super::attr::{
    ALIGN, Attr, BLOCK_HEADER, ENTRY, INODE_HEADER, MAGIC, NAME_MAX, VALUE_MAX, Value, WHAT,
    block_room, entry_len, inode_room, no_room, space,
};
use super::hash::{block_hash, entry_hash, hash_of};
use super::read::BlockHeader;
use crate::bytes::put;
use crate::error::{Result, corrupt};

/// Maximum number of inodes that may share a block (`EXT4_XATTR_REFCOUNT_MAX`).
pub const REFCOUNT_MAX: u32 = 1024;

/// Changes `h_refcount` of an attribute block; the caller updates the checksum.
pub fn set_refcount(block: &mut [u8], refcount: u32) -> Result<()> {
    BlockHeader::read(block)?;
    if !(1..=REFCOUNT_MAX).contains(&refcount) {
        return Err(corrupt!(WHAT, "new refcount {refcount}"));
    }
    put(block, 4, &refcount.to_le_bytes()).ok_or_else(no_room)
}

/// Lays out `attrs` in an inode's `body` (see [`Attrs::in_inode`](super::Attrs::in_inode)); the
/// rest is zeroed. Returns `false`, without a change, if they do not fit. An empty set removes the
/// magic number, too.
pub fn write_in_inode(body: &mut [u8], attrs: &[Attr<'_>]) -> Result<bool> {
    let sorted = sorted(attrs)?;
    if attrs.is_empty() {
        body.fill(0);
        return Ok(true);
    }
    if space(attrs) > inode_room(body.len()) {
        return Ok(false);
    }
    body.fill(0);
    put(body, 0, &MAGIC.to_le_bytes()).ok_or_else(no_room)?;
    // The kernel stores e_hash 0 in the inode, as the hash serves to find shared blocks.
    lay_out(
        body.get_mut(INODE_HEADER..).ok_or_else(no_room)?,
        0,
        &sorted,
        |_, _| 0,
    )?;
    Ok(true)
}

/// Makes `block` an attribute block that holds `attrs` and is shared by `refcount` inodes. Returns
/// `false`, without a change, if they do not fit. The caller updates the checksum.
pub fn write_block(block: &mut [u8], attrs: &[Attr<'_>], refcount: u32) -> Result<bool> {
    let sorted = sorted(attrs)?;
    if space(attrs) > block_room(block.len()) {
        return Ok(false);
    }
    block.fill(0);
    for (off, word) in [
        (0, MAGIC),
        (4, refcount),
        (8, 1),
        (12, block_hash(sorted.iter().map(hash_of))),
    ] {
        put(block, off, &word.to_le_bytes()).ok_or_else(no_room)?;
    }
    lay_out(block, BLOCK_HEADER, &sorted, entry_hash)?;
    set_refcount(block, refcount)?;
    Ok(true)
}

/// Writes entries upwards from `first` and values downwards from the end; the caller has checked
/// the room.
fn lay_out(
    base: &mut [u8],
    first: usize,
    attrs: &[Attr<'_>],
    hash: fn(&[u8], &[u8]) -> u32,
) -> Result<()> {
    let (mut at, mut end) = (first, base.len() / ALIGN * ALIGN);
    for attr in attrs {
        end = end.checked_sub(attr.value_space()).ok_or_else(no_room)?;
        let (offset, ino, size, hash) = match attr.value {
            Value::Bytes(&[]) => (0, 0, 0, hash(attr.name, &[])),
            Value::Bytes(v) => {
                put(base, end, v).ok_or_else(no_room)?;
                (
                    end,
                    0,
                    u32::try_from(v.len()).map_err(|_| no_room())?,
                    hash(attr.name, v),
                )
            }
            Value::Inode { ino, size, hash } => (0, ino, size, hash),
        };
        let name_len = u8::try_from(attr.name.len()).map_err(|_| no_room())?;
        let offset = u16::try_from(offset).map_err(|_| no_room())?;
        put(base, at, &[name_len, attr.index]).ok_or_else(no_room)?;
        put(base, at + 2, &offset.to_le_bytes()).ok_or_else(no_room)?;
        for (off, word) in [(4, ino), (8, size), (12, hash)] {
            put(base, at + off, &word.to_le_bytes()).ok_or_else(no_room)?;
        }
        put(base, at + ENTRY, attr.name).ok_or_else(no_room)?;
        at += entry_len(attr.name.len());
    }
    Ok(())
}

/// The attributes in the order of a block; refuses sets that must not be written.
fn sorted<'a>(attrs: &[Attr<'a>]) -> Result<Vec<Attr<'a>>> {
    let mut sorted = attrs.to_vec();
    sorted.sort_unstable_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    if let Some([twice, _]) = sorted
        .array_windows()
        .find(|[a, b]| a.sort_key() == b.sort_key())
    {
        return Err(corrupt!(
            WHAT,
            "new attribute {}:{} twice",
            twice.index,
            twice.name.escape_ascii()
        ));
    }
    for a in &sorted {
        let too_large = matches!(a.value, Value::Bytes(v) if v.len() > VALUE_MAX);
        // Index 0 with an empty name would read as the terminator.
        let nameless = a.index == 0 && a.name.is_empty();
        if nameless || a.name.len() > NAME_MAX || a.name.contains(&0) || too_large {
            return Err(corrupt!(
                WHAT,
                "new attribute {}:{}",
                a.index,
                a.name.escape_ascii()
            ));
        }
    }
    Ok(sorted)
}
