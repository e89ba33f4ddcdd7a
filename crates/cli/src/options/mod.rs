//! The `-o` options of mount, as mount(8), fstab and ext4 users write them.
//!
//! Options are rows of tables: those of volumes in the library ([`stetfs::low::options`]), those
//! that only a mount has in `mount`, those of the kernel's ext4 in `kernels`. A new one is a row,
//! which parsing, help, manual pages and remounts read (decisions/0043).

mod help;
mod kernels;
mod meaning;
mod mount;
mod names;
mod read;
mod said;
#[cfg(test)]
mod tests;

pub(crate) use help::mount_options;
pub use mount::MOUNT_OPTIONS;
pub(crate) use names::names;
pub use read::of_volume;
pub(crate) use read::{epoch_of_environment, known_only, of_mount, parse};
pub use said::Options;
