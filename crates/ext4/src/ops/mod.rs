//! The operations of an open volume, all of them `impl Fs`.
//!
//! An operation checks the caller's request, promises space and quota, takes the locks, lets the
//! stores change, and makes durable what must be durable at once. The stores know nothing of
//! operations.
//!
//! Calls run downwards here, too:
//!
//! ```text
//! names       directories and names          atomic   groups of writes
//! files       content
//! attributes  owners, modes, flags, extended attributes
//! quota sync  promises, what is durable at once
//! volume      room, freezing, marks
//! inodes      making, holding and deleting
//! ```

pub(crate) mod atomic;
pub(crate) mod attributes;
pub(crate) mod files;
pub(crate) mod inodes;
pub(crate) mod names;
pub(crate) mod quota;
pub(crate) mod sync;
pub(crate) mod volume;

pub use atomic::AtomicGroup;
pub use inodes::{OpenInode, OpenRef};
pub use quota::QuotaUsage;
