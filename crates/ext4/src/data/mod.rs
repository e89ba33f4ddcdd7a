//! File data: where it lies, reading, writing, truncation, fallocate, seeking, syncing.
//!
//! * `extents` and `blockmap`: the two ways of mapping, behind `mapping`; `map`: what lies at a
//!   place of a file, `dir_places`: what it said of a directory; `clusters`: space for it;
//! * `inline`: content that lies in the inode;
//! * `dirty`: data blocks newer than their homes (their ledger is `durability`'s); `home`: their
//!   way there; `flusher`: in the background; `precedence`: who gives way; `failures`: who is told
//!   when they do not get there; `lost`: what becomes of new ones then;
//! * `whole`: which changes no crash may split; `atomic`: files that change all at once; `migrate`:
//!   maps that take on their other form;
//! * `read`, `write`, `truncate`, `fallocate`, `seek`, `symlink`, `value`, `sync`, `bmap`: the
//!   operations.
//!
//! Invariants:
//! * **data.D1** A mapped, written block's latest content is in the cache, or the cache has none of
//!   it and the device has it. So a read that finds a block not cached may go to the device.
//! * **data.D2** A block is in its file's [`DirtyData`] from its change until it was written home;
//!   from being taken out for writing until the write has returned, the file's flush lock is held.
//! * **data.D3** Blocks are freed only after they left the dirty data with the flush lock held:
//!   nothing is ever written to a block that may belong to somebody else.
//! * **data.D4** Data of blocks that a transaction makes reachable is in the dirty data, and the
//!   inode is named with `Handle::order_data`, before the handle stops.
//! * **data.D5** Where what is overwritten goes through the journal, a block is written home by
//!   itself only with data of the transaction before which it was free. A later one that changes it
//!   journals it, and what is dirty of the file goes home first. So no block that a valid
//!   transaction shows changes at its home, but from an image in the log.

mod atime;
mod atomic;
pub(crate) mod blockmap;
mod bmap;
mod clusters;
pub(crate) mod credits;
mod dir_places;
mod dirty;
mod dirty_data;
mod dirty_set;
mod extents;
mod failures;
mod fallocate;
mod flusher;
mod home;
mod inline;
mod journaled;
mod logged;
mod lost;
#[cfg(test)]
mod lost_tests;
mod map;
mod mapping;
mod migrate;
#[cfg(test)]
mod migrate_tests;
mod nodes;
mod once;
mod pages;
mod precedence;
mod read;
mod read_ahead;
mod record;
mod redo_space;
mod seek;
mod state;
mod store;
mod symlink;
mod sync;
mod syncers;
mod truncate;
mod value;
mod whole;
mod write;

pub use atomic::AtomicGroup;
pub(crate) use dir_places::DirPlaces;
pub(crate) use dirty_data::DirtyData;
pub use failures::KeptFailures;
pub(crate) use failures::Opener;
pub(crate) use inline::Inline;
pub(crate) use map::Mapping;
pub(crate) use mapping::Found;
pub(crate) use precedence::WritebackPriority;
pub(crate) use read_ahead::ReadAhead;
pub(crate) use store::DataStore;
