//! Write-back: data blocks that are newer than their home locations, and the way there.
//!
//! `dirty` adds and drops dirty data (its ledger is in `durability`); `home` writes batches back;
//! `precedence` lets syncs go first; `wake` calls the thread of `background`.

pub(in crate::data) mod dirty;
pub(in crate::data) mod dirty_set;
pub(crate) mod home;
pub(crate) mod precedence;
pub(in crate::data) mod wake;
