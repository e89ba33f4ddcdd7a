//! The base of all stores: geometry, options, cache, journal, superblock, handling of damage,
//! freezing.

pub(crate) mod error_notes;
pub(crate) mod errors;
pub(crate) mod foreign;
mod freeze;
mod frost;
mod io_trace;
pub(crate) mod memory;
pub(crate) mod mmp;
pub(crate) mod shared;
mod shutdown;
pub(crate) mod super_bytes;
pub(crate) mod super_state;
mod superblock;

pub use errors::set_panic_hook;
pub use foreign::read_partitions;
pub(crate) use shared::Volume;
pub use super_bytes::read_superblock;
pub(crate) use super_state::SuperState;
