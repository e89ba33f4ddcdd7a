//! `Fs`: an open volume, and the façade over its stores.
//!
//! Four stores do the work, and each uses only those before it: [`Allocator`], [`InodeStore`],
//! [`DataStore`], [`Namespace`]. All stand on a [`Volume`]. [`Fs`] does what concerns several
//! stores in one call: checks, promises of space and quota, the order of locks, and what is made
//! durable before the call returns.

use std::sync::{Arc, Weak};

use stetfs_journal::RecoveryReport;

use crate::data::DataStore;
use crate::inode::InodeStore;
use crate::names::Namespace;
use crate::space::Allocator;
use crate::volume::Volume;

/// An open ext4 volume. All operations take `&self` and may run in parallel.
pub struct Fs {
    /// Geometry, options, cache, journal, superblock.
    pub(crate) vol: Arc<Volume>,
    /// Free space and free inodes.
    pub(crate) space: Arc<Allocator>,
    /// Inodes, their attributes, orphans, usage.
    pub(crate) inodes: Arc<InodeStore>,
    /// File data and its write-back.
    pub(crate) data: Arc<DataStore>,
    /// Content of directories.
    pub(crate) names: Namespace,
    /// The report of the recovery at opening.
    pub(crate) recovered: Option<RecoveryReport>,
    /// A reference to itself, for callbacks that outlive a call.
    pub(crate) me: Weak<Fs>,
}
