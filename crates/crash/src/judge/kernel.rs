//! Oracle 9: compares the trees that the kernel's ext4 and StetFS show of a volume. It needs root,
//! a loop device and a mount; device and mount are removed in any case.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use stetfs::low::{FileType, Ino, MemDevice};
use stetfs_testkit::tree::{Entry, Kind, content_hash, escape, xattr_value};
use stetfs_testkit::{CaptureOptions, Tree};

use super::finding::{ByKernel, Finding, Oracle};
use super::recovery::tree;
use crate::machine::Crashed;
use crate::outside::Files;
use crate::tree::{READ_MAX, Seen, SeenNode};
use crate::volume::released;
use crate::work::Work;
use crate::workload::op::KEPT_FLAGS;

/// Checks that this process can mount by the kernel.
///
/// # Errors
/// The reason why it cannot.
pub fn check_can_mount() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "mounting by the kernel needs root"
    );
    let control = Path::new("/dev/loop-control");
    ensure!(control.exists(), "there are no loop devices here");
    Ok(())
}

/// The comparisons that the kernel can do with a sound volume. It may not know the block size, or
/// it may mount only read-only for lack of a feature (quotas); then it leaves orphans alone.
pub(crate) fn abilities(volume: &MemDevice) -> ByKernel {
    match by_kernel(volume, "rw").is_ok() {
        true => ByKernel::Recovered,
        false if by_kernel(volume, CLEAN).is_ok() => ByKernel::Shown,
        false => ByKernel::No,
    }
}

/// Options for a volume that is closed.
const CLEAN: &str = "ro,noload";
/// Options for a volume that needs recovery.
const DIRTY: &str = "ro";

/// The tree that the kernel shows of a copy.
fn by_kernel(volume: &MemDevice, options: &str) -> Result<Tree> {
    let files = Files::of(&released(volume)?)?;
    let (mount, journal) = files.mount(options)?;
    let what = CaptureOptions {
        ctime: false,
        mtime: false,
        sparse: false,
        ..CaptureOptions::same_image()
    };
    let tree = Tree::capture(mount.path(), &what).context("reading what the kernel shows")?;
    mount.umount()?;
    drop(journal);
    Ok(tree)
}

impl Work {
    /// Whether other programs can replay the log as well. With async_commit a crash may leave a
    /// commit block whose transaction is torn. StetFS checks the blocks' checksums before it
    /// replays anything; e2fsck 1.47 and the kernel check too late, fail with EIO, and leave the
    /// whole journal unreplayed. The StetFS log is replayed by StetFS alone.
    pub(super) fn is_replayed_by_others(&self) -> bool {
        !self.options.async_commit && self.options.journal.is_jbd2()
    }

    /// Checks that the kernel shows of the recovered volume what StetFS shows; and of the crashed
    /// one, if the kernel can replay the log. A crashed volume whose device had failed is skipped:
    /// it may have orphans that only e2fsck finishes.
    ///
    /// # Errors
    /// The first difference.
    pub(super) fn check_kernel(
        &self,
        crashed: &Crashed,
        closed: &Crashed,
        asked: ByKernel,
    ) -> Result<(), Finding> {
        self.compare_kernel(closed, CLEAN)
            .map_err(|e| e.because("recovered by StetFS"))?;
        let has_failed = self.scripts.iter().any(|script| script.failure.is_some());
        let is_recovered = asked == ByKernel::Recovered;
        if is_recovered && self.is_replayed_by_others() && !has_failed {
            self.compare_kernel(crashed, DIRTY)
                .map_err(|e| e.because("recovered by the kernel"))?;
        }
        Ok(())
    }

    fn compare_kernel(&self, volume: &Crashed, options: &str) -> Result<(), Finding> {
        let ours = tree(volume, &self.options)?;
        let theirs = by_kernel(&volume.device, options);
        let theirs = theirs.map_err(|e| Oracle::Kernel.says(format!("{e:#}")))?;
        same(&ours, &theirs).map_err(|e| Oracle::Kernel.says(e))
    }
}

/// Compares the trees of StetFS and the kernel.
fn same(ours: &Seen, theirs: &Tree) -> Result<(), String> {
    let mut names = 1;
    for (path, entry) in &theirs.entries {
        let ino = ours.find(path);
        let ino = ino.ok_or_else(|| format!("/{path} is shown by the kernel alone"))?;
        let node = &ours.nodes[&ino];
        names += node.entries.len();
        match differs(ino, node, entry) {
            None => {}
            Some(what) => return Err(format!("/{path}: {what}")),
        }
    }
    match names == theirs.entries.len() {
        true => Ok(()),
        false => Err(format!(
            "{names} names, of which the kernel shows {}",
            theirs.entries.len()
        )),
    }
}

/// The difference of one inode.
fn differs(ino: Ino, node: &SeenNode, entry: &Entry) -> Option<String> {
    let kind = match node.kind {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    };
    let has_flags = matches!(kind, Kind::File | Kind::Directory);
    let xattrs = node.xattrs.iter();
    let xattrs = xattrs.map(|(name, value)| (name.clone(), xattr_value(value)));
    // StetFS reads only a part of a larger file.
    let is_whole = kind == Kind::File && node.size <= READ_MAX;
    let ours = Entry {
        kind,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        nlink: node.nlink.into(),
        size: entry.size.map(|_| node.size),
        target: (kind == Kind::Symlink).then(|| escape(&node.target)),
        content: match is_whole {
            true => Some(content_hash(&node.content)),
            false => entry.content.clone(),
        },
        xattrs: xattrs.collect(),
        blocks: Some(node.blocks),
        inode: Some(ino.into()),
        flags: has_flags.then_some(node.flags & KEPT_FLAGS),
        ..entry.clone()
    };
    let theirs = Entry {
        flags: entry.flags.map(|flags| flags & KEPT_FLAGS),
        ..entry.clone()
    };
    (ours != theirs).then(|| format!("{ours:?}, but the kernel shows {theirs:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::judge::Checks;
    use crate::setup::{JournalSpec, Shape};
    use crate::workload::cases;

    /// Needs root.
    #[test]
    fn a_difference_from_the_kernel_is_told() {
        check_can_mount().unwrap();
        let journal: JournalSpec = "ordered".parse().unwrap();
        let case = &cases("smoke", 1).unwrap()[0];
        let shape = Shape::default();
        let recording = crate::record::Recording::make(&journal, shape, case, 1).unwrap();
        let work = &recording.work;
        let crashed =
            recording.crashed(&format!("{}:all", recording.log.len() / 2).parse().unwrap());
        let progress = work.progress_at(&recording.log, recording.log.len() / 2);
        let checks = Checks {
            kernel: ByKernel::Recovered,
            ..Checks::default()
        };
        work.check(&crashed, &progress, checks).unwrap();
        let ours = tree(&crashed, &work.options).unwrap();
        let theirs = by_kernel(&crashed.device, DIRTY).unwrap();
        same(&ours, &theirs).unwrap();
        let changed = |change: &dyn Fn(&mut SeenNode)| {
            let mut ours = ours.clone();
            let files = ours.nodes.values_mut();
            let file = files.into_iter().find(|n| !n.content.is_empty()).unwrap();
            change(file);
            same(&ours, &theirs).unwrap_err()
        };
        changed(&|file| file.content[0] ^= 1);
        changed(&|file| file.mode ^= 0o100);
        changed(&|file| file.nlink += 1);
        changed(&|file| drop(file.xattrs.insert("user.new".into(), vec![1])));
        let mut fewer = theirs.clone();
        fewer.entries.pop_last();
        same(&ours, &fewer).unwrap_err();
    }
}
