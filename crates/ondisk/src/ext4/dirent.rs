//! Directory blocks: chains of `ext4_dir_entry_2` ("Linear (Classic) Directories" in the ext4
//! documentation).
//!
//! The entries of a block cover it without gaps: `rec_len` leads from one to the next, and the last
//! one ends where the block (or, with `metadata_csum`, its 12-byte tail) begins to be something
//! else. Room for a new name is an entry with inode 0, or the slack of an entry that is longer than
//! its name needs.
//!
//! Functions that change a block check the chain before they touch a byte; after an error the block
//! is as it was. Checksums are apart: change, then [`update_checksum`].

use super::checksum::ext4_crc32c;
use crate::bytes::{le16, le32, put};
use crate::error::{Result, corrupt};

/// Name of the structure in errors.
const WHAT: &str = "directory entry";
/// Bytes before the name.
const HEADER: usize = 8;
/// Longest name, bytes (`EXT4_NAME_LEN`).
pub const NAME_MAX: usize = 255;
/// Bytes of `ext4_dir_entry_tail`, which ends a block under `metadata_csum`.
pub const TAIL_LEN: usize = 12;
/// The tail before its checksum: inode 0, `rec_len` 12, no name, type 0xDE (`det_reserved_ft`).
const TAIL_HEAD: [u8; 8] = [0, 0, 0, 0, 12, 0, 0, 0xDE];
/// Largest block; beyond it `rec_len` cannot be encoded.
const MAX_BLOCK: usize = 65536;

/// `file_type` of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Not recorded (no `filetype` feature), or a value without meaning.
    Unknown = 0,
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// Named pipe.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
}

impl FileType {
    /// From the byte in the entry.
    #[must_use]
    pub fn from_raw(raw: u8) -> FileType {
        match raw {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::CharDevice,
            4 => FileType::BlockDevice,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }

    /// From `i_mode` (`st_mode`).
    #[must_use]
    pub fn from_mode(mode: u32) -> FileType {
        match mode & 0o170000 {
            0o100000 => FileType::Regular,
            0o040000 => FileType::Directory,
            0o020000 => FileType::CharDevice,
            0o060000 => FileType::BlockDevice,
            0o010000 => FileType::Fifo,
            0o140000 => FileType::Socket,
            0o120000 => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }
}

/// What a volume's directory blocks look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirLayout {
    /// Blocks end in a checksum tail (`metadata_csum`).
    pub tail: bool,
    /// Entries record the file type (`filetype`); without it that byte is zero.
    pub filetype: bool,
    /// Largest valid inode number (`s_inodes_count`).
    pub max_inode: u32,
}

impl DirLayout {
    /// Bytes of a block of `block_size` bytes that entries may use.
    #[must_use]
    pub fn space(&self, block_size: usize) -> usize {
        if self.tail {
            block_size.saturating_sub(TAIL_LEN)
        } else {
            block_size
        }
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it starts in the block, bytes.
    pub offset: usize,
    /// Inode it names; 0 if the entry is free.
    pub inode: u32,
    /// Bytes up to the next entry.
    pub rec_len: usize,
    /// Type of the inode.
    pub file_type: FileType,
    /// The name: not empty if the entry is in use; may hold bytes no name should (see
    /// [`valid_name`]).
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Bytes a new entry could take from this one: all if it is free, else what its name does not
    /// need.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.inode == 0 {
            self.rec_len
        } else {
            self.rec_len.saturating_sub(min_rec_len(self.name.len()))
        }
    }

    /// Whether this is "." or "..".
    #[must_use]
    pub fn is_dots(&self) -> bool {
        self.name == b"." || self.name == b".."
    }
}

/// Whether `name` can be stored and shown: 1 to 255 bytes, no `/`, no NUL.
#[must_use]
pub fn valid_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && !name.iter().any(|&b| b == b'/' || b == 0)
}

/// Shortest `rec_len` of an entry with a name of `name_len` bytes.
#[must_use]
pub fn min_rec_len(name_len: usize) -> usize {
    (HEADER + name_len).next_multiple_of(4)
}

/// `rec_len` in bytes from the stored 16 bits. Only blocks of 64 KiB need more than 16 bits:
/// there 0 and 65535 mean the whole block and the two low bits hold bits 16 and 17.
#[must_use]
pub fn decode_rec_len(raw: u16, block_size: usize) -> usize {
    let raw = usize::from(raw);
    if block_size < MAX_BLOCK {
        raw
    } else if raw == 0 || raw == 0xffff {
        block_size
    } else {
        (raw & 0xfffc) | ((raw & 3) << 16)
    }
}

/// The stored form of `rec_len`; `None` if it has none.
#[must_use]
pub fn encode_rec_len(rec_len: usize, block_size: usize) -> Option<u16> {
    if !rec_len.is_multiple_of(4) || rec_len > block_size || block_size > MAX_BLOCK {
        return None;
    }
    // The one length of a block ≤ 64 KiB that 16 bits do not hold is 65536 itself.
    Some(u16::try_from(rec_len).unwrap_or(0xffff))
}

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

/// Adds a name in the first place it fits; answers the new entry's offset, `None` if the block is
/// too full. The caller knows that the name is not there yet.
pub fn insert(
    block: &mut [u8],
    layout: &DirLayout,
    name: &[u8],
    inode: u32,
    file_type: FileType,
) -> Result<Option<usize>> {
    check_new(name, inode, layout)?;
    let need = min_rec_len(name.len());
    let mut place = None;
    for entry in entries(block, layout)? {
        let entry = entry?;
        if entry.room() >= need {
            let used = entry.rec_len - entry.room();
            place = Some((entry.offset, used, entry.room()));
            break;
        }
    }
    let Some((offset, used, room)) = place else {
        return Ok(None);
    };
    let at = offset + used;
    write_entry(block, layout, at, room, inode, file_type, name)?;
    if used != 0 {
        set_rec_len(block, offset, used)?;
    }
    Ok(Some(at))
}

/// Removes the entry in use at `offset`: its space goes to the entry before it, or it becomes free
/// if it is the first. The bytes of the removed entry are wiped.
pub fn delete(block: &mut [u8], layout: &DirLayout, offset: usize) -> Result<()> {
    let mut before: Option<(usize, usize)> = None;
    let mut found = None;
    for entry in entries(block, layout)? {
        let entry = entry?;
        if entry.offset == offset {
            found = (entry.inode != 0).then_some((entry.rec_len, min_rec_len(entry.name.len())));
            break;
        }
        before = Some((entry.offset, entry.rec_len));
    }
    let (rec_len, used) = found.ok_or_else(|| corrupt!(WHAT, "no entry in use at {offset}"))?;
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

/// Makes the entry in use at `offset` name another inode (rename over a name, or a moved
/// directory's "..").
pub fn set_inode(
    block: &mut [u8],
    layout: &DirLayout,
    offset: usize,
    inode: u32,
    file_type: FileType,
) -> Result<()> {
    let entry = entries(block, layout)?
        .find_map(|e| match e {
            Ok(e) if e.offset < offset => None,
            other => Some(other),
        })
        .transpose()?;
    match entry {
        Some(e)
            if e.offset == offset && e.inode != 0 && (1..=layout.max_inode).contains(&inode) =>
        {
            write_head(
                block,
                layout,
                offset,
                inode,
                e.rec_len,
                e.name.len(),
                file_type,
            )
        }
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

/// Makes the block hold exactly these names (inode, type, name), packed; the last takes the rest of
/// the block. Answers how many entries fitted.
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

/// Whether the block ends in a checksum tail.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    let Some(tail) = block.last_chunk::<TAIL_LEN>() else {
        return false;
    };
    tail.starts_with(&TAIL_HEAD)
}

/// Checksum of a linear directory block: all of it up to the tail.
/// `seed` is the [`inode_seed`](super::checksum::inode_seed) of the directory.
#[must_use]
pub fn checksum(block: &[u8], seed: u32) -> u32 {
    ext4_crc32c(
        seed,
        block
            .get(..block.len().saturating_sub(TAIL_LEN))
            .unwrap_or(block),
    )
}

/// Checks the checksum of a linear directory block; fails, too, if there is no tail.
pub fn verify_checksum(block: &[u8], seed: u32) -> Result<()> {
    if !has_tail(block) {
        return Err(corrupt!("directory block", "no checksum tail"));
    }
    let stored = le32(block, block.len() - 4).unwrap_or(0);
    let computed = checksum(block, seed);
    if stored != computed {
        return Err(corrupt!(
            "directory block",
            "checksum {stored:#010x}, computed {computed:#010x}"
        ));
    }
    Ok(())
}

/// Stores the right checksum in the tail; fails if there is none.
pub fn update_checksum(block: &mut [u8], seed: u32) -> Result<()> {
    if !has_tail(block) {
        return Err(corrupt!("directory block", "no checksum tail"));
    }
    let sum = checksum(block, seed);
    let at = block.len() - 4;
    written(put(block, at, &sum.to_le_bytes()), at)
}

/// Refuses slices that are no file-system block.
fn check_size(block: &[u8]) -> Result<()> {
    let len = block.len();
    if !len.is_multiple_of(4) || !(64..=MAX_BLOCK).contains(&len) {
        return Err(corrupt!("directory block", "{len} bytes long"));
    }
    Ok(())
}

/// Refuses what must not be written.
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

/// Zeroes the block and writes the tail; answers where entries end.
fn clear(block: &mut [u8], layout: &DirLayout) -> Result<usize> {
    check_size(block)?;
    block.fill(0);
    let space = layout.space(block.len());
    if layout.tail {
        write_tail_head(block, space)?;
    }
    Ok(space)
}

fn write_tail_head(block: &mut [u8], at: usize) -> Result<()> {
    written(put(block, at, &TAIL_HEAD), at)
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

/// Turns "did not fit", which checked callers never see, into an error.
fn written(done: Option<()>, at: usize) -> Result<()> {
    done.ok_or_else(|| corrupt!(WHAT, "at {at}: does not fit in its block"))
}

#[cfg(test)]
mod tests;
