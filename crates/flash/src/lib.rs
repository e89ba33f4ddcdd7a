//! Simulated devices.
//!
//! * [`Model`]: what a device's requests cost: an SSD on SATA, one on NVMe, a disk;
//! * [`Clock`]: when requests finish on a device of some model, as pure arithmetic on nanoseconds;
//! * [`Timed`]: a block device that takes that time.

mod clock;
mod device;
mod model;

pub use clock::{Clock, Kind, Request};
pub use device::Timed;
pub use model::{Access, Model, Seek, UnknownModel};
