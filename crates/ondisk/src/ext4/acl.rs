//! POSIX access control lists: ext4's compact form on disk, the form that programs see as an
//! attribute (`linux/posix_acl_xattr.h`), and the relation of a list to a mode (POSIX 1003.1e draft
//! 17, section 23).

use crate::bytes::{le16, le32};
use crate::error::{OnDiskError, Result, corrupt};

/// `EXT4_ACL_VERSION`.
const DISK_VERSION: u32 = 1;
/// `POSIX_ACL_XATTR_VERSION`.
const XATTR_VERSION: u32 = 2;
/// Bytes of either header: the version.
const HEADER: usize = 4;
/// Bytes of an entry without an id on disk.
const SHORT: usize = 4;
/// Bytes of an entry with an id.
const LONG: usize = 8;
/// `ACL_UNDEFINED_ID`: the id field of entries without an id.
const NO_ID: u32 = u32::MAX;

/// The subject of an entry. The order is that of the entries in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// `ACL_USER_OBJ`: the owner.
    UserObj,
    /// `ACL_USER`: this user id.
    User(u32),
    /// `ACL_GROUP_OBJ`: the file's group.
    GroupObj,
    /// `ACL_GROUP`: this group id.
    Group(u32),
    /// `ACL_MASK`: limits the permissions of users, the group and groups.
    Mask,
    /// `ACL_OTHER`: everyone else.
    Other,
}

impl Tag {
    fn from_raw(raw: u16, id: u32) -> Option<Tag> {
        Some(match raw {
            0x01 => Tag::UserObj,
            0x02 => Tag::User(id),
            0x04 => Tag::GroupObj,
            0x08 => Tag::Group(id),
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }

    fn raw(self) -> u16 {
        match self {
            Tag::UserObj => 0x01,
            Tag::User(_) => 0x02,
            Tag::GroupObj => 0x04,
            Tag::Group(_) => 0x08,
            Tag::Mask => 0x10,
            Tag::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Tag::User(id) | Tag::Group(id) => Some(id),
            _ => None,
        }
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// The subject.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub perm: u8,
}

/// The error for a list that programs may not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// Not a list. EINVAL.
    #[error("invalid ACL: {0}")]
    Invalid(&'static str),
    /// An unknown version. EOPNOTSUPP.
    #[error("ACL version {0}")]
    Version(u32),
}

/// A valid list: owner, users, group, groups, mask, other. The three of the mode are always there,
/// and the mask if there is a user or group. (A list read from disk may name a user or group twice,
/// as the kernel allows it.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// The permissions of one class of a mode, in the form of an entry.
fn class(mode: u32, shift: u32) -> u8 {
    (mode >> shift & 7) as u8
}

/// Checks order, required entries and permissions.
fn check(entries: &[AclEntry]) -> core::result::Result<(), AclError> {
    let rank = |e: &AclEntry| e.tag.raw();
    // User and group entries may come in any order of ids; all other entries occur once.
    let ordered = entries
        .is_sorted_by(|a, b| rank(a) < rank(b) || (rank(a) == rank(b) && a.tag.id().is_some()));
    if !ordered {
        return Err(AclError::Invalid("entries out of order"));
    }
    if entries.iter().any(|e| e.perm > 7) {
        return Err(AclError::Invalid("unknown permission"));
    }
    if entries.iter().any(|e| e.tag.id() == Some(NO_ID)) {
        return Err(AclError::Invalid("undefined id"));
    }
    let has = |tag| entries.iter().any(|e| e.tag == tag);
    if ![Tag::UserObj, Tag::GroupObj, Tag::Other]
        .into_iter()
        .all(has)
    {
        return Err(AclError::Invalid("owner, group or other missing"));
    }
    if entries.iter().any(|e| e.tag.id().is_some()) && !has(Tag::Mask) {
        return Err(AclError::Invalid("mask missing"));
    }
    Ok(())
}

impl Acl {
    /// A list of these entries, if they are valid and no user or group is named twice.
    pub fn new(entries: Vec<AclEntry>) -> core::result::Result<Acl, AclError> {
        check(&entries)?;
        let mut tags: Vec<Tag> = entries.iter().map(|e| e.tag).collect();
        tags.sort_unstable();
        if tags.array_windows().any(|[a, b]| a == b) {
            return Err(AclError::Invalid("user or group named twice"));
        }
        Ok(Acl { entries })
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Decodes the attribute form. `None` is a list without entries: setting it removes the list.
    pub fn from_xattr(bytes: &[u8]) -> core::result::Result<Option<Acl>, AclError> {
        let version = le32(bytes, 0).ok_or(AclError::Invalid("too short"))?;
        if version != XATTR_VERSION {
            return Err(AclError::Version(version));
        }
        let (raw, rest) = bytes.get(HEADER..).unwrap_or(&[]).as_chunks::<LONG>();
        if !rest.is_empty() {
            return Err(AclError::Invalid("length"));
        }
        if raw.is_empty() {
            return Ok(None);
        }
        let entry = |&[t0, t1, p0, p1, i0, i1, i2, i3]: &[u8; LONG]| {
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let tag = Tag::from_raw(u16::from_le_bytes([t0, t1]), id)
                .ok_or(AclError::Invalid("unknown tag"))?;
            let perm = u8::try_from(u16::from_le_bytes([p0, p1]));
            Ok(AclEntry {
                tag,
                perm: perm.map_err(|_| AclError::Invalid("unknown permission"))?,
            })
        };
        let entries: core::result::Result<Vec<AclEntry>, AclError> =
            raw.iter().map(entry).collect();
        Acl::new(entries?).map(Some)
    }

    /// Encodes the attribute form.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = XATTR_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend_from_slice(&e.tag.raw().to_le_bytes());
            out.extend_from_slice(&u16::from(e.perm).to_le_bytes());
            out.extend_from_slice(&e.tag.id().unwrap_or(NO_ID).to_le_bytes());
        }
        out
    }

    /// Decodes the value on disk of `system.posix_acl_access` or `_default`. `None` is a list
    /// without entries.
    pub fn from_disk(bytes: &[u8]) -> Result<Option<Acl>> {
        const WHAT: &str = "ACL";
        let short = || corrupt!(WHAT, "ends in an entry, after {} bytes", bytes.len());
        let version = le32(bytes, 0).ok_or_else(short)?;
        if version != DISK_VERSION {
            return Err(OnDiskError::Unsupported {
                feature: format!("ACL version {version}"),
            });
        }
        let mut entries = Vec::new();
        let mut next = HEADER;
        while next < bytes.len() {
            let at = next;
            let (raw, perm) = le16(bytes, at).zip(le16(bytes, at + 2)).ok_or_else(short)?;
            let bad = || corrupt!(WHAT, "entry at {at}: tag {raw:#x}, permissions {perm:#o}");
            let mut tag = Tag::from_raw(raw, NO_ID).ok_or_else(bad)?;
            next += SHORT;
            if tag.id().is_some() {
                let id = le32(bytes, next).ok_or_else(short)?;
                tag = Tag::from_raw(raw, id).ok_or_else(bad)?;
                next += LONG - SHORT;
            }
            entries.push(AclEntry {
                tag,
                perm: u8::try_from(perm).map_err(|_| bad())?,
            });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        check(&entries).map_err(|e| corrupt!(WHAT, "{e}"))?;
        Ok(Some(Acl { entries }))
    }

    /// Encodes the value on disk.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        let mut out = DISK_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend_from_slice(&e.tag.raw().to_le_bytes());
            out.extend_from_slice(&u16::from(e.perm).to_le_bytes());
            if let Some(id) = e.tag.id() {
                out.extend_from_slice(&id.to_le_bytes());
            }
        }
        out
    }

    /// The nine permission bits of a file with this access list: if there is a mask, it gives the
    /// group's bits.
    #[must_use]
    pub fn mode_bits(&self) -> u32 {
        let group = self.group_class();
        self.entries.iter().fold(0, |mode, e| {
            let perm = u32::from(e.perm);
            match e.tag {
                Tag::UserObj => mode | perm << 6,
                Tag::Other => mode | perm,
                tag if tag == group => mode | perm << 3,
                _ => mode,
            }
        })
    }

    /// Whether the mode is equivalent: there is no user, group or mask entry, so the list need not
    /// be stored.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.entries
            .iter()
            .all(|e| matches!(e.tag, Tag::UserObj | Tag::GroupObj | Tag::Other))
    }

    /// Changes an access list as chmod(2) does to `mode`.
    pub fn chmod(&mut self, mode: u32) {
        self.for_classes(|perm, shift| *perm = class(mode, shift));
    }

    /// Derives the access list and mode of a new file created with `mode`, from `self` as the
    /// default list of its parent directory (the umask does not apply). The list is `None` if the
    /// mode is equivalent. A new directory inherits the default list, too.
    #[must_use]
    pub fn inherit(&self, mode: u32) -> (Option<Acl>, u32) {
        let mut access = self.clone();
        access.for_classes(|perm, shift| *perm &= class(mode, shift));
        let mode = mode & !0o777 | access.mode_bits();
        ((!access.is_minimal()).then_some(access), mode)
    }

    /// The entry that the group bits of a mode correspond to.
    fn group_class(&self) -> Tag {
        if self.entries.iter().any(|e| e.tag == Tag::Mask) {
            Tag::Mask
        } else {
            Tag::GroupObj
        }
    }

    /// Calls `f` with the permissions that correspond to each class of the mode, and that class's
    /// shift.
    fn for_classes(&mut self, f: impl Fn(&mut u8, u32)) {
        let group = self.group_class();
        for e in &mut self.entries {
            match e.tag {
                Tag::UserObj => f(&mut e.perm, 6),
                Tag::Other => f(&mut e.perm, 0),
                tag if tag == group => f(&mut e.perm, 3),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
