//! Workloads, peers and figures: how fast StetFS is beside other file systems.
//!
//! [`compare`] measures any mounted directories against each other and knows nothing of StetFS.

pub mod compare;
