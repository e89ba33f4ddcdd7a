//! Replay of Linux fast commits that recovery found: the state of single files in the transaction
//! that was not committed ([`FastCommit`]).
//!
//! They are applied to the volume over an overlay in memory ([`Overlay`]). The changed blocks go
//! into the log as that transaction, and from there to their home locations. So the volume gets all
//! of it or, if recovery is interrupted, nothing.
//!
//! Each change describes a state, not an action, because an earlier replay by the kernel or e2fsck
//! may have stopped at any point:
//! * **fast.F1** A change that describes the present state has no effect; a removed name is only
//!   removed if it still names that inode.
//! * **fast.F2** A block belongs to the file that was last said to have it, whatever the bitmaps
//!   say (`space/claims`).
//! * **fast.F3** A new inode is made with its first name. An inode that gets no name was deleted
//!   before the crash, and is ignored.
//! * **fast.F4** An inode without links is deleted, unless a later change says that it has some.

mod inodes;
mod names;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_block::{BlockDevice, Overlay};
use stetfs_cache::{Page, PageRef};
use stetfs_journal::{BlockNr, Change, FastCommit, Journal};
use stetfs_ondisk::ext4::inode::{GOOD_OLD_INODE_SIZE, InodeView};
use stetfs_ondisk::ext4::superblock::Superblock;

use super::log::{self, VolumeLog};
use super::parts::Parts;
use super::{features, orphans};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, is_ordinary};
use crate::space::BlockRun;
use crate::types::{FsOptions, Ino, ROOT_INO};
use crate::volume::super_bytes::{read_superblock, write_superblock};

/// The most bytes that fast commits change: they must fit into a transaction.
const MEMORY: u64 = 64 << 20;

impl VolumeLog {
    /// Turns fast commits that a replay left in the log into the transaction that they belong to.
    /// That transaction is to be replayed. Returns a description of what was left out, with the
    /// reason (`salvage`).
    ///
    /// # Errors
    /// Errors of the device; `Corrupt` if the fast commits contradict the volume; `Unsupported` if
    /// they cannot be applied here. Then they stay in the log.
    pub(super) fn take_fast_commits(
        &self,
        device: &Arc<dyn BlockDevice>,
        commits: &[FastCommit],
        opts: &FsOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<String>> {
        match images(device, self, commits, opts, progress) {
            Ok(images) => {
                self.log.commit_images(images)?;
                Ok(None)
            }
            Err(e @ (FsError::Corrupt { .. } | FsError::Errno(_))) if opts.salvage => {
                self.log.commit_images(Vec::new())?;
                let why = format!("files that were synced after the last transaction: {e}");
                Ok(Some(why))
            }
            Err(e) => Err(e),
        }
    }
}

/// The blocks that change when all fast commits are applied. Nothing is written.
///
/// # Errors
/// `Corrupt` when a change contradicts the volume; `Unsupported` on a volume that this version does
/// not write.
fn images(
    device: &Arc<dyn BlockDevice>,
    log: &VolumeLog,
    commits: &[FastCommit],
    opts: &FsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<(BlockNr, PageRef)>> {
    let sb = read_superblock(&**device)?;
    features::check(&sb, false)?;
    let block_size = sb.geometry()?.block_size;
    let overlay = Arc::new(Overlay::with_room(Arc::clone(device), MEMORY, MEMORY));
    let above: Arc<dyn BlockDevice> = Arc::clone(&overlay) as _;
    let opts = FsOptions {
        cache_bytes: opts.cache_bytes,
        ..FsOptions::default()
    };
    let parts = Parts::read(Arc::clone(&above), &sb, Some(log), &opts)?;
    let journal = Journal::without_log(parts.cache.clone(), log::config(&opts))?;
    let (fs, orphans) = parts.assemble(journal, opts, None, None)?;
    fs.attach();
    fs.load_quotas(&sb)?;
    fs.space.keep_freed();
    fs.space.trust_files();
    let held = fs.hold_orphans(orphans);
    let done = Replay::new(&fs, commits).run(progress);
    drop(held);
    let closed = fs.unmount();
    done.and(closed)?;
    keep_marks(&*above, &sb)?;
    let images = differences(&**device, &overlay, block_size)?;
    tracing::info!(
        commits = commits.len(),
        blocks = images.len(),
        "fast commits carried out"
    );
    Ok(images)
}

/// The blocks of `overlay` that differ from those below.
fn differences(
    below: &dyn BlockDevice,
    overlay: &Overlay,
    block_size: u32,
) -> Result<Vec<(BlockNr, PageRef)>> {
    let size = u64::from(block_size);
    let mut images = Vec::new();
    let mut old = vec![0; block_size as usize];
    for range in overlay.changed() {
        for nr in range.start / size..range.end.div_ceil(size) {
            let mut new = Page::zeroed(block_size as usize);
            overlay.read(nr * size, &mut new)?;
            below.read(nr * size, &mut old)?;
            if *new != *old {
                images.push((nr, Arc::new(new)));
            }
        }
    }
    Ok(images)
}

/// Restores the marks of a non-empty log in the superblock: its content was not written back yet.
fn keep_marks(device: &dyn BlockDevice, before: &Superblock) -> Result<()> {
    let closed = read_superblock(device)?;
    let mut sb = closed.clone();
    sb.set_incompat(before.incompat());
    sb.set_state(before.state());
    write_superblock(device, &sb, &closed).map(drop)
}

/// The error of an impossible change.
fn wrong(detail: String) -> FsError {
    FsError::corrupt("fast commit", 0, detail)
}

/// The changes, and the state of their replay.
struct Replay<'a> {
    fs: &'a Fs,
    changes: Vec<&'a Change>,
    /// Indexes in `changes` of each inode's attributes, in order.
    attributes: HashMap<Ino, Vec<usize>>,
    /// New inodes that have no name yet (fast.F3).
    unnamed: HashMap<Ino, Unnamed<'a>>,
}

/// A new inode without a name.
#[derive(Default)]
struct Unnamed<'a> {
    bytes: Option<&'a [u8]>,
    /// Changes of its map.
    ranges: Vec<&'a Change>,
}

impl<'a> Replay<'a> {
    fn new(fs: &'a Fs, commits: &'a [FastCommit]) -> Replay<'a> {
        let changes: Vec<&Change> = commits.iter().flat_map(|c| &c.changes).collect();
        let mut attributes: HashMap<Ino, Vec<usize>> = HashMap::new();
        for (i, change) in changes.iter().enumerate() {
            if let Change::Inode { ino, .. } = change {
                attributes.entry(*ino).or_default().push(i);
            }
        }
        Replay {
            fs,
            changes,
            attributes,
            unnamed: HashMap::new(),
        }
    }

    fn run(mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.claim()?;
        let changes = self.changes.clone();
        for (i, change) in changes.iter().enumerate() {
            progress(i as u64, changes.len() as u64);
            self.fs.throttle()?;
            self.carry_out(i, change)?;
        }
        Ok(())
    }

    /// Claims all that the changes name, so that it is not used for other purposes, such as blocks
    /// of directories that are made again.
    fn claim(&self) -> Result<()> {
        let inode_size = usize::from(self.fs.vol.geo.inode_size);
        for change in &self.changes {
            match change {
                Change::AddRange { extent, .. } if extent.len > 0 => {
                    self.fs.space.claim_blocks(BlockRun {
                        start: extent.start,
                        len: extent.len,
                    })?;
                }
                Change::AddRange { ino, .. } => {
                    return Err(wrong(format!("an empty extent of inode {ino}")));
                }
                Change::Inode { ino, bytes } => {
                    if !(GOOD_OLD_INODE_SIZE..=inode_size).contains(&bytes.len()) {
                        let len = bytes.len();
                        return Err(wrong(format!(
                            "inode {ino} has {len} bytes, unlike this volume's inodes"
                        )));
                    }
                    if !self.is_reserved(*ino) {
                        self.in_use(*ino)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, i: usize, change: &'a Change) -> Result<()> {
        match change {
            Change::Create(entry) | Change::Link(entry) => self.name(i, entry),
            Change::Unlink(entry) => self.unname(i, entry),
            Change::Inode { ino, .. }
            | Change::AddRange { ino, .. }
            | Change::DelRange { ino, .. }
                if self.is_reserved(*ino) =>
            {
                tracing::warn!(
                    ino,
                    "a fast commit changes a reserved inode; the change is ignored"
                );
                Ok(())
            }
            Change::Inode { ino, bytes } => {
                if self.in_use(*ino)? && !self.give_way(*ino, bytes)? {
                    return self.set_attributes(*ino, bytes, false);
                }
                self.unnamed.entry(*ino).or_default().bytes = Some(bytes);
                Ok(())
            }
            Change::AddRange { ino, .. } | Change::DelRange { ino, .. } => {
                if self.in_use(*ino)? {
                    return self.set_range(i, *ino, change);
                }
                self.unnamed.entry(*ino).or_default().ranges.push(change);
                Ok(())
            }
        }
    }

    /// Whether it is one of the volume's own inodes, for which the log has no valid changes.
    fn is_reserved(&self, ino: Ino) -> bool {
        ino != 0 && ino != ROOT_INO && ino < self.fs.vol.geo.first_ino
    }

    /// Whether an inode number is in use. If not, it is claimed.
    fn in_use(&self, ino: Ino) -> Result<bool> {
        if !is_ordinary(&self.fs.vol.geo, ino) {
            return Err(wrong(format!(
                "inode {ino}, which no file can have (the volume has {} inodes)",
                self.fs.vol.geo.inodes_count
            )));
        }
        Ok(!self.fs.space.claim_inode(ino)?)
    }

    /// An inode in use, also one without a name.
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        let inode = self.fs.inodes.iget_special(ino)?;
        match inode.value {
            true => Err(wrong(format!(
                "inode {ino} holds the value of an attribute"
            ))),
            false => Ok(inode),
        }
    }

    /// The next attributes of an inode behind change `i`: an index in `changes`.
    fn next_attributes(&self, i: usize, ino: Ino) -> Option<usize> {
        let places = self.attributes.get(&ino)?;
        let at = places.partition_point(|at| *at <= i);
        places.get(at).copied()
    }

    /// Ends an orphan whose number now belongs to a new inode. Returns whether it was one.
    fn give_way(&self, ino: Ino, bytes: &[u8]) -> Result<bool> {
        let inode = self.inode(ino)?;
        let new = InodeView::new(bytes)?;
        let older = {
            let body = inode.body.read();
            body.links() == 0 && body.generation() != new.generation()
        };
        if older {
            self.fs.forget(ino, u64::MAX);
        }
        Ok(older)
    }
}

impl Fs {
    /// Loads orphans of an earlier mount into memory as they are: they may get a name, or be
    /// deleted.
    fn hold_orphans(&self, found: orphans::Found) -> Vec<Arc<Inode>> {
        let mut held = Vec::new();
        for (ino, place) in found.inodes {
            // Damage of the orphan is reported when it is processed.
            if let Ok(inode) = self.inodes.iget_special(ino) {
                inode.body.write().orphan = Some(place);
                inode.orphaned.store(true, Ordering::Release);
                let nameless = inode.unlinked.load(Ordering::Acquire);
                inode.linkable.store(nameless, Ordering::Release);
                held.push(inode);
            }
        }
        held
    }
}
