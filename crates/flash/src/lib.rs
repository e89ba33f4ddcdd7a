//! Simulated devices: block devices that take time, wear, lose their power or fail.
//!
//! * [`Model`]: the costs of a device's requests: a SATA SSD, an NVMe SSD, a disk;
//! * [`Clock`]: when requests complete on a device of some model, as pure arithmetic on
//!   nanoseconds;
//! * [`Timed`]: a block device that takes this time;
//! * [`Volatile`]: a block device whose cache a power cut empties;
//! * [`Ssd`]: a block device with a translation layer and simulated flash, which shares content,
//!   wears, and can lose its power;
//! * [`Order`]: faults on request, in words;
//! * [`ftl`]: flash translation layers, for simulators and devices;
//! * [`segments`]: a log-structured block device, which writes segments in sequence and cleans
//!   them.

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
