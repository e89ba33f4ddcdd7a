//! Opening, recovery, superblock state, damage, statfs, unmount.

mod early;
mod errors;
mod features;
mod inspect;
mod log;
mod open;
mod orphans;
mod overhead;
mod statfs;
mod superblock;
mod unmount;

pub use errors::set_panic_hook;
pub use inspect::{Inspection, inspect};
pub(crate) use superblock::SuperState;
