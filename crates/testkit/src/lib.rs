//! Test harness of StetFS: ext4 images, loop devices, mounts by the kernel or by `stetfs`, tree
//! snapshots that can be compared, and deterministic workloads.
//!
//! Everything that a test sets up (directory, loop device, mount, child process) is a value that is
//! taken down when dropped, also while a panic unwinds. After a process that is killed outright its
//! guardian cleans up (see [`scratch`]).
//!
//! Nothing here depends on StetFS itself, so that the harness can be checked against the kernel.

pub mod cmd;
pub mod fuse;
pub mod image;
pub mod loopdev;
pub mod mount;
pub mod mounter;
mod mounts;
pub mod nbd;
pub mod scratch;
pub mod stet;
pub mod sys;
pub mod tools;
pub mod tree;
mod wait;
pub mod workload;

pub use image::{Image, Mkfs};
pub use loopdev::{LoopDev, LoopOptions};
pub use mount::KernelMount;
pub use mounter::{Attach, Mounted, Mounter};
pub use scratch::Scratch;
pub use stet::StetMount;
pub use tree::{CaptureOptions, Tree};
pub use wait::wait_until;
