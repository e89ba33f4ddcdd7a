//! Logical changes of files, noted in handles for file-level journals.

use crate::ids::Ino;

/// One logical change. Block journals ignore it; file-level records are built from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Attributes or size of an inode.
    Inode(Ino),
    /// Extents of an inode in a range of file blocks.
    Extents {
        /// The inode.
        ino: Ino,
        /// First file block.
        first: u32,
        /// Number of file blocks.
        count: u32,
    },
    /// Extended attributes of an inode.
    Xattrs(Ino),
    /// A name came into being (create, link, the new side of a rename).
    Link {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
        /// Target.
        ino: Ino,
    },
    /// A name went away (unlink, rmdir, the old side of a rename).
    Unlink {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
        /// What it named.
        ino: Ino,
    },
}
