//! Fast commits of Linux that recovery found: what single files were like in the transaction that
//! never was committed ([`FastCommit`]).
//!
//! They are carried out on the volume as it would be, in memory ([`Overlay`]); what changed goes
//! into the log as that transaction, and home from there. So the volume gets all of it or,
//! interrupted, nothing.
//!
//! Each change says what is, not what to do, and an earlier replay by the kernel or e2fsck may have
//! ended anywhere:
//! * **fast.F1** What is already as a change says stays so; a name that is said to be gone is only
//!   taken away if it still names that inode.
//! * **fast.F2** Who has a block is what was said last, whatever the bitmaps say (`space/claims`).
//! * **fast.F3** A new inode comes into being with its first name. One that gets none was deleted
//!   before the crash, and so is nothing.
//! * **fast.F4** An inode without links goes, unless a later change says that it has some.

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

use super::early::{read_superblock, write_superblock};
use super::log::{self, VolumeLog};
use super::parts::Parts;
use super::{features, orphans};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, is_ordinary};
use crate::space::BlockRun;
use crate::types::{FsOptions, Ino, ROOT_INO};

/// Bytes that fast commits change, at most: they must fit a transaction.
const MEMORY: u64 = 64 << 20;

impl VolumeLog {
    /// Makes of fast commits that a replay left in the log the transaction that they are part of;
    /// it is to be replayed. Gives what was left out (`salvage`), and why.
    ///
    /// # Errors
    /// The device's; `Corrupt` if they contradict the volume, `Unsupported` if they cannot be
    /// carried out here: then they stay as they are.
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

/// What the volume's blocks hold with all fast commits carried out, as far as that is something
/// else. Nothing is written.
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

/// The blocks of `overlay` that are not as they are below.
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

/// The log is not empty before what is in it went home: the superblock goes on saying so.
fn keep_marks(device: &dyn BlockDevice, before: &Superblock) -> Result<()> {
    let closed = read_superblock(device)?;
    let mut sb = closed.clone();
    sb.set_incompat(before.incompat());
    sb.set_state(before.state());
    write_superblock(device, &sb, &closed).map(drop)
}

/// What a change says that cannot be.
fn wrong(detail: String) -> FsError {
    FsError::corrupt("fast commit", 0, detail)
}

/// The changes, and what is known of them so far.
struct Replay<'a> {
    fs: &'a Fs,
    changes: Vec<&'a Change>,
    /// Where in `changes` each inode's attributes stand, in order.
    attributes: HashMap<Ino, Vec<usize>>,
    /// New inodes that have no name so far (fast.F3).
    unnamed: HashMap<Ino, Unnamed<'a>>,
}

/// A new inode without a name.
#[derive(Default)]
struct Unnamed<'a> {
    bytes: Option<&'a [u8]>,
    /// What it maps.
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

    /// Nobody else gets what the changes name, such as blocks of directories that are made again.
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
                        return Err(wrong(format!("{len} bytes of inode {ino}")));
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
                tracing::warn!(ino, "a fast commit of one of the volume's own inodes");
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

    /// Whether it is one of the volume's own, of which there is nothing to be said.
    fn is_reserved(&self, ino: Ino) -> bool {
        ino != 0 && ino != ROOT_INO && ino < self.fs.vol.geo.first_ino
    }

    /// Whether a number is an inode's now. If not, nobody else gets it.
    fn in_use(&self, ino: Ino) -> Result<bool> {
        if !is_ordinary(&self.fs.vol.geo, ino) {
            return Err(wrong(format!(
                "inode {ino} of {}",
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

    /// What is said of an inode next, behind change `i`.
    fn next_attributes(&self, i: usize, ino: Ino) -> Option<usize> {
        let places = self.attributes.get(&ino)?;
        let at = places.partition_point(|at| *at <= i);
        places.get(at).copied()
    }

    /// Ends an orphan whose number is a new inode's by now. Says whether it was one.
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
    /// Takes orphans of an earlier mount into memory as what they are: they may get a name, or be
    /// deleted.
    fn hold_orphans(&self, found: orphans::Found) -> Vec<Arc<Inode>> {
        let mut held = Vec::new();
        for (ino, place) in found.inodes {
            // What is wrong with it is told when its turn comes.
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
