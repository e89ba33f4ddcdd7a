//! An open volume.
//!
//! Four stores do the work, each over those before it: [`Allocator`], [`InodeStore`],
//! [`DataStore`], [`Namespace`]; all stand on a [`Volume`]. What is left for [`Fs`] is what a call
//! asks of several of them: checks, promises of space and quota, the order of locks, and what is
//! made durable before it returns.

use std::sync::{Arc, Weak};

use stetfs_journal::RecoveryReport;

use crate::data::DataStore;
use crate::inode::InodeStore;
use crate::names::Namespace;
use crate::space::Allocator;
use crate::volume::Volume;

/// An open ext4 volume. All operations take `&self` and may run in parallel.
pub struct Fs {
    /// Shape, options, blocks, journal, superblock.
    pub(crate) vol: Arc<Volume>,
    /// Free space and free inodes.
    pub(crate) space: Arc<Allocator>,
    /// Inodes, their attributes, orphans, usage.
    pub(crate) inodes: Arc<InodeStore>,
    /// What files hold, and its way home.
    pub(crate) data: Arc<DataStore>,
    /// What directories hold.
    pub(crate) names: Namespace,
    /// What opening replayed.
    pub(crate) recovered: Option<RecoveryReport>,
    /// Ourselves, for callbacks that outlive a call.
    pub(crate) me: Weak<Fs>,
}
