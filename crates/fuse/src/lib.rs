//! Adapter from FUSE requests to the stetfs library.
//!
//! * `ops`: the trait between the transport and the file system, with owned, exactly-once answers;
//! * `wire`: the FUSE protocol on `/dev/fuse`, as calls of that trait;
//! * `inline_wait`: whether a call may wait in the thread that serves it;
//! * `volume_fs`: a [`stetfs::low::Volume`] as an implementation of it, with `opens`, `handles`,
//!   `ioctl`, `room` and `atomic`;
//! * `guarded`: files that must not be changed; `stale`: what the kernel must not go on showing;
//! * `caller`, `calls`: what the kernel does not say of who asks;
//! * `mount`, `mounted`, `mountinfo`, `fusermount`, `loopdev`: the mount itself;
//! * `namespace`: a mount namespace of the server's own; `visit`: changes in another than that;
//! * `mounter`: a process that makes the mount;
//! * `helper`: a process that keeps the privileges which the server gives away;
//! * `passing`: descriptors from one process to another;
//! * `service`: any other file system on a directory; `device_fs`: a block device as one, with
//!   `gate` and `share_ioctl`;
//! * `awake`: keeps processors from sleeping between requests; `uring_switch`: the kernel's, for a
//!   moment;
//! * `held_back`: requests that wait while the volume is frozen;
//! * `bdi`: what the kernel allows the mount; `connection`: what was agreed on with the kernel, to
//!   be shown;
//! * `server`: all of it together, and closing the volume when the session ends.

mod apart;
mod atomic;
mod awake;
mod bdi;
mod buffer;
mod caller;
mod calls;
mod connection;
mod copying;
#[cfg(test)]
mod counting;
mod device_fs;
mod fakeroot;
mod fusermount;
mod gate;
mod guarded;
mod handles;
mod held_back;
mod helper;
mod inherited;
mod inline_wait;
mod ioctl;
mod loopdev;
mod mount;
mod mounted;
mod mounter;
pub mod mountinfo;
mod namespace;
mod opens;
mod ops;
mod passing;
mod room;
mod serve_options;
mod server;
mod service;
mod share_ioctl;
mod stale;
mod sys;
#[cfg(debug_assertions)]
mod taken_over;
mod uring_switch;
mod visit;
mod volume_fs;
mod walkers;
mod wire;

pub use apart::apart;
pub use atomic::AtomicHolder;
pub use awake::{AwakeStats, LowLatency, idle_driver};
pub use connection::{Connection, ConnectionStats};
pub use device_fs::{Control, DeviceFs, Report};
pub use fakeroot::Ids;
pub use gate::Gate;
pub use held_back::Frozen;
pub use helper::{HELPER, Helper, helper, hush, start_helper};
pub use inherited::{Limits, hear_signals, is_ignored, raise, shed};
pub use mount::{MountError, MountOptions, Unmount, check_dir, is_root, look_for_fuse, unmount};
pub use mounted::Mounted;
pub use mounter::{Entrance, Mounter, Plan};
pub use namespace::{leave_namespace, let_go_of_mounts};
pub use opens::Opens;
pub use ops::{
    CopyArgs, Fh, FileSystem, Invalidate, IoctlArgs, IoctlReply, Listing, NewNode, OpenFile,
    Opened, ReadArgs, ReadDone, Request, Why, WriteArgs,
};
pub use serve_options::{IoUring, ServeOptions};
pub use server::{ServeError, Server};
pub use service::Service;
pub use sys::break_atomic_write;
#[cfg(debug_assertions)]
pub use taken_over::{Victims, taken_over, taken_over_before};
pub use uring_switch::mend_switch;
pub use visit::{VISITOR, visitor};
pub use volume_fs::{VolumeFs, VolumeFsOptions};
pub use wire::{Answers, OPERATION, Offline, RequestLatency, request_latency, requests};
