//! `-o` options of mount, as mount(8), fstab and ext4 users write them.

mod kernels;
mod meaning;
mod names;
mod read;
mod said;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use names::names;
pub(crate) use read::{known_only, of_mount, of_volume, parse};
pub(crate) use said::Options;
pub(crate) use value::epoch_of_environment;
