//! StetFS for C: what `include/stetfs.h` declares, made of the library's paths.
//!
//! * Handles are boxes that the caller holds; they are taken back by `…_close`.
//! * Functions answer 0 or a count, or an errno below zero, with a text for the calling thread
//!   (`stetfs_last_error`).
//! * No panic crosses the border: it becomes `-ENOTRECOVERABLE`.
//! * Arguments are of types that C's pointers are, and that Rust checks: `Option<&T>`,
//!   `Option<Box<T>>`. Only texts and buffers need more; they are read in `border` alone.
//!
//! Modules: `answer` (results and the last error), `border` (texts and buffers), `options` (those
//! of `stetfs_open`), `volume`, `names`, `file`, `group` (files that change at
//! once), `dir`, `stat`.

mod answer;
mod border;
mod dir;
mod file;
mod group;
mod names;
mod options;
mod stat;
mod volume;

pub use answer::{stetfs_last_error, stetfs_version};
pub use border::{Buffer, Bytes, Text, Texts};
pub use dir::*;
pub use file::*;
pub use group::*;
pub use names::*;
pub use stat::*;
pub use volume::*;
