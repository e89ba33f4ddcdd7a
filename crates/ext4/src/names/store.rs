//! The store of names.

use std::sync::Arc;

use stetfs_sync::{Mutex, Rank};

use crate::data::DataStore;
use crate::inode::InodeStore;
use crate::volume::Volume;

/// Looks into directories and changes their entries.
pub(crate) struct Namespace {
    pub(super) vol: Arc<Volume>,
    pub(super) inodes: Arc<InodeStore>,
    pub(super) data: Arc<DataStore>,
    /// One rename that moves a directory to another parent at a time.
    pub(super) rename_lock: Mutex<()>,
}

impl Namespace {
    /// Over the directories' data.
    pub(crate) fn new(data: Arc<DataStore>) -> Namespace {
        Namespace {
            vol: Arc::clone(&data.vol),
            inodes: Arc::clone(&data.inodes),
            data,
            rename_lock: Mutex::new(Rank::Rename, ()),
        }
    }
}
