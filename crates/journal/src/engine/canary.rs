//! Deliberate faults, each at a point where the code does the right thing. The crash lab's table
//! says what finds them (`crash/src/canary`).

/// Deliberate faults, to prove that the tests would find real ones. All off in earnest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canary {
    // Commit.
    /// Commits and checkpoints do not flush.
    pub no_barrier: bool,
    /// The commit block goes out with its transaction, under one flush.
    pub seal_early: bool,
    /// The commit block is not durable when the commit ends.
    pub seal_volatile: bool,
    /// Nothing is flushed before the commit block.
    pub body_volatile: bool,
    /// A descriptor names one image less than follow it.
    pub short_tags: bool,
    /// Revokes are not logged.
    pub drop_revokes: bool,
    /// The commit block has no checksum.
    pub unsummed_seal: bool,
    /// Revokes are logged though nothing of the block is in the log any more.
    pub revoke_all: bool,
    /// The first commit to an empty log does not say where the log begins.
    pub unmarked_start: bool,
    /// A commit does not wait for the data of new blocks.
    pub unordered_data: bool,
    /// Who changes a block of another lane's running transaction depends on it, but that one not
    /// on him.
    pub chain_one_way: bool,
    /// The frames of a commit go out with FUA though what was written before it is not durable.
    pub fua_early: bool,
    /// Where a commit is one flush, data goes out under it, and not before.
    pub late_data: bool,
    // Checkpoint.
    /// The tail moves before the images are home.
    pub tail_early: bool,
    /// Nothing is flushed between the images and the tail.
    pub home_volatile: bool,
    /// The tail is not durable when the space before it is used again.
    pub tail_volatile: bool,
    /// Of two images of a block the older goes home.
    pub older_home: bool,
    /// What goes home is the block as it is now, not as it was committed.
    pub live_images: bool,
    /// Images of blocks that were freed still go home.
    pub write_freed: bool,
    /// The log of one lane is used again though an older image stands in another's.
    pub reap_alone: bool,
    /// The tail passes a transaction that is chained to another lane's before its images are home.
    pub pass_chained: bool,
    /// An image that another lane is about to log is not known to who frees its block.
    pub index_late: bool,
    /// Nothing is flushed between what the device shared and the tail.
    pub share_volatile: bool,
    /// The device shares the images of a transaction before its commit block is durable.
    pub share_early: bool,
    /// An older image of a block is shared home after the newest.
    pub share_older: bool,
    /// A freeze leaves what is committed in the log.
    pub freeze_in_log: bool,
    /// A journal at rest takes handles and records.
    pub use_at_rest: bool,
    /// A thawed volume is not marked as in use before the first change.
    pub thaw_unmarked: bool,
    // Recovery.
    /// Recovery ignores revokes.
    pub ignore_revokes: bool,
    /// Recovery takes a revoke for one of newer images, too.
    pub revoke_newer: bool,
    /// Recovery checks no checksums.
    pub skip_checksums: bool,
    /// With `async_commit`, a commit block alone makes a transaction whole.
    pub trust_seal: bool,
    /// Recovery goes on with whatever transaction stands next in the log.
    pub any_sequence: bool,
    /// Recovery leaves blank the first word of blocks that begin as the journal's do.
    pub keep_escaped: bool,
    /// Recovery takes the oldest image of a block.
    pub oldest_wins: bool,
    /// The log is emptied before what was replayed is durable.
    pub replay_volatile: bool,
    /// Recovery takes a transaction without those of other lanes that it depends on.
    pub ignore_edges: bool,
    /// Fast commits of Linux count whatever their checksum says.
    pub fast_unproven: bool,
    /// The last frame of a log is taken for whole.
    pub frame_unproven: bool,
    /// The older copy of the StetFS log's header counts.
    pub older_header: bool,
    // Records of files.
    /// Recovery takes file-level records for alive that a transaction superseded.
    pub ignore_horizon: bool,
    /// A commit does not bring home the data that the records hold which it supersedes.
    pub leave_recorded: bool,
    /// Records are taken for superseded as soon as they are written.
    pub forget_records: bool,
    /// A record is not durable when the sync ends.
    pub record_volatile: bool,
    /// The space of records is used again though no transaction supersedes them.
    pub reuse_records: bool,
    /// A transaction does not say which records it supersedes.
    pub no_floor: bool,
    /// A transaction supersedes records that are newer than it.
    pub floor_high: bool,
    /// A record counts although its data is torn.
    pub record_unproven: bool,
    /// A record says of others that they are durable before they are.
    pub settle_early: bool,
    /// A record does not say under which name its file was made.
    pub forget_name: bool,
    /// A record lacks the file's data.
    pub record_dataless: bool,
    /// A sync leaves it at an older record where newer data went home by itself.
    pub trust_older_record: bool,
    /// Recovery applies records as a user's operations, which flags of the older state refuse.
    pub redo_as_user: bool,
    /// Records are promised no blocks for their recovery.
    pub redo_unpromised: bool,
    /// Recovery makes a file again whose name a later record gives to another one.
    pub redo_replaced: bool,
    // Records in a region.
    /// The seal of a record is stored with its head, and the rest after it.
    pub region_seal_early: bool,
    /// Nothing is fenced between a record and its seal.
    pub region_unfenced: bool,
    /// Records of other mounts count.
    pub region_any_epoch: bool,
    /// The region's header is written after the log says that records are in it.
    pub region_late: bool,
    /// Of a block only what its transaction changed is logged, though it was not home before.
    pub changes_of_tx: bool,
    /// Of a block only what changed is logged, though it could not be written home before.
    pub changes_of_unlike: bool,
    // Space.
    /// Blocks are handed out again before the transaction that freed them is valid.
    pub reuse_early: bool,
    /// Freed blocks that went through the journal are not revoked.
    pub free_unrevoked: bool,
    /// A changed block bitmap is in no transaction.
    pub unlogged_bitmap: bool,
    /// A changed inode bitmap is in no transaction.
    pub unlogged_inode_bitmap: bool,
    /// Changed group descriptors are in no transaction.
    pub unlogged_descriptor: bool,
    // Inodes and names.
    /// Orphans are not recorded.
    pub skip_orphan: bool,
    /// What an earlier mount left of orphans is not finished.
    pub leave_orphans: bool,
    /// A nameless file that is truncated is no orphan any more.
    pub truncated_orphan: bool,
    /// A changed directory block is in no transaction.
    pub unlogged_names: bool,
    /// Who deletes an inode takes whatever has its number out of the cache.
    pub drop_any_inode: bool,
    /// A group's descriptor is read when its bitmap has changed.
    pub late_descriptor: bool,
    /// Who opens a quota account writes its leaf back with what others had there before.
    pub leaf_unlocked: bool,
    // Data.
    /// What lay in a new block before shows around the part that is written.
    pub show_stale: bool,
    /// A step that frees blocks asks for all groups that an extent may reach over.
    pub endless_runs: bool,
    /// What lies behind the new end of a truncated file stays.
    pub keep_tail: bool,
    /// A write that found too little room goes on, in another transaction.
    pub write_on: bool,
    /// Preallocated blocks count as written before their data is home.
    pub convert_early: bool,
    /// A file that grows within its last block has its new size before its data is home.
    pub size_early: bool,
    /// Data that a committing transaction waits for is dropped with the blocks that a later one
    /// frees.
    pub drop_awaited: bool,
    /// New blocks whose data could not be written are forgotten where they cannot be hidden.
    pub forget_lost: bool,
    /// What a committing transaction waits for changes on its way home, where overwrites are
    /// journaled.
    pub overwrite_awaited: bool,
    /// What is overwritten goes home, where it is to be journaled.
    pub overwrite_home: bool,
    /// What became unwritten counts as new when it is written again, where overwrites are
    /// journaled.
    pub rewrite_home: bool,
    /// The files of an atomic group are in transactions of their own.
    pub split_group: bool,
    /// The commit of an atomic group covers its own transaction alone.
    pub commit_own_lane: bool,
    /// What an atomic group wrote early is not durable when the group is.
    pub early_volatile: bool,
    /// What an atomic group writes early is the file's before the group commits.
    pub early_at_once: bool,
    /// An atomic group keeps to what it found out of a change, though it wrote early since.
    pub admit_stale: bool,
    /// A file can be guarded (immutable, append-only) while it is in an atomic group.
    pub guard_grouped: bool,
    /// A file is synced by a record although it changed with others in an atomic group.
    pub record_of_group: bool,
    // Syncs.
    /// fdatasync does not wait for a size that fallocate set.
    pub lax_fallocate: bool,
    /// fdatasync of a new file does not wait for the file.
    pub lax_create: bool,
    /// fdatasync of a directory does not wait for its entries.
    pub lax_directory: bool,
    /// After a flush that failed, the device is used as if nothing had been.
    pub forgive_flush: bool,
    /// A flush that failed inside a write counts as a write that failed.
    pub forgive_inner_flush: bool,
}
