//! Extended attributes, in the inode and in a block of their own ("Extended Attributes" in the ext4 documentation).
//!
//! Both forms hold a list of entries (header, name) that grows upwards and ends with four zero bytes, and
//! values that lie at the end. In the inode, what follows `i_extra_isize` starts with a magic number, and value
//! offsets count from behind it; a block has a 32-byte header, and offsets count from its start.
//! Attributes are read in place and written by laying out a whole set anew.

use super::checksum::{crc32c_with_hole, ext4_crc32c};
use crate::bytes::{le16, le32, put};
use crate::error::{OnDiskError, Result, corrupt};

/// Name of the structure in errors.
const WHAT: &str = "extended attributes";
/// `h_magic` of both forms.
const MAGIC: u32 = 0xEA02_0000;
/// Bytes of `ext4_xattr_ibody_header`.
const INODE_HEADER: usize = 4;
/// Bytes of `ext4_xattr_header`.
const BLOCK_HEADER: usize = 32;
/// Bytes of `ext4_xattr_entry` before the name.
const ENTRY: usize = 16;
/// Zero bytes behind the last entry.
const TERMINATOR: usize = 4;
/// Names and values start at multiples of this.
const ALIGN: usize = 4;
/// Where `h_checksum` lies.
const CHECKSUM_AT: usize = 16;
/// Longest name without its prefix, bytes.
pub const NAME_MAX: usize = 255;
/// Largest value, bytes (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 65536;
/// Most inodes that may share a block (`EXT4_XATTR_REFCOUNT_MAX`).
pub const REFCOUNT_MAX: u32 = 1024;

/// `e_name_index`: the prefix that a stored name lacks.
pub mod index {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`, the whole name.
    pub const POSIX_ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`, the whole name.
    pub const POSIX_ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// `security.`
    pub const SECURITY: u8 = 6;
    /// `system.`: data of the file system itself (inline data).
    pub const SYSTEM: u8 = 7;
    /// `system.richacl`, the whole name.
    pub const RICHACL: u8 = 8;
    /// `gnu.`
    pub const HURD: u8 = 10;
}

/// Index, prefix, and whether the prefix is the whole name.
const PREFIXES: [(u8, &[u8], bool); 7] = [
    (index::USER, b"user.", false),
    (index::POSIX_ACL_ACCESS, b"system.posix_acl_access", true),
    (index::POSIX_ACL_DEFAULT, b"system.posix_acl_default", true),
    (index::TRUSTED, b"trusted.", false),
    (index::SECURITY, b"security.", false),
    (index::RICHACL, b"system.richacl", true),
    (index::HURD, b"gnu.", false),
];

/// Index and stored name of an attribute as programs name it. `None` for a prefix that ext4 does not have (other
/// `system.` names are the file system's own) and for a prefix that nothing follows.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|&(index, prefix, whole)| {
        let rest = full.strip_prefix(prefix)?;
        (rest.is_empty() == whole).then_some((index, rest))
    })
}

/// The name programs see; `None` for attributes that they do not see.
#[must_use]
pub fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let &(_, prefix, whole) = PREFIXES.iter().find(|(i, ..)| *i == index)?;
    (name.is_empty() == whole).then(|| [prefix, name].concat())
}

/// A value, or where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value itself.
    Bytes(&'a [u8]),
    /// In an inode of its own (`ea_inode`).
    Inode {
        /// `e_value_inum`.
        ino: u32,
        /// `e_value_size`, bytes.
        size: u32,
        /// `e_hash`, which covers the name and the value's checksum.
        hash: u32,
    },
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// `e_name_index`.
    pub index: u8,
    /// The name without its prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
}

impl Attr<'_> {
    /// Bytes it takes in a body: entry and value.
    fn space(&self) -> usize {
        entry_len(self.name.len()) + self.value_space()
    }

    fn value_space(&self) -> usize {
        match self.value {
            Value::Bytes(v) => v.len().next_multiple_of(ALIGN),
            Value::Inode { .. } => 0,
        }
    }

    /// Order of entries in a block.
    fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), self.name)
    }
}

/// Bytes of an entry with its name.
fn entry_len(name_len: usize) -> usize {
    (ENTRY + name_len).next_multiple_of(ALIGN)
}

/// Bytes that a set of attributes takes; it fits where [`inode_room`] or [`block_room`] is not below.
#[must_use]
pub fn space(attrs: &[Attr<'_>]) -> usize {
    attrs.iter().map(Attr::space).sum::<usize>() + TERMINATOR
}

/// Room for attributes in an inode that has `body_len` bytes behind `i_extra_isize`.
#[must_use]
pub fn inode_room(body_len: usize) -> usize {
    body_len.saturating_sub(INODE_HEADER)
}

/// Room for attributes in a block of `block_size` bytes.
#[must_use]
pub fn block_room(block_size: usize) -> usize {
    block_size.saturating_sub(BLOCK_HEADER)
}

/// A checked list of attributes.
#[derive(Debug, Clone, Copy)]
pub struct Attrs<'a> {
    /// What value offsets count from.
    base: &'a [u8],
    /// Where entries start in it.
    first: usize,
}

impl<'a> Attrs<'a> {
    /// The attributes in an inode; `body` is all that follows its `i_extra_isize` bytes.
    /// Without the magic number there are none.
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

    /// Reads and checks the entry at `at`, and where the next one starts; `None` at the terminator.
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
            // Checked before: the only `Err` is the empty body of an inode without attributes.
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
    /// `h_refcount`: inodes that share the block.
    pub refcount: u32,
    /// `h_hash`: hash of all attributes, to find blocks that could be shared; 0 if it has none.
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

/// Changes `h_refcount` of an attribute block; the checksum is to be updated.
pub fn set_refcount(block: &mut [u8], refcount: u32) -> Result<()> {
    BlockHeader::read(block)?;
    if !(1..=REFCOUNT_MAX).contains(&refcount) {
        return Err(corrupt!(WHAT, "new refcount {refcount}"));
    }
    put(block, 4, &refcount.to_le_bytes()).ok_or_else(no_room)
}

/// Lays out `attrs` in an inode's `body` (see [`Attrs::in_inode`]); the rest is zeroed.
/// `false`, and nothing changed, if they do not fit. An empty set removes the magic number, too.
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
    // The kernel leaves e_hash 0 in the inode: it serves to find shared blocks.
    lay_out(
        body.get_mut(INODE_HEADER..).ok_or_else(no_room)?,
        0,
        &sorted,
        |_, _| 0,
    )?;
    Ok(true)
}

/// Makes `block` an attribute block that holds `attrs` and is referred to by `refcount` inodes.
/// `false`, and nothing changed, if they do not fit. The checksum is to be updated.
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

/// Writes entries upwards from `first` and values downwards from the end; the caller made sure of the room.
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

/// The attributes in the order of a block; refuses what must not be written.
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
        // Index 0 with an empty name could read as the terminator.
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

fn no_room() -> OnDiskError {
    corrupt!(WHAT, "attributes do not fit")
}

/// `e_hash` of an attribute in a block, as an entry of [`block_hash`].
fn hash_of(attr: &Attr<'_>) -> u32 {
    match attr.value {
        Value::Bytes(v) => entry_hash(attr.name, v),
        Value::Inode { hash, .. } => hash,
    }
}

/// `e_hash` of an attribute in a block. Bytes of the name count as unsigned, as in Linux since 6.2; before,
/// they were whatever `char` was, so a stored hash of a name that is not ASCII may differ.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let name = name
        .iter()
        .fold(0u32, |h, &b| h.rotate_left(5) ^ u32::from(b));
    value.chunks(ALIGN).fold(name, |h, piece| {
        let word = piece.iter().rev().fold(0, |w, &b| w << 8 | u32::from(b));
        h.rotate_left(16) ^ word
    })
}

/// `h_hash` of a block whose entries have these hashes; 0 if one has none.
fn block_hash(entries: impl IntoIterator<Item = u32>) -> u32 {
    entries
        .into_iter()
        .try_fold(0u32, |h, e| (e != 0).then_some(h.rotate_left(16) ^ e))
        .unwrap_or(0)
}

/// Checksum of the attribute block at `block_nr`.
/// `csum_seed` is the volume's, not an inode's: the block may belong to many.
#[must_use]
pub fn block_checksum(block: &[u8], csum_seed: u32, block_nr: u64) -> u32 {
    crc32c_with_hole(
        ext4_crc32c(csum_seed, &block_nr.to_le_bytes()),
        block,
        CHECKSUM_AT,
        4,
    )
}

/// Checks `h_checksum`.
pub fn verify_block_checksum(block: &[u8], csum_seed: u32, block_nr: u64) -> Result<()> {
    let stored =
        le32(block, CHECKSUM_AT).ok_or_else(|| corrupt!(WHAT, "block of {} bytes", block.len()))?;
    let computed = block_checksum(block, csum_seed, block_nr);
    if stored != computed {
        return Err(corrupt!(
            WHAT,
            "block checksum {stored:#010x}, computed {computed:#010x}"
        ));
    }
    Ok(())
}

/// Stores the right `h_checksum`.
pub fn update_block_checksum(block: &mut [u8], csum_seed: u32, block_nr: u64) -> Result<()> {
    let sum = block_checksum(block, csum_seed, block_nr);
    put(block, CHECKSUM_AT, &sum.to_le_bytes()).ok_or_else(no_room)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn bytes<'a>(index: u8, name: &'a [u8], value: &'a [u8]) -> Attr<'a> {
        Attr {
            index,
            name,
            value: Value::Bytes(value),
        }
    }

    #[test]
    fn names_as_programs_see_them() {
        type Row = (&'static [u8], Option<(u8, &'static [u8])>);
        let table: [Row; 12] = [
            (b"user.mime", Some((index::USER, b"mime"))),
            (b"user.", None),
            (b"user", None),
            (
                b"system.posix_acl_access",
                Some((index::POSIX_ACL_ACCESS, b"")),
            ),
            (
                b"system.posix_acl_default",
                Some((index::POSIX_ACL_DEFAULT, b"")),
            ),
            (b"system.posix_acl_defaults", None),
            (b"system.richacl", Some((index::RICHACL, b""))),
            (b"system.data", None),
            (
                b"trusted.overlay.opaque",
                Some((index::TRUSTED, b"overlay.opaque")),
            ),
            (
                b"security.capability",
                Some((index::SECURITY, b"capability")),
            ),
            (b"gnu.translator", Some((index::HURD, b"translator"))),
            (b"com.apple.x", None),
        ];
        for (full, split) in table {
            assert_eq!(split_name(full), split, "{}", full.escape_ascii());
            if let Some((index, name)) = split {
                assert_eq!(full_name(index, name).unwrap(), full);
            }
        }
        assert_eq!(full_name(index::SYSTEM, b"data"), None);
        assert_eq!(full_name(index::POSIX_ACL_ACCESS, b"x"), None);
    }

    #[test]
    fn what_is_refused() {
        let mut good = vec![0; 1024];
        let attrs = [bytes(1, b"ab", b"value"), bytes(6, b"cd", b"12345678")];
        assert!(write_block(&mut good, &attrs, 3).unwrap());
        assert_eq!(BlockHeader::read(&good).unwrap().refcount, 3);
        let damaged: [(usize, &[u8]); 10] = [
            (0, &[1]),        // magic
            (4, &[0]),        // refcount
            (8, &[2]),        // blocks
            (32, &[255]),     // name runs on, with NULs in it
            (34, &[0xfc, 3]), // value past the end
            (34, &[40, 0]),   // value in the entries
            (34, &[72, 0]),   // value in the terminator
            (40, &[0, 0, 2]), // too large
            (40, &[0xff, 0xff, 0xff, 0xff]),
            (48, &[0]), // NUL in the name
        ];
        for (at, bytes) in damaged {
            let mut b = good.clone();
            put(&mut b, at, bytes).unwrap();
            assert!(Attrs::in_block(&b).is_err(), "{at} {bytes:?}");
        }
        assert!(Attrs::in_block(&[]).is_err());
        let mut full = vec![0xff; 100];
        put(&mut full, 0, &MAGIC.to_le_bytes()).unwrap();
        assert!(Attrs::in_inode(&full).is_err());
        assert!(
            Attrs::in_inode(&MAGIC.to_le_bytes()).is_err(),
            "no terminator"
        );

        let before = good.clone();
        let long = [b'n'; 256];
        let huge = vec![0; VALUE_MAX + 1];
        for bad in [
            bytes(1, &long, b""),
            bytes(1, b"a\0", b""),
            bytes(0, b"", b"x"),
            bytes(1, b"n", &huge),
        ] {
            assert!(write_block(&mut good, &[bad], 1).is_err());
        }
        assert!(
            write_block(&mut good, &[attrs[0], attrs[0]], 1).is_err(),
            "twice"
        );
        assert!(set_refcount(&mut good, 0).is_err());
        assert!(set_refcount(&mut good, REFCOUNT_MAX + 1).is_err());
        assert_eq!(good, before);
    }

    #[test]
    fn an_inode_with_too_little_room_has_none() {
        for len in 0..8 {
            assert!(
                Attrs::in_inode(&vec![0; len])
                    .unwrap()
                    .iter()
                    .next()
                    .is_none()
            );
        }
    }

    #[test]
    fn values_elsewhere_keep_their_hash() {
        let elsewhere = Attr {
            index: 1,
            name: b"big",
            value: Value::Inode {
                ino: 77,
                size: 60000,
                hash: 0xabcd,
            },
        };
        let mut b = vec![0; 1024];
        assert!(write_block(&mut b, &[elsewhere], 1).unwrap());
        assert_eq!(
            Attrs::in_block(&b).unwrap().find(1, b"big"),
            Some(elsewhere)
        );
        assert_eq!(BlockHeader::read(&b).unwrap().hash, 0xabcd);
        let mut body = vec![0; 96];
        assert!(write_in_inode(&mut body, &[elsewhere]).unwrap());
        assert_eq!(
            Attrs::in_inode(&body).unwrap().find(1, b"big"),
            Some(elsewhere)
        );
    }

    type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

    fn model() -> impl Strategy<Value = Model> {
        let name = proptest::collection::vec(1u8..=255, 1..20);
        let value = proptest::collection::vec(any::<u8>(), 0..60);
        proptest::collection::btree_map((1u8..=10, name), value, 0..12)
    }

    fn attrs(model: &Model) -> Vec<Attr<'_>> {
        model.iter().map(|((i, n), v)| bytes(*i, n, v)).collect()
    }

    fn read(attrs: Attrs<'_>) -> Model {
        let bytes_of = |v| match v {
            Value::Bytes(v) => v.to_vec(),
            Value::Inode { .. } => unreachable!(),
        };
        attrs
            .iter()
            .map(|a| ((a.index, a.name.to_vec()), bytes_of(a.value)))
            .collect()
    }

    proptest! {
        #[test]
        fn round_trip(model in model(), size in 0usize..400) {
            let list = attrs(&model);
            let mut body = vec![0xEE; size];
            let fits = model.is_empty() || space(&list) <= inode_room(size);
            prop_assert_eq!(write_in_inode(&mut body, &list).unwrap(), fits);
            if fits {
                prop_assert_eq!(&read(Attrs::in_inode(&body).unwrap()), &model);
            } else {
                prop_assert!(body.iter().all(|b| *b == 0xEE));
            }

            let size = size / 4 * 4 + BLOCK_HEADER;
            let mut block = vec![0xEE; size];
            let fits = space(&list) <= block_room(size);
            prop_assert_eq!(write_block(&mut block, &list, 1).unwrap(), fits);
            if fits {
                let got = Attrs::in_block(&block).unwrap();
                prop_assert_eq!(&read(got), &model);
                prop_assert!(got.iter().is_sorted_by_key(|a| (a.index, a.name.len(), a.name)));
                for ((i, n), v) in &model {
                    prop_assert_eq!(got.find(*i, n), Some(bytes(*i, n, v)));
                }
                prop_assert_eq!(got.find(1, b"not there, as it is too long"), None);
            }
        }

        #[test]
        fn random_bytes_never_panic(
            mut b in proptest::collection::vec(any::<u8>(), 0..600), head: bool, sparse: bool,
        ) {
            if sparse {
                b.iter_mut().for_each(|b| *b &= 0x11);
            }
            if head {
                for (at, word) in [(0, MAGIC), (4, 1), (8, 1)] {
                    let _ = put(&mut b, at, &word.to_le_bytes());
                }
            }
            for attrs in [Attrs::in_inode(&b), Attrs::in_block(&b)].into_iter().flatten() {
                prop_assert!(attrs.iter().count() <= b.len() / ENTRY);
            }
            let _ = set_refcount(&mut b, 5);
            let _ = verify_block_checksum(&b, 1, 1);
            let _ = update_block_checksum(&mut b, 1, 1);
        }

        #[test]
        fn damage_is_noticed_or_harmless(model in model(), at in 0usize..1024, byte: u8) {
            let mut block = vec![0; 1024];
            if write_block(&mut block, &attrs(&model), 1).unwrap() {
                block[at] ^= byte;
                if let Ok(attrs) = Attrs::in_block(&block) {
                    let list: Vec<_> = attrs.iter().collect();
                    prop_assert!(list.len() <= 1024 / ENTRY);
                    // What was read can be written back unless two names became one.
                    let mut again = vec![0; 65536];
                    if let Ok(written) = write_block(&mut again, &list, 1) {
                        prop_assert!(written);
                        prop_assert_eq!(Attrs::in_block(&again).unwrap().iter().count(), list.len());
                    }
                }
            }
        }

        #[test]
        fn any_flipped_bit_breaks_the_checksum(bit in 0usize..1024 * 8, seed: u32, nr: u64) {
            let mut b = vec![0; 1024];
            prop_assert!(write_block(&mut b, &[bytes(1, b"name", b"value")], 1).unwrap());
            update_block_checksum(&mut b, seed, nr).unwrap();
            verify_block_checksum(&b, seed, nr).unwrap();
            prop_assert!(verify_block_checksum(&b, seed, nr ^ 1).is_err());
            b[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify_block_checksum(&b, seed, nr).is_err());
        }
    }
}
