//! File data: its maps, its content, its write-back and its syncs.
//!
//! ```text
//! background  write-back by its own clock, lost blocks
//! syncs       syncs of single files, by records
//! content     reading and changing
//! writeback   dirty data on its way to the home locations
//! maps        from file blocks to blocks of the volume
//! ```
//!
//! Each folder calls those below it; `store` is the type that they share, `state` its state.
//!
//! Invariants:
//! * **data.D1** A mapped, written block's latest content is in the cache, or the cache has none of
//!   it and the device has it. So a read of a block that is not cached may go to the device.
//! * **data.D2** A block is in its file's [`DirtyData`] from its change until it was written back;
//!   from being taken out for writing until the write has returned, the file's write-back lock is
//!   held.
//! * **data.D3** Blocks are freed only after they left the dirty data with the write-back lock
//!   held: nothing is ever written to a block that may belong to another file.
//! * **data.D4** Data of blocks that a transaction makes reachable is in the dirty data, and the
//!   inode is named with `Handle::order_data`, before the handle stops.
//! * **data.D5** Where overwritten data goes through the journal, a block is written back outside
//!   the journal only with data of the transaction that allocated it. A later transaction that
//!   changes the block journals it, and dirty data of the file is written back first. So a block
//!   that a valid transaction makes reachable changes at its home location only from an image in
//!   the log.

pub(crate) mod background;
pub(crate) mod content;
pub(crate) mod maps;
mod state;
pub(crate) mod store;
pub(crate) mod syncs;
pub(crate) mod writeback;

pub use crate::state::failures::KeptFailures;
pub(crate) use crate::state::failures::Opener;
pub(crate) use content::inline::Inline;
pub(crate) use maps::map::Mapping;
pub(crate) use maps::mapping::Found;
pub(crate) use store::DataStore;
pub(crate) use writeback::precedence::WritebackPriority;
