//! Operations on the volume as a whole: freezing, shutting down, discarding, its marks and its
//! name.

mod freeze;
mod io_trace;
mod marks;
mod memory;
mod shutdown;
mod statfs;
mod superblock;
mod throttle;
mod trim;
