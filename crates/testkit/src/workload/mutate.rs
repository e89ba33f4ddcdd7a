//! Random changes, reproducible from a seed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

pub use super::op::Op;
use super::{Bytes, Model, fsync_all};
use crate::tree::{CaptureOptions, Time, Tree, diff};

/// Files stay below this size in bytes.
const FILE_MAX: u64 = 400_000;
/// The tree stays near this many entries.
const ENTRIES: usize = 250;

/// A random workload on one directory: makes operations that must succeed, does them, and knows
/// what must come out.
#[derive(Clone, Debug)]
pub struct Mutator {
    bytes: Bytes,
    rng: fastrand::Rng,
    model: Model,
    serial: u64,
    /// Paths changed since the last mark.
    touched: BTreeSet<String>,
    marked: Option<Model>,
    /// Files may have unwritten blocks.
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

    /// Without calls that need unwritten blocks, which block-mapped files do not have.
    #[must_use]
    pub fn without_preallocation(mut self) -> Self {
        self.preallocates = false;
        self
    }

    /// What must be there now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Makes and does `count` operations below `root`; an error names the operation that failed.
    pub fn run(&mut self, root: &Path, count: usize) -> Result<()> {
        for i in 0..count {
            let op = self.next_op();
            op.apply(root, &self.bytes)
                .with_context(|| format!("operation {i}"))?;
        }
        Ok(())
    }

    /// Compares the tree below `root` with the expectation.
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

    /// After a crash and recovery: whatever was not touched since the mark must be as it was
    /// marked.
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

    /// The next operation, already applied to the expectation.
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

    fn file(&mut self) -> Option<String> {
        let paths = self.model.files();
        let index = self.rng.usize(..paths.len().max(1));
        paths.get(index).map(|p| (*p).to_owned())
    }

    fn directory(&mut self) -> Option<String> {
        let paths = self.model.directories();
        let index = self.rng.usize(..paths.len().max(1));
        paths.get(index).map(|p| (*p).to_owned())
    }

    fn any(&mut self) -> Option<String> {
        let paths = self.model.all();
        let index = self.rng.usize(..paths.len().max(1));
        paths.get(index).map(|p| (*p).to_owned())
    }

    /// A path that does not exist, in a directory that does.
    fn fresh(&mut self) -> Option<String> {
        let dir = self.directory()?;
        self.serial += 1;
        let leaf = format!(
            "{}{}",
            self.serial,
            "-long-name".repeat(self.rng.usize(..5))
        );
        Some(if dir.is_empty() {
            leaf
        } else {
            format!("{dir}/{leaf}")
        })
    }

    /// One candidate; `None` if what it needs does not exist.
    fn choose(&mut self) -> Option<Op> {
        let full = self.model.all().len() > ENTRIES;
        Some(match self.rng.u32(..100) {
            0..14 if !full => Op::Create {
                path: self.fresh()?,
                mode: *self.rng.choice(&[0o600, 0o644, 0o444])?,
            },
            14..18 if !full => Op::Mkdir {
                path: self.fresh()?,
                mode: *self.rng.choice(&[0o700, 0o755])?,
            },
            18..20 if !full => Op::Symlink {
                path: self.fresh()?,
                target: "t".repeat(*self.rng.choice(&[1, 20, 59, 60, 300])?),
            },
            20..24 if !full => Op::Link {
                from: self.file()?,
                to: self.fresh()?,
            },
            24..48 => {
                let path = self.file()?;
                let length = 1usize << self.rng.u32(0..16);
                let length = self.rng.usize(1..=length);
                // Half of the writes append.
                let end = self.model.size(&path);
                let offset = if self.rng.bool() {
                    end
                } else {
                    self.rng.u64(..end + 8_192)
                };
                Op::Write {
                    path,
                    offset: offset.min(FILE_MAX),
                    key: self.rng.u64(..),
                    length,
                }
            }
            48..52 if self.preallocates => {
                let (path, offset, length) = self.range()?;
                Op::Zero {
                    path,
                    offset,
                    length,
                }
            }
            48..56 => {
                let (path, offset, length) = self.range()?;
                Op::Punch {
                    path,
                    offset,
                    length,
                }
            }
            56..61 => Op::Truncate {
                path: self.file()?,
                size: self.rng.u64(..FILE_MAX / 4),
            },
            61..69 => {
                let path = self.any()?;
                if !self.model.is_directory(&path) {
                    Op::Unlink { path }
                } else if self.model.below(&path).is_empty() {
                    Op::Rmdir { path }
                } else {
                    return None;
                }
            }
            69..76 => self.rename()?,
            76..78 => self.exchange()?,
            78..81 => Op::Chmod {
                path: self.not_symlink()?,
                mode: self.rng.u32(..0o1000) | 0o400,
            },
            81..84 => Op::Chown {
                path: self.any()?,
                uid: self.rng.u32(..100_000),
                gid: self.rng.u32(..100_000),
            },
            84..88 => {
                let name = format!("user.{}", self.rng.choice(["a", "second", "the-third"])?);
                Op::SetXattr {
                    path: self.not_symlink()?,
                    name,
                    key: self.rng.u64(..),
                    length: self.rng.usize(..120),
                }
            }
            88..90 => {
                let path = self.any()?;
                let name = self
                    .model
                    .xattr_names(&path)
                    .first()
                    .map(|n| (*n).to_owned())?;
                Op::RemoveXattr { path, name }
            }
            90..94 => {
                // Within what an inode without the extra time bits holds too.
                let sec = self.rng.i64(-(1 << 31)..1 << 31);
                Op::SetTimes {
                    path: self.any()?,
                    mtime: Time(sec, self.rng.i64(0..1_000_000_000)),
                }
            }
            94..99 => Op::Fsync {
                path: self.not_symlink()?,
            },
            99 => Op::SyncFs,
            _ => return None,
        })
    }

    fn not_symlink(&mut self) -> Option<String> {
        self.any().filter(|p| !self.model.is_symlink(p))
    }

    fn range(&mut self) -> Option<(String, u64, usize)> {
        let path = self.file()?;
        let offset = self.rng.u64(..self.model.size(&path) + 4_096).min(FILE_MAX);
        Some((path, offset, self.rng.usize(1..40_000)))
    }

    fn rename(&mut self) -> Option<Op> {
        let from = self.any()?;
        let to = if self.rng.u32(..3) == 0 {
            self.any()?
        } else {
            self.fresh()?
        };
        let inside = |a: &str, b: &str| b == a || b.starts_with(&format!("{a}/"));
        if inside(&from, &to) || inside(&to, &from) {
            return None;
        }
        if self.model.exists(&to) {
            let (a, b) = (self.model.is_directory(&from), self.model.is_directory(&to));
            if a != b || (b && !self.model.below(&to).is_empty()) {
                return None;
            }
        }
        Some(Op::Rename { from, to })
    }

    fn exchange(&mut self) -> Option<Op> {
        let (a, b) = (self.any()?, self.any()?);
        let inside = |a: &str, b: &str| b == a || b.starts_with(&format!("{a}/"));
        if inside(&a, &b) || inside(&b, &a) || self.model.same_inode(&a, &b) {
            return None;
        }
        Some(Op::Exchange { a, b })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{Image, Mkfs, Mounter};

    use super::Mutator;

    /// The model is right about the kernel's ext4: so a difference on another file system is its
    /// fault.
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

    /// What was synced survives a crash of the kernel's ext4, and the check does notice a lost
    /// change.
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
