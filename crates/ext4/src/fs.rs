//! An open volume.

use std::sync::{Arc, Weak};

use stetfs_sync::Mutex;

use crate::data::DataStore;
use crate::inode::InodeStore;
use crate::space::Allocator;
use crate::volume::Volume;

/// An open ext4 volume. All operations take `&self` and may run in parallel.
pub struct Fs {
    pub(crate) vol: Arc<Volume>,
    pub(crate) space: Arc<Allocator>,
    pub(crate) inodes: Arc<InodeStore>,
    /// What opening replayed.
    pub(crate) recovered: Option<stetfs_journal::RecoveryReport>,
    pub(crate) data: Arc<DataStore>,
    /// One rename that moves a directory to another parent at a time.
    pub(crate) rename_lock: Mutex<()>,
    /// Ourselves, for callbacks that outlive a call.
    pub(crate) me: Weak<Fs>,
}
