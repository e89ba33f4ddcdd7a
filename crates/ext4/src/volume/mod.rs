//! Opening, recovery, superblock state, damage, statfs, unmount.

mod asked;
#[cfg(test)]
mod cut_replay_tests;
mod early;
mod error_notes;
mod errors;
mod external;
mod fast;
mod features;
mod foreign;
mod freeze;
mod frost;
mod inspect;
mod log;
mod marks;
mod memory;
mod mmp;
mod open;
mod orphans;
mod overhead;
mod parts;
#[cfg(debug_assertions)]
mod prove;
mod records;
#[cfg(test)]
mod redo_tests;
mod repeat;
mod replaced;
mod shared;
mod shutdown;
mod statfs;
mod super_state;
mod superblock;
mod unmount;

#[cfg(test)]
mod end_tests;
#[cfg(test)]
mod tests;

pub use early::read_superblock;
pub use errors::set_panic_hook;
pub use external::{is_journal, journal_device, journal_device_of};
pub use foreign::read_partitions;
pub use inspect::{Inspection, find_log, inspect};
pub use repeat::MAX_EPOCH;
pub(crate) use shared::Volume;
pub(crate) use super_state::SuperState;
