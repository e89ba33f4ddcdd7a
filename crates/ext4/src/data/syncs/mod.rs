//! Syncs of single files: what a sync has to do, and sync records (iJournaling, §5).

pub(crate) mod record;
pub(in crate::data) mod redo_space;
pub(in crate::data) mod sync;
pub(in crate::data) mod syncers;
