//! Deliberate faults, each at a point where the code does the right thing. They prove that the
//! tests would find real faults. The crash lab's table says which search, test or model finds which
//! (`crash/src/canary`).
//!
//! They are there with the cargo feature `faults` only, which the laboratory and tests turn on.
//! Without it every switch reads as off, and the compiler leaves the faults out.

use std::sync::Arc;

use stetfs_block::{BlockDevice, FailStop};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The deliberate faults of a journal and its volume. All are off outside of tests.
        #[cfg(feature = "faults")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Canary {
            $($(#[$doc])* pub $name: bool,)*
        }

        /// The deliberate faults of a journal and its volume: none without the feature `faults`.
        #[cfg(not(feature = "faults"))]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Canary(());

        /// The switches of [`Canary`], all off.
        #[cfg(not(feature = "faults"))]
        #[derive(Debug)]
        pub struct Off {
            $($(#[$doc])* pub $name: bool,)*
        }

        #[cfg(not(feature = "faults"))]
        static OFF: Off = Off {
            $($name: false,)*
        };
    };
}

impl Canary {
    /// The device behind [`FailStop`], which forgives the failures that the switches say.
    pub fn fail_stop(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        match () {
            () if self.forgive_flush => Arc::new(FailStop::forgiving(device)),
            () if self.forgive_inner_flush => Arc::new(FailStop::forgiving_within(device)),
            () if self.flush_alone => Arc::new(FailStop::forgiving_beside(device)),
            () => Arc::new(FailStop::new(device)),
        }
    }
}

#[cfg(not(feature = "faults"))]
impl std::ops::Deref for Canary {
    type Target = Off;

    #[inline(always)]
    fn deref(&self) -> &Off {
        &OFF
    }
}

faults! {
    // Commit.
    /// Commits and checkpoints do not flush.
    no_barrier,
    /// The commit block is written together with its transaction, under one flush.
    seal_early,
    /// The commit block is not durable when the commit ends.
    seal_volatile,
    /// Nothing is flushed before the commit block.
    body_volatile,
    /// A descriptor has one tag fewer than images follow it.
    short_tags,
    /// Revokes are not logged.
    drop_revokes,
    /// The commit block has no checksum.
    unsummed_seal,
    /// Blocks are revoked even if the log holds no image of them any more.
    revoke_all,
    /// The first commit to an empty log does not write the log's start to the header.
    unmarked_start,
    /// A commit does not wait for the data of new blocks.
    unordered_data,
    /// A change to a block of another lane's running transaction makes a one-directional edge: the
    /// changing transaction depends on that one, but not the reverse.
    one_directional_edge,
    /// A group ends its changes although a transaction outside it is chained to it.
    group_early,
    /// A transaction is written to its lane although the one before it is not durable.
    out_of_turn,
    /// A sync is answered before the callbacks of its transactions have run.
    answer_unsettled,
    /// A snapshot lacks the image of a block that another lane changes while the snapshot is taken.
    skip_capture,
    /// The frames of a commit are written with FUA although earlier writes are not durable.
    fua_early,
    /// In a format that commits with one flush, ordered data is written under that flush, not
    /// before it.
    late_data,
    // Checkpoint.
    /// The tail moves before the images are home.
    tail_early,
    /// There is no flush between the images and the tail.
    home_volatile,
    /// The tail is not durable when the space before it is used again.
    tail_volatile,
    /// The older of two images of a block is written home.
    older_home,
    /// A checkpoint writes a block's present content, not its committed image.
    live_images,
    /// Images of freed blocks are still written home.
    write_freed,
    /// The log of one lane is reused although the log of another holds an older image.
    reap_alone,
    /// The tail passes a transaction that is chained to another lane's before its images are home.
    pass_chained,
    /// A transaction that frees a block does not know of the image that another lane is about to
    /// log.
    index_late,
    /// A transaction becomes valid although a block that it freed is still being written home.
    free_in_flight,
    /// The images of freed log space leave the live log before the new tail is durable.
    forget_reaped,
    /// Another write of a tail can come between tails that move together.
    tails_apart,
    /// The tails move without the horizon of the records.
    leave_horizon,
    /// There is no flush between what the device shared and the tail.
    share_volatile,
    /// The device shares the images of a transaction before its commit block is durable.
    share_early,
    /// An older image of a block is shared home after the newest one.
    share_older,
    /// A freeze leaves committed images in the log.
    freeze_in_log,
    /// A journal at rest takes handles and records.
    use_at_rest,
    /// A thawed volume is not marked as in use before its first change.
    thaw_unmarked,
    // Recovery.
    /// Recovery ignores revokes.
    ignore_revokes,
    /// Recovery lets a revoke void newer images, too.
    revoke_newer,
    /// Recovery checks no checksums.
    skip_checksums,
    /// With `async_commit`, a commit block alone makes a transaction complete.
    trust_seal,
    /// Recovery continues with any transaction that comes next in the log, whatever its sequence.
    any_sequence,
    /// Recovery does not restore the first word of escaped blocks (those that begin with jbd2's
    /// magic).
    keep_escaped,
    /// Recovery takes the oldest image of a block.
    oldest_wins,
    /// The log is emptied before what was replayed is durable.
    replay_volatile,
    /// Recovery accepts a transaction without the transactions of other lanes that it depends on.
    ignore_edges,
    /// Fast commits of Linux count whatever their checksum says.
    fast_unproven,
    /// The last frame of a log is accepted without a check.
    frame_unproven,
    /// The older copy of the StetFS log's header counts.
    older_header,
    // Records of files.
    /// Recovery treats records of files as alive although a transaction superseded them.
    ignore_horizon,
    /// A commit does not write home the data held by the records that it supersedes.
    leave_recorded,
    /// Records are treated as superseded as soon as they are written.
    forget_records,
    /// A record is not durable when the sync ends.
    record_volatile,
    /// The space of records is reused although no transaction supersedes them.
    reuse_records,
    /// The inode of a record is noted after the record's stamp is drawn, not under one lock with
    /// it.
    note_late,
    /// A transaction whose changes have ended counts as one that supersedes later records.
    supersede_early,
    /// A transaction does not say which records it supersedes.
    no_floor,
    /// A transaction supersedes records that are newer than it.
    floor_high,
    /// A record counts although its data is torn.
    record_unproven,
    /// A record states that other records are durable before they are.
    settle_early,
    /// A record does not contain the name under which its file was created.
    forget_name,
    /// A record lacks the file's data.
    record_dataless,
    /// A sync relies on an older record although newer data was written back since.
    trust_older_record,
    /// Recovery applies records like a user's operations, which flags of the older state refuse.
    redo_as_user,
    /// No blocks are reserved for the recovery of records.
    redo_unpromised,
    /// Recovery creates a file again although a later record gives its name to another file.
    redo_replaced,
    /// Recovery refuses content for a block that a later record, already applied, maps elsewhere.
    redo_remapped,
    // Records in a region.
    /// The seal of a record is stored with its head, and the rest after it.
    region_seal_early,
    /// There is no fence between a record and its seal.
    region_unfenced,
    /// Records of other mounts count.
    region_any_epoch,
    /// The region's header is written after the log says that records are in it.
    region_late,
    /// Only what a transaction changed of a block is logged, although older changes are not home
    /// yet.
    changes_of_tx,
    /// Only changes of a block are logged, although a write home of the block failed before.
    changes_of_unlike,
    // Space.
    /// Blocks are allocated again before the transaction that freed them is valid.
    reuse_early,
    /// Freed blocks that went through the journal are not revoked.
    free_unrevoked,
    /// A changed block bitmap is in no transaction.
    unlogged_bitmap,
    /// A changed inode bitmap is in no transaction.
    unlogged_inode_bitmap,
    /// Changed group descriptors are in no transaction.
    unlogged_descriptor,
    // Inodes and names.
    /// Orphans are not recorded.
    skip_orphan,
    /// Orphans that an earlier mount left are not processed.
    leave_orphans,
    /// A nameless file that is truncated is taken off the orphan list.
    truncated_orphan,
    /// A changed directory block is in no transaction.
    unlogged_names,
    /// The deletion of an inode drops any inode of that number from the cache.
    drop_any_inode,
    /// A group's descriptor is read only after its bitmap has changed.
    late_descriptor,
    /// Opening a quota account overwrites its leaf block with a stale copy.
    leaf_unlocked,
    // Data.
    /// The old content of a new block shows around the part that is written.
    show_stale,
    /// A step that frees blocks asks for credits for all groups that an extent may span.
    endless_runs,
    /// The content behind the new end of a truncated file stays.
    keep_tail,
    /// A write that finds too little room continues in another transaction.
    write_on,
    /// Preallocated blocks count as written before their data is home.
    convert_early,
    /// A file that grows within its last block has its new size before its data is home.
    size_early,
    /// Data that a committing transaction waits for is dropped together with the blocks that a
    /// later transaction frees.
    drop_awaited,
    /// New blocks whose data could not be written are forgotten where they cannot be hidden.
    forget_lost,
    /// Data that a committing transaction waits for changes while it is written back, where
    /// overwrites are journaled.
    overwrite_awaited,
    /// Overwritten data is written home directly, where it is to be journaled.
    overwrite_home,
    /// Data that became unwritten counts as new when it is written again, where overwrites are
    /// journaled.
    rewrite_home,
    /// The files of an atomic group are in transactions of their own.
    split_group,
    /// The commit of an atomic group covers its own transaction alone.
    commit_own_lane,
    /// The early writes of an atomic group are not durable when the group is.
    early_volatile,
    /// The early writes of an atomic group belong to the file before the group commits.
    early_at_once,
    /// An atomic group relies on an earlier check of a change, although it has written early since.
    admit_stale,
    /// A file can be guarded (immutable, append-only) while it is in an atomic group.
    guard_grouped,
    /// A file is synced by a record although it changed together with others in an atomic group.
    record_of_group,
    // Syncs.
    /// fdatasync does not wait for a size that fallocate set.
    lax_fallocate,
    /// fdatasync of a new file does not wait for the file.
    lax_create,
    /// fdatasync of a directory does not wait for its entries.
    lax_directory,
    /// A thread joins the shared flush under way, which may have begun before the thread's writes
    /// ended.
    join_running_flush,
    /// A leader that ends wakes no thread for the requests that wait.
    no_next_leader,
    /// The signal of an answer does not wait for a follower that is about to sleep.
    signal_unlocked,
    /// After a failed flush the device is used as before.
    forgive_flush,
    /// A flush that failed inside a write counts as a failed write.
    forgive_inner_flush,
    /// A flush that succeeded counts although another one beside it may fail.
    flush_alone,
}
