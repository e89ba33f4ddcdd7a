//! Workloads, peers and figures: how fast StetFS is beside other file systems.
//!
//! * [`compare`]: any mounted directories against each other;
//! * [`figure`]: the figures of the papers, with their numbers beside ours.

pub mod compare;
pub mod figure;
