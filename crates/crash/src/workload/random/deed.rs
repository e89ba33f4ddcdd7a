//! The kinds of operations, their families and their usual weights.

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is told by its name")]
pub enum Deed {
    Create,
    Mkdir,
    Symlink,
    Write,
    Truncate,
    Fallocate,
    Unlink,
    HoldUnlink,
    Rmdir,
    Link,
    Rename,
    Exchange,
    Chmod,
    Chown,
    SetXattr,
    RemoveXattr,
    Fsync,
    Fdatasync,
    FsyncDir,
    SyncAll,
    MapForm,
    Tmpfile,
    Hold,
    LinkHeld,
    Close,
    MapWrite,
    Append,
    Copy,
    Mkfifo,
    RenameNew,
    Whiteout,
    Flags,
    Acl,
    LargeXattr,
    Limit,
    Project,
    Memory,
    Trim,
    Atomic,
    Early,
    Commit,
    Abort,
    Freeze,
}

/// A family: operations on the same thing, which meet when they are drawn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The content of files.
    Content,
    /// Creating, renaming and removing names.
    Names,
    /// Files that are held open, with a name or without.
    Handles,
    /// Attributes, flags and limits.
    Attributes,
    /// Syncs.
    Syncs,
    /// Atomic groups.
    Groups,
    /// The volume as a whole.
    Volume,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 7] = [
        Family::Content,
        Family::Names,
        Family::Handles,
        Family::Attributes,
        Family::Syncs,
        Family::Groups,
        Family::Volume,
    ];

    /// Its name in lower case.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Kinds with their weights.
pub type Weights = Vec<(Deed, u8)>;

/// The usual weights: common operations of programs.
pub(super) const USUAL: [(Deed, u8); 26] = [
    (Deed::Create, 12),
    (Deed::Mkdir, 5),
    (Deed::Symlink, 4),
    (Deed::Write, 24),
    (Deed::Truncate, 5),
    (Deed::Fallocate, 3),
    (Deed::Unlink, 4),
    (Deed::HoldUnlink, 1),
    (Deed::Rmdir, 3),
    (Deed::Link, 3),
    (Deed::Rename, 5),
    (Deed::Exchange, 2),
    (Deed::Chmod, 2),
    (Deed::Chown, 2),
    (Deed::SetXattr, 4),
    (Deed::RemoveXattr, 2),
    (Deed::Fsync, 9),
    (Deed::Fdatasync, 4),
    (Deed::FsyncDir, 3),
    (Deed::SyncAll, 1),
    (Deed::MapForm, 2),
    (Deed::Tmpfile, 2),
    (Deed::Hold, 2),
    (Deed::LinkHeld, 1),
    (Deed::Close, 1),
    (Deed::MapWrite, 3),
];

impl Deed {
    /// All kinds.
    pub const ALL: [Deed; 43] = [
        Deed::Create,
        Deed::Mkdir,
        Deed::Symlink,
        Deed::Write,
        Deed::Truncate,
        Deed::Fallocate,
        Deed::Unlink,
        Deed::HoldUnlink,
        Deed::Rmdir,
        Deed::Link,
        Deed::Rename,
        Deed::Exchange,
        Deed::Chmod,
        Deed::Chown,
        Deed::SetXattr,
        Deed::RemoveXattr,
        Deed::Fsync,
        Deed::Fdatasync,
        Deed::FsyncDir,
        Deed::SyncAll,
        Deed::MapForm,
        Deed::Tmpfile,
        Deed::Hold,
        Deed::LinkHeld,
        Deed::Close,
        Deed::MapWrite,
        Deed::Append,
        Deed::Copy,
        Deed::Mkfifo,
        Deed::RenameNew,
        Deed::Whiteout,
        Deed::Flags,
        Deed::Acl,
        Deed::LargeXattr,
        Deed::Limit,
        Deed::Project,
        Deed::Memory,
        Deed::Trim,
        Deed::Atomic,
        Deed::Early,
        Deed::Commit,
        Deed::Abort,
        Deed::Freeze,
    ];

    /// Its family.
    pub fn family(self) -> Family {
        match self {
            Deed::Write
            | Deed::Truncate
            | Deed::Fallocate
            | Deed::MapForm
            | Deed::MapWrite
            | Deed::Append
            | Deed::Copy => Family::Content,
            Deed::Create
            | Deed::Mkdir
            | Deed::Symlink
            | Deed::Unlink
            | Deed::Rmdir
            | Deed::Link
            | Deed::Rename
            | Deed::Exchange
            | Deed::Mkfifo
            | Deed::RenameNew
            | Deed::Whiteout => Family::Names,
            Deed::HoldUnlink | Deed::Tmpfile | Deed::Hold | Deed::LinkHeld | Deed::Close => {
                Family::Handles
            }
            Deed::Chmod
            | Deed::Chown
            | Deed::SetXattr
            | Deed::RemoveXattr
            | Deed::Flags
            | Deed::Acl
            | Deed::LargeXattr
            | Deed::Limit
            | Deed::Project => Family::Attributes,
            Deed::Fsync | Deed::Fdatasync | Deed::FsyncDir | Deed::SyncAll => Family::Syncs,
            Deed::Atomic | Deed::Early | Deed::Commit | Deed::Abort => Family::Groups,
            Deed::Memory | Deed::Trim | Deed::Freeze => Family::Volume,
        }
    }

    /// Its name: words in lower case, joined by hyphens.
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }
}
