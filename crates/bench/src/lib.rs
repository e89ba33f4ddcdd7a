//! Benchmarks: workloads, peers and figures that measure the speed of StetFS beside other file
//! systems, and the ageing of its volumes.
//!
//! * [`compare`]: any mounted directories against each other;
//! * [`figure`]: the figures of the papers, with the paper's numbers beside the measured ones;
//! * [`scale`]: loads on many simulated cores, in virtual time;
//! * [`flash`]: the figures of the flash laboratory;
//! * [`age`]: months of use, and the fragmentation of a volume after them.

#![forbid(unsafe_code)]

pub mod age;
mod aged;
mod cold;
pub mod compare;
pub mod figure;
mod files;
pub mod flash;
pub mod interrupt;
pub mod scale;
