//! `DataStore`: the store of file data.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::state::{DataState, Wanted};
use crate::error::FsError;
use crate::inode::InodeStore;
use crate::space::Allocator;
use crate::volume::Volume;

/// Maps files to blocks, reads and writes data, and writes dirty data back or into records.
pub(crate) struct DataStore {
    pub(crate) vol: Arc<Volume>,
    pub(crate) space: Arc<Allocator>,
    pub(crate) inodes: Arc<InodeStore>,
    /// Dirty data and its write-back.
    pub(crate) state: DataState,
    /// A reference to itself, for threads.
    pub(super) me: Weak<DataStore>,
    /// The thread of background write-back, which is above this store's state.
    pub(super) write_back: WriteBack,
}

/// The main function of the write-back thread; it checks the age of dirty data at this interval.
pub(super) type WriteBack = fn(&Weak<DataStore>, &Wanted, Duration);

impl DataStore {
    /// A store without dirty data.
    pub(super) fn with(inodes: Arc<InodeStore>, write_back: WriteBack) -> Arc<DataStore> {
        Arc::new_cyclic(|me| DataStore {
            vol: Arc::clone(&inodes.vol),
            space: Arc::clone(&inodes.space),
            state: DataState::new(&inodes.vol.opts),
            inodes,
            me: me.clone(),
            write_back,
        })
    }

    /// Dirty bytes now.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.state.dirty_bytes()
    }

    /// A failed write-back of some file that no sync of the whole volume has reported yet; marks it
    /// as reported.
    pub(crate) fn untold_failure(&self) -> Option<FsError> {
        self.state.failures.tell(&self.state.told)
    }
}
