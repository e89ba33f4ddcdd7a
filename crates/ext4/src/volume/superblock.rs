//! The superblock while the volume is open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use stetfs_block::{BlockDevice, Failures, Tap};
use stetfs_journal::{Block, Cache, Handle};
use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::{
    DefaultMountOpts, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use stetfs_sync::{Mutex, Rank};

use super::early::write_superblock;
use super::errors::ErrorNotes;
use super::mmp::Claim;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{BlockNr, FsOptions, OnError};

/// Bytes of the volume's name.
const LABEL_MAX: usize = 16;

/// What of the superblock is used or changes while the volume is open.
pub(crate) struct SuperState {
    /// The block that holds the superblock, kept in the cache.
    block: Arc<Block>,
    /// Byte offset of the superblock in it.
    offset: usize,
    reserved_blocks: u64,
    kept_clusters: u64,
    reserved_for: (u32, u32),
    bsd_groups: bool,
    /// Blocks that are no data blocks, as statfs shows them.
    pub(super) overhead: u64,
    pub(super) on_error: OnError,
    /// The volume may have files above 2 GiB (`large_file`).
    pub(crate) large_files: AtomicBool,
    /// The volume was marked clean when it was opened.
    pub(super) was_valid: bool,
    /// Still recovering: what stops the journal now can be tried again, and is no error of the
    /// volume.
    pub(super) recovering: AtomicBool,
    /// Opened read-only, or turned so by damage.
    pub(super) read_only: AtomicBool,
    /// Unmounted, or being so.
    pub(super) closed: AtomicBool,
    /// Holds changes back.
    pub(super) frost: super::freeze::Frost,
    /// Shut down by request: changes and reads fail until the volume is opened again.
    pub(super) down: AtomicBool,
    /// The volume's device as it was given, for a last word: the one that all else goes through
    /// takes no more writes once a flush has failed.
    pub(super) last_word: OnceLock<Arc<dyn BlockDevice>>,
    /// What the devices failed.
    pub(super) failures: OnceLock<Arc<Failures>>,
    /// Where requests come by.
    pub(super) tap: OnceLock<Arc<Tap>>,
    /// Where the log is: runs of blocks (first, count), in order.
    pub(super) log_runs: OnceLock<Vec<(BlockNr, u64)>>,
    /// Damage that was found.
    pub(super) notes: Mutex<ErrorNotes>,
    /// There are notes; so that nobody needs the lock to see that there are none.
    pub(super) noted: AtomicBool,
    /// Keeps others off the volume.
    pub(super) claim: Option<Claim>,
    /// How the unmount went.
    pub(super) closing: parking_lot::Mutex<Option<Result<()>>>,
}

impl SuperState {
    /// From the superblock as it is on the volume.
    pub(super) fn new(
        cache: &Cache,
        sb: &Superblock,
        overhead: u64,
        opts: &FsOptions,
        claim: Option<Claim>,
    ) -> Result<SuperState> {
        use stetfs_ondisk::ext4::superblock::ErrorPolicy;
        let size = cache.block_size() as u64;
        let ratio = u64::from(sb.geometry()?.blocks_per_cluster.max(1));
        let on_error = opts.on_error.unwrap_or(match sb.error_policy() {
            ErrorPolicy::Continue => OnError::Continue,
            ErrorPolicy::RemountRo => OnError::RemountRo,
            ErrorPolicy::Panic => OnError::Panic,
        });
        Ok(SuperState {
            block: cache.read(SUPERBLOCK_OFFSET / size)?,
            offset: (SUPERBLOCK_OFFSET % size) as usize,
            reserved_blocks: sb.reserved_blocks_count(),
            // What the kernel holds back so that extent trees can always be changed
            // (`ext4_calculate_resv_clusters`).
            kept_clusters: if sb.incompat().contains(Incompat::EXTENTS) {
                (sb.blocks_count() / ratio / 50).min(4096)
            } else {
                0
            },
            reserved_for: (
                u32::from(sb.def_resuid.get()),
                u32::from(sb.def_resgid.get()),
            ),
            bsd_groups: opts.bsd_groups.unwrap_or(
                sb.default_mount_opts()
                    .contains(DefaultMountOpts::BSDGROUPS),
            ),
            overhead,
            on_error,
            large_files: AtomicBool::new(sb.ro_compat().contains(RoCompat::LARGE_FILE)),
            was_valid: sb.state().contains(State::VALID_FS),
            recovering: AtomicBool::new(true),
            read_only: AtomicBool::new(opts.read_only),
            closed: AtomicBool::new(false),
            frost: super::freeze::Frost::default(),
            down: AtomicBool::new(false),
            last_word: OnceLock::new(),
            failures: OnceLock::new(),
            tap: OnceLock::new(),
            log_runs: OnceLock::new(),
            notes: Mutex::new(Rank::Super, ErrorNotes::default()),
            noted: AtomicBool::new(false),
            claim,
            closing: parking_lot::Mutex::new(None),
        })
    }

    /// Blocks for the superuser (and the volume's reserved user and group).
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.reserved_blocks
    }

    /// Clusters kept for changes of extent trees.
    pub(crate) fn kept_clusters(&self) -> u64 {
        self.kept_clusters
    }

    /// User and group that may use the reserved blocks.
    pub(crate) fn reserved_for(&self) -> (u32, u32) {
        self.reserved_for
    }

    /// Whether new files take their directory's group (`bsdgroups`).
    pub(crate) fn bsd_groups(&self) -> bool {
        self.bsd_groups
    }

    /// Number of the block that holds the superblock.
    pub(super) fn block_nr(&self) -> BlockNr {
        self.block.nr()
    }

    /// The superblock as it is in memory.
    pub(crate) fn current(&self) -> Result<Superblock> {
        let page = self.block.peek();
        let bytes = page
            .as_deref()
            .and_then(|p| p.get(self.offset..))
            .unwrap_or_default();
        Ok(Superblock::decode_unchecked(bytes)?)
    }

    fn change(&self, page: &mut [u8], change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let nr = self.block.nr();
        let bytes = page
            .get_mut(self.offset..)
            .ok_or_else(|| FsError::corrupt("superblock", nr, "short block"))?;
        let mut sb = Superblock::decode_unchecked(bytes)?;
        let before = sb.clone();
        change(&mut sb);
        sb.update_checksum_after(&before);
        sb.encode(bytes)?;
        Ok(())
    }
}

impl Fs {
    /// Changes the superblock within a transaction. One credit.
    pub(crate) fn change_super(
        &self,
        h: &Handle<'_>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        // Notes of errors go past the journal, and would not fit changes (`patch_super_home`).
        let mut page = h.modify_whole(&self.sb.block)?;
        self.sb.change(&mut page, change)
    }

    /// Changes the superblock in memory and at its home, durably, past the journal: only while the
    /// log is empty and nobody has a handle.
    pub(super) fn write_super(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let device = self.cache.device();
        let before = self.super_at_home()?;
        let mut sb = self.sb.current()?;
        change(&mut sb);
        let written = write_superblock(&**device, &sb, &before)?;
        let mut write = self.sb.block.write();
        let (page, _) = write
            .page_mut()
            .ok_or_else(|| FsError::corrupt("superblock", self.sb.block_nr(), "not in memory"))?;
        self.sb.change(page, |sb| *sb = written)
    }

    fn super_at_home(&self) -> Result<Superblock> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        self.cache.device().read(SUPERBLOCK_OFFSET, &mut bytes)?;
        Ok(Superblock::decode_unchecked(&bytes)?)
    }

    /// Changes some fields of the superblock at its home only, durably: for notes of errors after
    /// the journal stopped. What is in memory may hold changes that must never get there.
    pub(super) fn patch_super_home(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let before = self.super_at_home()?;
        let mut sb = before.clone();
        change(&mut sb);
        let device = self.sb.last_word.get().unwrap_or(self.cache.device());
        write_superblock(&**device, &sb, &before).map(drop)
    }

    /// Whether changes may be made.
    ///
    /// # Errors
    /// EIO after [`go_down`](Self::go_down), ESHUTDOWN after unmount, EROFS on a volume that is
    /// read-only or became so.
    pub(crate) fn writable(&self) -> Result<()> {
        self.usable()?;
        if self.sb.closed.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::ESHUTDOWN));
        }
        if self.sb.read_only.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::EROFS));
        }
        Ok(())
    }

    /// The volume's name, up to 16 bytes.
    ///
    /// # Errors
    /// The superblock's copy in memory is gone (the device failed).
    pub fn label(&self) -> Result<Vec<u8>> {
        Ok(self.sb.current()?.label().to_vec())
    }

    /// Gives the volume a name. It is durable on return, and at its home, where others look for it
    /// (blkid).
    ///
    /// # Errors
    /// EINVAL above 16 bytes, EROFS, or the device or the journal failed.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_MAX {
            return Err(FsError::Errno(libc::EINVAL));
        }
        self.throttle()?;
        let h = self.journal.begin(1)?;
        self.change_super(&h, |sb| sb.set_label(label))?;
        let point = h.stop();
        self.journal.commit(&point)?;
        Ok(self.journal.checkpoint()?)
    }

    /// Whether the volume takes no changes now.
    pub fn is_read_only(&self) -> bool {
        self.sb.read_only.load(Ordering::Acquire)
    }
}
