//! Inodes in memory: cache, attributes, creation and deletion, orphans.
//!
//! An [`Inode`] is shared by all users of the file; its [`InodeBody`] holds the bytes of the
//! on-disk inode behind the inode's lock. A change is made to the body and put into the journal
//! with `InodeStore::write_inode` before the lock is released. So the inode table block always
//! equals the body, and an inode can leave memory whenever it has no users.

mod cache;
#[cfg(test)]
mod deleted_tests;
mod lazy;
mod orphan;
mod orphans;
mod store;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use crate::state::body::{InodeBody, is_ordinary};
pub(crate) use crate::state::inode::Inode;
pub(crate) use crate::state::orphan_place::OrphanPlace;

pub use orphans::OrphansFinished;
pub(crate) use orphans::{OrphanFile, Orphans};
pub(crate) use store::InodeStore;
