//! What the kernel's ext4 shows of a volume, compared with what StetFS shows. It takes root, a loop
//! device and a mount; both are taken down whatever comes.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use stetfs::low::{FileType, Ino, MemDevice};
use stetfs_testkit::tree::{Entry, Kind, content_hash, escape, xattr_value};
use stetfs_testkit::{CaptureOptions, KernelMount, LoopDev, LoopOptions, Scratch, Tree};

use super::finding::{ByKernel, Finding, Oracle};
use super::recovery::tree;
use crate::machine::Crashed;
use crate::tree::{READ_MAX, Seen, SeenNode};
use crate::work::Work;
use crate::workload::op::KEPT_FLAGS;

/// Whether this process may have the kernel mount something.
///
/// # Errors
/// Why not.
pub fn check_can_mount() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "mounting by the kernel takes root"
    );
    let control = Path::new("/dev/loop-control");
    ensure!(control.exists(), "there are no loop devices here");
    Ok(())
}

/// What the kernel can do with a volume, which is sound: it may not know the block size, or how to
/// change what has these features (quotas), and then leaves orphans alone.
pub(crate) fn abilities(volume: &MemDevice) -> ByKernel {
    match by_kernel(volume, "rw").is_ok() {
        true => ByKernel::Recovered,
        false if by_kernel(volume, CLEAN).is_ok() => ByKernel::Shown,
        false => ByKernel::No,
    }
}

/// Options for a volume that was closed.
const CLEAN: &str = "ro,noload";
/// Options for one that is to be recovered.
const DIRTY: &str = "ro";

/// The tree that the kernel shows of a copy.
fn by_kernel(volume: &MemDevice, options: &str) -> Result<Tree> {
    let scratch = Scratch::in_memory("kernel")?;
    let path = scratch.path().join("image");
    volume.save(&path)?;
    let device = LoopDev::attach(&path, LoopOptions::default())?;
    let mount = KernelMount::new(device, "ext4", options)?;
    let what = CaptureOptions {
        ctime: false,
        mtime: false,
        sparse: false,
        ..CaptureOptions::same_image()
    };
    let tree = Tree::capture(mount.path(), &what).context("reading what the kernel shows")?;
    mount.umount()?;
    Ok(tree)
}

impl Work {
    /// Whether others can replay its log as well. With async_commit a crash may leave a commit
    /// block whose transaction is torn. StetFS looks at the blocks' checksums before it replays
    /// anything; e2fsck 1.47 and the kernel look when it is too late, fail with EIO, and leave the
    /// whole journal unreplayed. StetFS's own log is replayed by StetFS alone.
    pub(super) fn is_replayed_by_others(&self) -> bool {
        !self.options.async_commit && self.options.journal.is_jbd2()
    }

    /// The kernel shows of the recovered volume what StetFS shows; and of the crashed one, where it
    /// can replay the log. Whose device had failed has orphans that are e2fsck's.
    ///
    /// # Errors
    /// What is not so.
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

/// Compares what StetFS and the kernel show.
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

/// What differs.
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
    // Of a larger one a part was read.
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
    (ours != theirs).then(|| format!("{ours:?}, but to the kernel {theirs:?}"))
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
