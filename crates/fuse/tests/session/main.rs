//! Requests of a session without a kernel: bytes as the kernel sends them go to a real volume in
//! memory, and the tests judge the answers as the kernel would. They need neither root nor a mount.

#![allow(clippy::unwrap_used)]

mod atomic;
mod attributes;
mod bytes;
mod device;
mod directories;
mod files;
mod freezing;
mod ioctls;
mod kernel;
mod names;
mod protocol;
mod space;
