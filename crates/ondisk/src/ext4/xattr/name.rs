//! Names of attributes: the form that programs use, and the stored form.

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

/// Index and stored name for the name that programs use. `None` for a prefix that ext4 does not
/// have (other `system.` names belong to the file system itself), and for a bare prefix.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|&(index, prefix, whole)| {
        let rest = full.strip_prefix(prefix)?;
        (rest.is_empty() == whole).then_some((index, rest))
    })
}

/// The name that programs see; `None` for attributes that they do not see.
#[must_use]
pub fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let &(_, prefix, whole) = PREFIXES.iter().find(|(i, ..)| *i == index)?;
    (name.is_empty() == whole).then(|| [prefix, name].concat())
}
