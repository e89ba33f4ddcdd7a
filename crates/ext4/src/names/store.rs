//! `Namespace`: the store of names.

use std::sync::Arc;

use stetfs_sync::{Mutex, Rank};

use crate::data::DataStore;
use crate::inode::InodeStore;
use crate::volume::Volume;

/// Looks up entries of directories and changes them.
pub(crate) struct Namespace {
    pub(super) vol: Arc<Volume>,
    pub(super) inodes: Arc<InodeStore>,
    pub(super) data: Arc<DataStore>,
    /// Held by a rename between directories, so that one such rename runs at a time.
    pub(crate) rename_lock: Mutex<()>,
}

impl Namespace {
    /// A store over the data of directories.
    pub(crate) fn new(data: Arc<DataStore>) -> Namespace {
        Namespace {
            vol: Arc::clone(&data.vol),
            inodes: Arc::clone(&data.inodes),
            data,
            rename_lock: Mutex::new(Rank::Rename, ()),
        }
    }
}
