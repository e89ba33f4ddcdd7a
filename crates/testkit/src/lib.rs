//! Test harness of StetFS: ext4 images, loop devices, mounts by the kernel or by `stetfs`, tree
//! snapshots that can be compared, and deterministic workloads.
//!
//! Everything that a test sets up (directory, loop device, mount, child process) is a value that
//! takes it down when dropped, also while a panic unwinds. A process that is killed outright is
//! cleaned up after by its guardian (see [`scratch`]).
//!
//! Nothing here depends on StetFS itself, so that the harness can be proved against the kernel.

pub mod cmd;
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
