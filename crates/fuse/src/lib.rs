//! Adapter from FUSE requests to the stetfs library.
//!
//! * `ops`: the trait between the transport and the file system, with owned, exactly-once answers;
//! * `wire`: the FUSE protocol on `/dev/fuse`, as calls of that trait; `patience`: whether a call may wait;
//! * `volume_fs`: a [`stetfs::Volume`] as an implementation of it, with `handles`, `ioctl` and `room`;
//! * `mount`, `mounted`, `mountinfo`, `fusermount`, `loopdev`: the mount itself;
//! * `service`: any other file system on a directory; `device_fs`: a block device as one, with `gate` and `share_ioctl`;
//! * `server`: all of it together, and closing the volume when the session ends.

mod buffer;
mod caller;
mod device_fs;
mod fusermount;
mod gate;
mod handles;
mod ioctl;
mod loopdev;
mod mount;
mod mounted;
pub mod mountinfo;
mod ops;
mod patience;
mod room;
mod server;
mod service;
mod share_ioctl;
mod sys;
mod volume_fs;
mod wire;

pub use device_fs::{Control, DeviceFs, Report};
pub use gate::Gate;
pub use mount::{MountError, MountOptions, Unmount, check_dir, is_root, remount_flags, unmount};
pub use mounted::Mounted;
pub use ops::{
    CopyArgs, Fh, FileSystem, Invalidate, IoctlArgs, IoctlReply, Listing, Opened, ReadDone,
    WriteArgs,
};
pub use server::{IoUring, ServeError, ServeOptions, Server};
pub use service::Service;
pub use volume_fs::{VolumeFs, VolumeFsOptions};
