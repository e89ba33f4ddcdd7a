//! The C API of StetFS: implements `include/stetfs.h` on the library's path API.
//!
//! * Handles are boxes owned by the caller; `…_close` takes them back.
//! * Functions return 0 or a count, or a negative errno with a message for the calling thread
//!   (`stetfs_last_error`).
//! * No panic crosses the border: it becomes `-ENOTRECOVERABLE`.
//! * Arguments have types that are pointers in C and that Rust checks: `Option<&T>`,
//!   `Option<Box<T>>`. Only texts and buffers need more; `border` alone reads them.
//!
//! Modules: `answer` (results and the last error), `border` (texts and buffers), `volume`, `names`,
//! `file`, `group` (files that change at once), `dir`, `stat`. Options are text, which the library
//! reads.

mod answer;
mod border;
mod dir;
mod file;
mod group;
mod names;
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
