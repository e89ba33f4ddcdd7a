//! Workloads, peers and figures: how fast StetFS is beside other file systems, and how well its
//! volumes age.
//!
//! * [`compare`]: any mounted directories against each other;
//! * [`figure`]: the figures of the papers, with their numbers beside ours;
//! * [`flash`]: the figures of the flash laboratory;
//! * [`age`]: months of use, and how fragmented a volume is after them.

#![forbid(unsafe_code)]

pub mod age;
mod aged;
mod cold;
pub mod compare;
pub mod figure;
mod files;
pub mod flash;
pub mod interrupt;
