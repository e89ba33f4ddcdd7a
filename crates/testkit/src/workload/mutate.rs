//! Random changes of a tree, reproducible by their seed.

mod attributes;
mod content;
mod names;
mod pick;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

pub use super::op::Op;
use super::{Bytes, Model, fsync_all};
use crate::tree::{CaptureOptions, Tree, diff};

/// Number of entries that the tree stays near.
const ENTRIES: usize = 250;

/// A random workload on one directory: generates operations that must succeed, runs them, and knows
/// the expected tree.
#[derive(Clone, Debug)]
pub struct Mutator {
    bytes: Bytes,
    rng: fastrand::Rng,
    model: Model,
    serial: u64,
    /// Paths changed since the last mark.
    touched: BTreeSet<String>,
    marked: Option<Model>,
    /// Whether files may have unwritten blocks.
    preallocates: bool,
}

impl Mutator {
    /// A workload that starts from an empty directory owned by root with mode 0755.
    pub fn new(seed: u64) -> Self {
        let bytes = Bytes::new(seed);
        Self {
            bytes,
            rng: bytes.rng(),
            model: Model::new(bytes),
            serial: 0,
            touched: BTreeSet::new(),
            marked: None,
            preallocates: true,
        }
    }

    /// The same workload without calls that need unwritten blocks, which block-mapped files do not
    /// have.
    #[must_use]
    pub fn without_preallocation(mut self) -> Self {
        self.preallocates = false;
        self
    }

    /// The expected tree.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Generates and runs `count` operations below `root`; an error names the operation that
    /// failed.
    pub fn run(&mut self, root: &Path, count: usize) -> Result<()> {
        for i in 0..count {
            let op = self.next_op();
            op.apply(root, &self.bytes)
                .with_context(|| format!("operation {i}"))?;
        }
        Ok(())
    }

    /// Compares the tree below `root` with the expected one.
    pub fn verify(&self, root: &Path) -> Result<Vec<String>> {
        Ok(diff(
            &self.model.tree(),
            &Tree::capture(root, &CaptureOptions::default())?,
        ))
    }

    /// Makes everything durable ([`fsync_all`]) and remembers this state for
    /// [`Mutator::verify_marked`].
    pub fn sync_and_mark(&mut self, root: &Path) -> Result<()> {
        fsync_all(root)?;
        self.marked = Some(self.model.clone());
        self.touched.clear();
        Ok(())
    }

    /// Compares the tree after a crash and recovery: paths that were not touched since the mark
    /// must be as they were at the mark.
    pub fn verify_marked(&self, root: &Path) -> Result<Vec<String>> {
        let Some(marked) = &self.marked else {
            anyhow::bail!("nothing was marked")
        };
        let mut expected = marked.tree();
        let mut found = Tree::capture(root, &CaptureOptions::default())?;
        for tree in [&mut expected, &mut found] {
            tree.entries.retain(|path, _| !self.touched.contains(path));
        }
        Ok(diff(&expected, &found))
    }

    /// The next operation, which is already applied to the model.
    pub fn next_op(&mut self) -> Op {
        let op = loop {
            if let Some(op) = self.choose() {
                break op;
            }
        };
        self.touched.extend(self.model.touched(&op));
        self.model.apply(&op);
        self.touched.extend(self.model.touched(&op));
        op
    }

    /// A candidate; `None` if there is no file that it needs.
    fn choose(&mut self) -> Option<Op> {
        let full = self.model.all().len() > ENTRIES;
        match self.rng.u32(..100) {
            0..14 if !full => self.create(),
            14..18 if !full => self.mkdir(),
            18..20 if !full => self.symlink(),
            20..24 if !full => self.link(),
            24..48 => self.write(),
            48..52 if self.preallocates => self.zero(),
            48..56 => self.punch(),
            56..61 => self.truncate(),
            61..69 => self.remove(),
            69..76 => self.rename(),
            76..78 => self.exchange(),
            78..81 => self.chmod(),
            81..84 => self.chown(),
            84..88 => self.set_xattr(),
            88..90 => self.remove_xattr(),
            90..94 => self.set_times(),
            94..99 => self.not_symlink().map(|path| Op::Fsync { path }),
            99 => Some(Op::SyncFs),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{Image, Mkfs, Mounter};

    use super::Mutator;

    /// The model agrees with the kernel's ext4, so a difference on another file system is that file
    /// system's fault.
    #[test]
    fn the_model_agrees_with_the_kernel() {
        for (seed, block) in [(1, 1024), (2, 2048), (3, 4096)] {
            let image = Image::make(128 << 20, &Mkfs::blocks(block)).unwrap();
            let kernel = Mounter::ext4("");
            let mount = kernel.mount(image.path()).unwrap();
            let root = mount.path().join("w");
            std::fs::create_dir(&root).unwrap();
            let mut work = Mutator::new(seed);
            for _ in 0..4 {
                work.run(&root, 500).unwrap();
                assert_eq!(
                    work.verify(&root).unwrap(),
                    Vec::<String>::new(),
                    "seed {seed}"
                );
            }
            mount.umount().unwrap();
            image.e2fsck_fn().unwrap();
            let mount = kernel.mount(image.path()).unwrap();
            assert_eq!(
                work.verify(&mount.path().join("w")).unwrap(),
                Vec::<String>::new(),
                "seed {seed}, remounted"
            );
        }
    }

    /// Synced changes survive a crash of the kernel's ext4, and the check notices a lost change.
    #[test]
    fn what_was_marked_survives_a_crash() {
        let image = Image::make(128 << 20, &Mkfs::new()).unwrap();
        let kernel = Mounter::ext4("");
        let mount = kernel.mount(image.path()).unwrap();
        let root = mount.path().join("w");
        std::fs::create_dir(&root).unwrap();
        let mut work = Mutator::new(4);
        work.run(&root, 800).unwrap();
        work.sync_and_mark(&root).unwrap();
        work.run(&root, 30).unwrap();
        mount.crash().unwrap();

        let mount = kernel.mount(image.path()).unwrap();
        let root = mount.path().join("w");
        assert_eq!(work.verify_marked(&root).unwrap(), Vec::<String>::new());
        let kept = work
            .model()
            .files()
            .into_iter()
            .find(|f| !work.touched.contains(*f))
            .unwrap()
            .to_owned();
        std::fs::write(root.join(&kept), "something else").unwrap();
        assert_ne!(work.verify_marked(&root).unwrap(), Vec::<String>::new());
    }
}
