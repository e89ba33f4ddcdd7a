//! Simulated devices.
//!
//! * [`Model`]: what a device's requests cost: an SSD on SATA, one on NVMe, a disk;
//! * [`Clock`]: when requests finish on a device of some model, as pure arithmetic on nanoseconds;
//! * [`Timed`]: a block device that takes that time;
//! * [`Volatile`]: one whose cache a power cut empties;
//! * [`Ssd`]: one with a translation layer and simulated flash, which shares content, wears, and
//!   can lose its power;
//! * [`Order`]: faults on request, in words;
//! * [`ftl`]: flash translation layers, as simulators and as devices;
//! * [`segments`]: a device that writes segments one after the other, and cleans them.

#![forbid(unsafe_code)]

mod clock;
mod device;
mod faults;
pub mod ftl;
mod model;
mod pace;
pub mod segments;
mod ssd;
mod volatile;

pub use clock::{Clock, Kind, Request};
pub use device::Timed;
pub use faults::{Effect, Failing, Intervals, Order, Place, Plan, UnknownWord, Word, failing};
pub use model::{Access, Model, Seek, UnknownModel};
pub use pace::took;
pub use ssd::{Report, Ssd};
pub use volatile::{Kept, PowerCut, Volatile};
