//! Opening a volume with its recovery, and unmounting it.

#[cfg(test)]
mod cut_replay_tests;
pub(crate) mod early;
#[cfg(test)]
mod end_tests;
mod external;
mod fast;
mod features;
mod inspect;
pub(crate) mod log;
mod open;
mod orphans;
mod overhead;
mod parts;
mod prove;
mod records;
#[cfg(test)]
mod redo_tests;
mod remapped;
mod repeat;
mod replaced;
#[cfg(test)]
mod tests;
mod unmount;

pub use external::{is_journal, journal_device, journal_device_of};
pub use inspect::{Inspection, find_log, inspect};
pub use repeat::MAX_EPOCH;
