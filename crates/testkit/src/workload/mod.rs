//! Deterministic workloads through plain POSIX calls, on any mounted directory.
//!
//! [`Plan::populate`] builds a tree that has one of everything ext4 can hold; [`mutate`] changes a
//! tree at random against an expectation kept in memory. The same seed gives the same tree.

mod attrs;
mod bytes;
mod files;
mod model;
pub mod mutate;
mod names;
mod sync;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use bytes::Bytes;
pub use model::Model;
pub use sync::fsync_all;

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

    /// Builds the tree in the directory `root`.
    pub fn populate(&self, root: &Path) -> Result<()> {
        let stat =
            rustix::fs::statvfs(root).with_context(|| format!("statvfs {}", root.display()))?;
        let bytes = Bytes::new(self.seed);
        for &section in &self.sections {
            let dir = root.join(section.dir());
            fs::create_dir(&dir).with_context(|| format!("mkdir {}", dir.display()))?;
            let seed = bytes.seed_for(section.dir());
            let site = Site {
                dir,
                block: stat.f_bsize,
                free_inodes: stat.f_ffree,
                bytes: Bytes::new(seed),
                plan: self,
            };
            site.build(section)
                .with_context(|| format!("workload section {section:?}"))?;
        }
        Ok(())
    }
}

/// Where and with what a section is built.
struct Site<'p> {
    dir: PathBuf,
    /// Block size of the file system in bytes.
    block: u64,
    /// Free inodes before the first section.
    free_inodes: u64,
    bytes: Bytes,
    plan: &'p Plan,
}

impl Site<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn build(&self, section: Section) -> Result<()> {
        match section {
            Section::Sizes => files::sizes(self),
            Section::Sparse => files::sparse(self),
            Section::Fragmented => files::fragmented(self),
            Section::DeepExtents => files::deep_extents(self),
            Section::Fallocate => files::fallocates(self),
            Section::Truncates => files::truncates(self),
            Section::Directories => names::directories(self),
            Section::LongNames => names::long_names(self),
            Section::Symlinks => names::symlinks(self),
            Section::Special => names::special(self),
            Section::HardLinks => names::hard_links(self),
            Section::Renames => names::renames(self),
            Section::Xattrs => attrs::xattrs(self),
            Section::Acls => attrs::acls(self),
            Section::Times => attrs::times(self),
            Section::Flags => attrs::flags(self),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{CaptureOptions, Image, Mkfs, Mounter, Tree};

    use super::Plan;

    /// Builds the same tree on two images; all that was asked for must be equal.
    #[test]
    fn the_same_seed_gives_the_same_tree() {
        let capture = || {
            let image = Image::make(256 << 20, &Mkfs::new()).unwrap();
            let mount = Mounter::ext4("").mount(image.path()).unwrap();
            Plan::small(7).populate(mount.path()).unwrap();
            let options = CaptureOptions {
                mtime: false,
                sparse: true,
                flags: true,
                ..CaptureOptions::default()
            };
            let tree = Tree::capture(mount.path(), &options).unwrap();
            mount.umount().unwrap();
            image.e2fsck_fn().unwrap();
            tree
        };
        let (a, b) = (capture(), capture());
        assert!(a.entries.len() > 700, "{} entries", a.entries.len());
        assert_eq!(crate::tree::diff(&a, &b), Vec::<String>::new());
    }
}
