//! File systems that answer requests: a volume (`volume_fs`), with the state that a mount keeps
//! beside it, and a block device (`device_fs`).

pub(crate) mod atomic;
mod copying;
pub(crate) mod device_fs;
mod guarded;
mod handles;
pub(crate) mod held_back;
mod ioctl;
pub(crate) mod opens;
mod readdirplus_hint;
mod retry;
mod stale;
pub(crate) mod volume_fs;
