//! What a tree is made of.

/// One kind of content; each gets a directory of its own, named after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Files from 0 bytes to some MiB, around every block and page boundary.
    Sizes,
    /// Holes at the start, in the middle, at the end, beyond 4 GiB.
    Sparse,
    /// Files written in turns, so that their blocks interleave.
    Fragmented,
    /// Files of thousands of extents.
    DeepExtents,
    /// Directories of 0, 1, 100 and 20,000 entries, and a deep chain of directories.
    Directories,
    /// Names of 255 bytes and names that are not text.
    LongNames,
    /// Targets inside the inode and in a block of their own, dangling ones.
    Symlinks,
    /// Device nodes, fifos, sockets.
    Special,
    /// Several names of one inode, across directories.
    HardLinks,
    /// Extended attributes in the inode and in a block, of all name spaces.
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
    /// Files cut short and grown again.
    Truncates,
}

impl Section {
    /// All of them.
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

    /// The name of its directory.
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

/// What to build.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides content and sizes.
    pub seed: u64,
    /// Entries of the largest directory.
    pub entries: u32,
    /// Extents of the most fragmented file.
    pub extents: u32,
    /// What is built, in this order.
    pub sections: Vec<Section>,
}

impl Plan {
    /// Everything, at full size: about 60 MiB and (where there are enough inodes) 2,500 inodes.
    pub fn full(seed: u64) -> Self {
        Self {
            seed,
            entries: 20_000,
            extents: 4_000,
            sections: Section::ALL.to_vec(),
        }
    }

    /// Everything, small: about 15 MiB, for quick tests.
    pub fn small(seed: u64) -> Self {
        Self {
            entries: 500,
            extents: 400,
            ..Self::full(seed)
        }
    }

    /// Leaves `section` out.
    #[must_use]
    pub fn without(mut self, section: Section) -> Self {
        self.sections.retain(|s| *s != section);
        self
    }
}
