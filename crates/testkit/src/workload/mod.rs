//! Deterministic workloads through plain POSIX calls, on any mounted directory.
//!
//! [`Plan::populate`] builds a tree that has one of everything ext4 can hold. [`mutate`] changes a
//! tree at random, and checks it against a model in memory. The same seed gives the same tree.

mod attrs;
mod bytes;
mod files;
mod model;
pub mod mutate;
mod names;
mod op;
mod plan;
mod site;
mod sync;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub use bytes::Bytes;
pub use model::Model;
pub use plan::{Plan, Section};
pub use sync::fsync_all;

use site::Site;

impl Plan {
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
            build(&site, section).with_context(|| format!("workload section {section:?}"))?;
        }
        Ok(())
    }
}

fn build(site: &Site<'_>, section: Section) -> Result<()> {
    match section {
        Section::Sizes => files::sizes(site),
        Section::Sparse => files::sparse(site),
        Section::Fragmented => files::fragmented(site),
        Section::DeepExtents => files::deep_extents(site),
        Section::Fallocate => files::fallocates(site),
        Section::Truncates => files::truncates(site),
        Section::Directories => names::directories(site),
        Section::LongNames => names::long_names(site),
        Section::Symlinks => names::symlinks(site),
        Section::Special => names::special(site),
        Section::HardLinks => names::hard_links(site),
        Section::Renames => names::renames(site),
        Section::Xattrs => attrs::xattrs(site),
        Section::Acls => attrs::acls(site),
        Section::Times => attrs::times(site),
        Section::Flags => attrs::flags(site),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{CaptureOptions, Image, Mkfs, Mounter, Tree};

    use super::Plan;

    /// Builds the same tree on two images; all captured fields must be equal.
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
