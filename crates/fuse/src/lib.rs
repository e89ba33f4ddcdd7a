//! Adapter from FUSE requests to the stetfs library, in floors from top to bottom; each imports
//! only those below:
//!
//! * `server`: a volume being served: the mount, the session, and closing the volume at its end;
//!   the process that makes the mount (`mounter`), the result of the negotiation for display
//!   (`connection`), any other file system on a directory (`service`);
//! * `session`: requests are received and served until the connection ends; a session without a
//!   kernel (`offline`);
//! * `requests`: a [`stetfs::low::Volume`] as a [`FileSystem`] (`volume_fs`), with open files,
//!   ioctls, atomic groups, immutable files, stale kernel pages, and requests that wait while the
//!   volume is frozen; a block device as one (`device_fs`);
//! * `dispatch`: bytes of a request as a call of [`FileSystem`], and its answer as bytes;
//! * `helper`: a process that keeps the privileges which the server gives away, with changes of the
//!   mount and facts about callers that the kernel does not send;
//! * `mount`: making, finding and removing mounts, here and in other namespaces; loop devices, the
//!   kernel's limits for the mount and its switch for FUSE over io_uring;
//! * `transport`: `/dev/fuse`, rings, and what keeps processors from sleeping between requests;
//! * `wire`: structures and numbers of the FUSE protocol, and the negotiation;
//! * `system`: system calls, processes, passing descriptors between processes;
//! * `api`: the trait [`FileSystem`] between transport and file systems, with owned, exactly-once
//!   answers; whether a call may wait in the thread that serves it (`inline_wait`).

mod api;
#[cfg(test)]
mod counting;
mod dispatch;
mod helper;
mod mount;
mod requests;
mod server;
mod session;
mod system;
mod transport;
mod wire;

pub use api::fakeroot::Ids;
pub use api::ops::{
    CopyArgs, Fh, FileSystem, Invalidate, IoctlArgs, IoctlReply, Listing, NewNode, OpenFile,
    Opened, ReadArgs, ReadDone, Request, Why, WriteArgs,
};
pub use helper::{HELPER, Helper, helper, hush, start_helper};
pub use mount::mounted::Mounted;
pub use mount::mountinfo;
pub use mount::namespace::{leave_namespace, let_go_of_mounts};
pub use mount::uring_switch::mend_switch;
pub use mount::visit::{VISITOR, visitor};
pub use mount::{MountError, MountOptions, Unmount, check_dir, is_root, look_for_fuse, unmount};
pub use requests::atomic::AtomicHolder;
pub use requests::device_fs::gate::Gate;
pub use requests::device_fs::{Control, DeviceFs, Report};
pub use requests::held_back::Frozen;
pub use requests::opens::Opens;
pub use requests::volume_fs::{VolumeFs, VolumeFsOptions};
pub use server::connection::{Connection, ConnectionStats};
pub use server::mounter::{Entrance, Mounter, Plan};
pub use server::options::{IoUring, ServeOptions};
pub use server::service::Service;
#[cfg(debug_assertions)]
pub use server::taken_over::{Victims, taken_over, taken_over_before};
pub use server::{ServeError, Server};
pub use session::Offline;
pub use system::apart::apart;
pub use system::inherited::{Limits, hear_signals, is_ignored, raise, shed};
pub use system::sys::break_atomic_write;
pub use transport::awake::{AwakeStats, LowLatency, idle_driver};
pub use transport::ring::memory::OPERATION;
pub use transport::sink::Answers;
pub use wire::counts::requests;
pub use wire::times::{RequestLatency, request_latency};
