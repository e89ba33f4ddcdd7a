//! Plans: the sections of a tree, and their sizes.

/// A kind of content; each has a directory of its own, named after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Files from 0 bytes to some MiB, with sizes around each block and page boundary.
    Sizes,
    /// Holes at the start, in the middle, at the end, beyond 4 GiB.
    Sparse,
    /// Files written in turns, so that their blocks interleave.
    Fragmented,
    /// Files of thousands of extents.
    DeepExtents,
    /// Directories of 0, 1, 100 and `entries` entries, and a deep chain of directories.
    Directories,
    /// Names of 255 bytes, and names that are not valid text.
    LongNames,
    /// Targets in the inode and in a block, and dangling ones.
    Symlinks,
    /// Device nodes, fifos, sockets.
    Special,
    /// Several names of one inode, across directories.
    HardLinks,
    /// Extended attributes of all name spaces, in the inode and in a block.
    Xattrs,
    /// POSIX access and default ACLs.
    Acls,
    /// Times before 1970 and after 2038, with nanoseconds.
    Times,
    /// Preallocation, punched holes, zeroed ranges.
    Fallocate,
    /// Inode flags: immutable, append-only, no-dump, no-atime.
    Flags,
    /// Renames within and across directories, over existing names, exchanges.
    Renames,
    /// Files that are truncated and grow again.
    Truncates,
}

impl Section {
    /// All sections.
    pub const ALL: [Self; 16] = [
        Self::Sizes,
        Self::Sparse,
        Self::Fragmented,
        Self::DeepExtents,
        Self::Directories,
        Self::LongNames,
        Self::Symlinks,
        Self::Special,
        Self::HardLinks,
        Self::Xattrs,
        Self::Acls,
        Self::Times,
        Self::Fallocate,
        Self::Flags,
        Self::Renames,
        Self::Truncates,
    ];

    /// The name of the section's directory.
    pub fn dir(self) -> &'static str {
        match self {
            Self::Sizes => "sizes",
            Self::Sparse => "sparse",
            Self::Fragmented => "fragmented",
            Self::DeepExtents => "deep-extents",
            Self::Directories => "directories",
            Self::LongNames => "long-names",
            Self::Symlinks => "symlinks",
            Self::Special => "special",
            Self::HardLinks => "hard-links",
            Self::Xattrs => "xattrs",
            Self::Acls => "acls",
            Self::Times => "times",
            Self::Fallocate => "fallocate",
            Self::Flags => "flags",
            Self::Renames => "renames",
            Self::Truncates => "truncates",
        }
    }
}

/// A plan of a tree to build.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of content and sizes.
    pub seed: u64,
    /// Entries of the largest directory.
    pub entries: u32,
    /// Extents of the most fragmented file.
    pub extents: u32,
    /// The sections to build, in this order.
    pub sections: Vec<Section>,
}

impl Plan {
    /// All sections at full size: about 60 MiB, and 2,500 inodes if there are enough.
    pub fn full(seed: u64) -> Self {
        Self {
            seed,
            entries: 20_000,
            extents: 4_000,
            sections: Section::ALL.to_vec(),
        }
    }

    /// All sections at a small size: about 15 MiB, for quick tests.
    pub fn small(seed: u64) -> Self {
        Self {
            entries: 500,
            extents: 400,
            ..Self::full(seed)
        }
    }

    /// The same plan without `section`.
    #[must_use]
    pub fn without(mut self, section: Section) -> Self {
        self.sections.retain(|s| *s != section);
        self
    }
}
