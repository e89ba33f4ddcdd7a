//! Directory blocks: chains of `ext4_dir_entry_2` ("Linear (Classic) Directories" in the ext4 documentation).
//!
//! The entries of a block cover it without gaps: `rec_len` leads from one to the next, and the last
//! one ends where the block (or, with `metadata_csum`, its 12-byte tail) begins to be something else.
//! Room for a new name is an entry with inode 0, or the slack of an entry that is longer than its name needs.
//!
//! Functions that change a block check the chain before they touch a byte; after an error the block is as it was.
//! Checksums are apart: change, then [`update_checksum`].

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
/// `det_reserved_ft`: marks the tail.
const TAIL_TYPE: u8 = 0xDE;
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
    /// The name: not empty if the entry is in use; may hold bytes no name should (see [`valid_name`]).
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Bytes a new entry could take from this one: all if it is free, else what its name does not need.
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

/// The entry in use that has this name. Entries behind it are not looked at.
pub fn find<'a>(block: &'a [u8], layout: &DirLayout, name: &[u8]) -> Result<Option<Entry<'a>>> {
    for entry in entries(block, layout)? {
        let entry = entry?;
        if entry.inode != 0 && entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Checks the whole block: every entry, and that the chain ends where it has to.
pub fn check(block: &[u8], layout: &DirLayout) -> Result<()> {
    entries(block, layout)?.try_for_each(|e| e.map(drop))
}

/// Largest [`Entry::room`] in the block: a name fits if its [`min_rec_len`] is not above it.
pub fn max_room(block: &[u8], layout: &DirLayout) -> Result<usize> {
    entries(block, layout)?.try_fold(0, |max, e| Ok(max.max(e?.room())))
}

/// Adds a name in the first place it fits; answers the new entry's offset, `None` if the block is too full.
/// The caller knows that the name is not there yet.
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

/// Removes the entry in use at `offset`: its space goes to the entry before it, or it becomes free if it is the first.
/// The bytes of the removed entry are wiped.
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

/// Makes the entry in use at `offset` name another inode (rename over a name, or a moved directory's "..").
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

/// Makes the block hold exactly these names (inode, type, name), packed; the last takes the rest of the block.
/// Answers how many entries fitted.
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

/// Whether the block ends in a checksum tail: inode 0, `rec_len` 12, no name, type 0xDE.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    let Some(tail) = block.last_chunk::<TAIL_LEN>() else {
        return false;
    };
    tail.starts_with(&[0, 0, 0, 0, TAIL_LEN as u8, 0, 0, TAIL_TYPE])
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
    written(
        put(block, at, &[0, 0, 0, 0, TAIL_LEN as u8, 0, 0, TAIL_TYPE]),
        at,
    )
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LAYOUT: DirLayout = DirLayout {
        tail: true,
        filetype: true,
        max_inode: 1000,
    };

    fn names(block: &[u8], layout: &DirLayout) -> BTreeMap<Vec<u8>, (u32, FileType)> {
        entries(block, layout)
            .unwrap()
            .map(Result::unwrap)
            .filter(|e| e.inode != 0)
            .map(|e| (e.name.to_vec(), (e.inode, e.file_type)))
            .collect()
    }

    #[test]
    fn rec_len_of_64_kib_blocks() {
        for size in [1024usize, 4096, 65536] {
            for len in (12..=size).step_by(4) {
                let raw = encode_rec_len(len, size).unwrap();
                assert_eq!(decode_rec_len(raw, size), len);
            }
            assert_eq!(encode_rec_len(size + 4, size), None);
            assert_eq!(encode_rec_len(13, size), None);
        }
        assert_eq!(decode_rec_len(0, 65536), 65536);
    }

    #[test]
    fn a_new_directory() {
        for size in [1024, 4096, 65536] {
            for tail in [false, true] {
                let layout = DirLayout { tail, ..LAYOUT };
                let mut b = vec![0xAA; size];
                init_dots(&mut b, &layout, 12, 2).unwrap();
                check(&b, &layout).unwrap();
                assert!(entries(&b, &layout).unwrap().all(|e| e.unwrap().is_dots()));
                assert_eq!(find(&b, &layout, b"..").unwrap().unwrap().inode, 2);
                assert_eq!(find(&b, &layout, b".").unwrap().unwrap().inode, 12);
                assert_eq!(has_tail(&b), tail);
                set_inode(&mut b, &layout, 12, 77, FileType::Directory).unwrap();
                assert_eq!(find(&b, &layout, b"..").unwrap().unwrap().inode, 77);
            }
        }
    }

    #[test]
    fn an_empty_64_kib_block_without_tail_is_one_entry() {
        let layout = DirLayout {
            tail: false,
            ..LAYOUT
        };
        let mut b = vec![0; 65536];
        init_empty(&mut b, &layout).unwrap();
        assert_eq!(b.get(4..6), Some(&[0xff, 0xff][..]));
        assert_eq!(max_room(&b, &layout).unwrap(), 65536);
        let at = insert(&mut b, &layout, b"x", 5, FileType::Fifo).unwrap();
        assert_eq!(at, Some(0));
        check(&b, &layout).unwrap();
    }

    #[test]
    fn what_is_refused() {
        let mut good = vec![0; 1024];
        init_dots(&mut good, &LAYOUT, 12, 2).unwrap();
        let damaged: [(usize, &[u8]); 9] = [
            (4, &[0, 0]),     // rec_len 0 would loop
            (4, &[8, 0]),     // shorter than any name
            (4, &[14, 0]),    // not aligned
            (6, &[5]),        // longer name than rec_len
            (6, &[0]),        // in use without a name
            (0, &[0xe9, 3]),  // inode 1001 of 1000
            (16, &[0xf8, 3]), // past the tail
            (16, &[0xe4, 3]), // leaves 8 bytes, too few for an entry
            (1024 - 5, &[0]), // no tail
        ];
        for (at, bytes) in damaged {
            let mut b = good.clone();
            put(&mut b, at, bytes).unwrap();
            assert!(check(&b, &LAYOUT).is_err(), "{at} {bytes:?}");
            let before = b.clone();
            assert!(delete(&mut b, &LAYOUT, 12).is_err(), "{at} {bytes:?}");
            assert_eq!(b, before);
        }
        let old = DirLayout {
            filetype: false,
            ..LAYOUT
        };
        assert!(
            check(&good, &old).is_err(),
            "a type byte without the feature"
        );
        for name in [&b""[..], b"a/b", b"a\0b", &[b'x'; 256]] {
            assert!(insert(&mut good, &LAYOUT, name, 5, FileType::Regular).is_err());
        }
        assert!(insert(&mut good, &LAYOUT, b"ok", 0, FileType::Regular).is_err());
        assert!(insert(&mut good, &LAYOUT, b"ok", 1001, FileType::Regular).is_err());
        assert!(
            delete(&mut good, &LAYOUT, 16).is_err(),
            "not the start of an entry"
        );
    }

    #[test]
    fn a_deleted_name_leaves_no_trace() {
        let mut b = vec![0; 1024];
        init_empty(&mut b, &LAYOUT).unwrap();
        let empty = b.clone();
        for name in [&b"first"[..], b"second", b"third"] {
            insert(&mut b, &LAYOUT, name, 9, FileType::Regular)
                .unwrap()
                .unwrap();
        }
        for name in [&b"second"[..], b"first", b"third"] {
            let at = find(&b, &LAYOUT, name).unwrap().unwrap().offset;
            delete(&mut b, &LAYOUT, at).unwrap();
            assert_eq!(find(&b, &LAYOUT, name).unwrap(), None);
        }
        assert!(entries(&b, &LAYOUT).unwrap().all(|e| e.unwrap().inode == 0));
        assert!(!b.windows(5).any(|w| w == b"first" || w == b"third"));
        fill(&mut b, &LAYOUT, []).unwrap();
        assert_eq!(b, empty);
    }

    fn name_strategy() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => "[a-f]{1,3}".prop_map(String::into_bytes),
            1 => proptest::collection::vec((1u8..=255).prop_filter("slash", |b| *b != b'/'), 1..=255),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            ops in proptest::collection::vec((any::<bool>(), name_strategy(), 1u32..=1000, 1u8..8), 1..120),
            size in prop_oneof![Just(1024usize), Just(4096), Just(65536)],
            tail: bool, filetype: bool, dots: bool,
        ) {
            let layout = DirLayout { tail, filetype, max_inode: 1000 };
            let mut b = vec![0; size];
            let mut model = BTreeMap::new();
            if dots {
                init_dots(&mut b, &layout, 12, 2).unwrap();
                model = names(&b, &layout);
            } else {
                init_empty(&mut b, &layout).unwrap();
            }
            for (remove, name, inode, raw) in ops {
                let kind = if filetype { FileType::from_raw(raw) } else { FileType::Unknown };
                match find(&b, &layout, &name).unwrap().map(|e| e.offset) {
                    Some(at) if remove => {
                        delete(&mut b, &layout, at).unwrap();
                        prop_assert!(model.remove(&name).is_some());
                    }
                    Some(at) => {
                        set_inode(&mut b, &layout, at, inode, kind).unwrap();
                        model.insert(name, (inode, kind));
                    }
                    None => {
                        let fits = max_room(&b, &layout).unwrap() >= min_rec_len(name.len());
                        let at = insert(&mut b, &layout, &name, inode, kind).unwrap();
                        prop_assert_eq!(at.is_some(), fits);
                        if let Some(at) = at {
                            prop_assert_eq!(find(&b, &layout, &name).unwrap().unwrap().offset, at);
                            model.insert(name, (inode, kind));
                        }
                    }
                }
                check(&b, &layout).unwrap();
                prop_assert_eq!(&names(&b, &layout), &model);
            }
            // Packing keeps the content and makes one run of room at the end.
            let mut packed = vec![0; size];
            let n = fill(&mut packed, &layout, model.iter().map(|(n, (i, t))| (*i, *t, n.as_slice()))).unwrap();
            prop_assert_eq!(n, model.len());
            prop_assert_eq!(names(&packed, &layout), model);
            prop_assert!(max_room(&packed, &layout).unwrap() >= max_room(&b, &layout).unwrap());
        }

        #[test]
        fn fill_stops_when_full(count in 0usize..20) {
            let mut b = vec![0; 1024];
            let name = [b'n'; 200];
            let n = fill(&mut b, &LAYOUT, (0..count).map(|_| (7, FileType::Regular, &name[..]))).unwrap();
            prop_assert_eq!(n, count.min((1024 - 12) / 208));
            check(&b, &LAYOUT).unwrap();
        }

        #[test]
        fn random_bytes_never_panic(
            mut b in proptest::collection::vec(any::<u8>(), 0..2048), tail: bool, filetype: bool, at in 0usize..2100,
        ) {
            let layout = DirLayout { tail, filetype, max_inode: u32::MAX };
            if tail && b.len() >= 16 {
                let space = layout.space(b.len());
                write_tail_head(&mut b, space).unwrap();
            }
            if let Ok(all) = entries(&b, &layout) {
                prop_assert!(all.count() <= b.len() / 12 + 1);
            }
            let _ = insert(&mut b, &layout, b"name", 5, FileType::Regular);
            let _ = delete(&mut b, &layout, at);
            let _ = set_inode(&mut b, &layout, at, 5, FileType::Regular);
            let _ = verify_checksum(&b, 1);
            let _ = update_checksum(&mut b, 1);
        }

        #[test]
        fn a_damaged_block_keeps_its_chain_or_says_so(
            damage in proptest::collection::vec((0usize..1024, any::<u8>()), 1..4),
        ) {
            let mut b = vec![0; 1024];
            init_dots(&mut b, &LAYOUT, 12, 2).unwrap();
            for i in 0..20u32 {
                insert(&mut b, &LAYOUT, format!("name{i}").as_bytes(), 20 + i, FileType::Regular).unwrap().unwrap();
            }
            for (at, byte) in damage {
                b[at] ^= byte;
            }
            if check(&b, &LAYOUT).is_ok() {
                // Whatever passes the check can be changed and stays sound.
                let first = entries(&b, &LAYOUT).unwrap().map(Result::unwrap).find(|e| e.inode != 0).map(|e| e.offset);
                if let Some(at) = first {
                    delete(&mut b, &LAYOUT, at).unwrap();
                }
                insert(&mut b, &LAYOUT, b"new", 5, FileType::Regular).unwrap();
                check(&b, &LAYOUT).unwrap();
            }
        }

        #[test]
        fn any_flipped_bit_breaks_the_checksum(bit in 0usize..1024 * 8, seed: u32) {
            let mut b = vec![0; 1024];
            init_dots(&mut b, &LAYOUT, 12, 2).unwrap();
            prop_assert!(update_checksum(&mut b, seed).is_ok());
            prop_assert!(verify_checksum(&b, seed).is_ok());
            b[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify_checksum(&b, seed).is_err());
        }
    }
}
