//! The store of file data.

use std::sync::{Arc, Weak};

use super::state::DataState;
use crate::error::FsError;
use crate::inode::InodeStore;
use crate::space::Allocator;
use crate::volume::Volume;

/// Maps files to blocks, reads and writes them, and brings what is dirty home or into records.
pub(crate) struct DataStore {
    pub(crate) vol: Arc<Volume>,
    pub(crate) space: Arc<Allocator>,
    pub(crate) inodes: Arc<InodeStore>,
    /// Dirty data and its way home.
    pub(super) state: DataState,
    /// Ourselves, for threads.
    pub(super) me: Weak<DataStore>,
}

impl DataStore {
    /// Without dirty data.
    pub(crate) fn new(inodes: Arc<InodeStore>) -> Arc<DataStore> {
        Arc::new_cyclic(|me| DataStore {
            vol: Arc::clone(&inodes.vol),
            space: Arc::clone(&inodes.space),
            state: DataState::new(&inodes.vol.opts),
            inodes,
            me: me.clone(),
        })
    }

    /// Dirty bytes now.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.state.dirty_bytes()
    }

    /// Data of some file could not be written home, and no sync of all told of it; now it is told.
    pub(crate) fn untold_failure(&self) -> Option<FsError> {
        self.state.failures.tell(&self.state.told)
    }
}
