//! State of the superblock in memory while the volume is open.

use std::sync::{Arc, OnceLock};

use stetfs_block::{BlockDevice, Failures, Tap};
use stetfs_journal::{Block, Cache};
use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::{DefaultMountOpts, SUPERBLOCK_OFFSET, State, Superblock};
use stetfs_sync::timed::atomic::AtomicBool;
use stetfs_sync::{Mutex, Rank};

use super::error_notes::ErrorNotes;
use super::frost::Frost;
use super::mmp::Claim;
use crate::error::{FsError, Result};
use crate::types::{BlockNr, FsOptions, OnError};
use stetfs_ondisk::num::to_usize;

/// A callback for when a record of a file is durable, before its sync is answered (`prove`).
pub(crate) type RecordProof = Box<dyn Fn() + Send + Sync>;

/// The parts of the superblock that are used or change while the volume is open.
pub(crate) struct SuperState {
    /// The block that holds the superblock, kept in the cache.
    pub(super) block: Arc<Block>,
    /// Byte offset of the superblock in it.
    offset: usize,
    reserved_blocks: u64,
    kept_clusters: u64,
    reserved_for: (u32, u32),
    bsd_groups: bool,
    /// Blocks of metadata overhead, which statfs does not show as data blocks.
    pub(crate) overhead: u64,
    pub(super) on_error: OnError,
    /// The volume may have files above 2 GiB (`large_file`).
    pub(crate) large_files: AtomicBool,
    /// The volume was marked clean when it was opened.
    pub(crate) was_valid: bool,
    /// Recovery is under way: if the journal stops now, it can be tried again, and the volume gets
    /// no error.
    pub(crate) recovering: AtomicBool,
    /// Opened read-only, or turned so by damage.
    pub(crate) read_only: AtomicBool,
    /// Damage is turning the volume read-only: its journal stops first.
    pub(super) turning: AtomicBool,
    /// Unmounted, or unmounting.
    pub(crate) closed: AtomicBool,
    /// Holds changes back.
    pub(crate) frost: Frost,
    /// Shut down by request: changes and reads fail until the volume is opened again.
    pub(crate) down: AtomicBool,
    /// The volume's device as it was opened, to note errors in the superblock: after a failed flush
    /// the device that all else uses accepts no more writes.
    pub(crate) last_word: OnceLock<Arc<dyn BlockDevice>>,
    /// Failed requests of the devices.
    pub(crate) failures: OnceLock<Arc<Failures>>,
    /// The tap that records requests.
    pub(crate) tap: OnceLock<Arc<Tap>>,
    /// The check of each record of a file (`proves_records`).
    pub(crate) proof: OnceLock<RecordProof>,
    /// The place of the log: runs of blocks (first, count), in order.
    pub(crate) log_runs: OnceLock<Vec<(BlockNr, u64)>>,
    /// Damage that was found and not written to the superblock yet.
    pub(super) notes: Mutex<ErrorNotes>,
    /// There are notes. It is read without the lock, so that the usual case costs no lock.
    pub(super) noted: AtomicBool,
    /// The MMP claim, which keeps other machines off the volume.
    pub(crate) claim: Option<Claim>,
    /// The result of the unmount.
    pub(crate) closing: stetfs_sync::timed::Mutex<Option<Result<()>>>,
}

impl SuperState {
    /// The state from the superblock on the volume.
    pub(crate) fn new(
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
            offset: to_usize(SUPERBLOCK_OFFSET % size),
            reserved_blocks: sb.reserved_blocks_count(),
            // The kernel keeps the same, so that extent trees can always be changed
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
            turning: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            frost: Frost::default(),
            down: AtomicBool::new(false),
            last_word: OnceLock::new(),
            failures: OnceLock::new(),
            tap: OnceLock::new(),
            proof: OnceLock::new(),
            log_runs: OnceLock::new(),
            notes: Mutex::new(Rank::Super, ErrorNotes::default()),
            noted: AtomicBool::new(false),
            claim,
            closing: stetfs_sync::timed::Mutex::new(None),
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

    pub(super) fn change(
        &self,
        page: &mut [u8],
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
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
