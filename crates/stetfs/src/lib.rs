//! StetFS as a library: ext4 volumes in image files and on block devices, with paths and the habits
//! of [`std::fs`], without a mount, a server or rights of an administrator.
//!
//! ```
//! # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
//! # let path = image.path();
//! use std::io::{Read, Write};
//! use stetfs::{MountOptions, Volume};
//!
//! // `path` is an image that `mke2fs -t ext4` made.
//! let volume = Volume::open(path, &MountOptions::new())?;
//! volume.create_dir_all("/var/log")?;
//!
//! let mut log = volume.create_file("/var/log/messages")?;
//! writeln!(log, "hello")?;
//! // It stands from here on, whatever happens.
//! log.sync_all()?;
//!
//! for entry in volume.read_dir("/var")? {
//!     println!("{}", entry?.path().display());
//! }
//! let mut text = String::new();
//! volume.open_file("/var/log/messages")?.read_to_string(&mut text)?;
//! assert_eq!(text, "hello\n");
//!
//! drop(log);
//! volume.close()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Paths
//!
//! A path is one of the volume's, `/` is its root, and a path that does not begin with `/` begins
//! there as well. Symbolic links are followed inside of the volume, 40 at most; absolute ones begin
//! at its root, and `..` does not lead out of it.
//!
//! # Who asks
//!
//! There are no users here: whoever may write the image may do all with what is in it, and no mode
//! stands in the way. New files belong to root, unless [`MountOptions::owner`] says otherwise, and
//! have the modes that a umask of 022 leaves.
//!
//! # What stands
//!
//! As with a mount: what was synced ([`File::sync_all`], [`Volume::sync_all`]) is there after a
//! crash, other changes are at most a few seconds behind, and what is there is consistent. The
//! journal is the one that [`MountOptions::journal`] names.
//!
//! # The end
//!
//! [`Volume::close`] brings everything home and says how that went. A volume that is dropped does
//! the same, and tells of a failure through [`tracing`]; then, as after a crash, the journal keeps
//! what was synced, and the next opening replays it. Files, directory listings and clones of a
//! [`Volume`] hold it open.
//!
//! # Threads
//!
//! All types are `Send` and `Sync`, and all operations take `&self` and run in parallel.

#![forbid(unsafe_code)]

mod atomic;
mod dir;
mod error;
mod file;
mod held_group;
pub mod low;
mod metadata;
mod names;
mod open_options;
mod options;
mod resolve;
mod shared;
mod volume;
mod walk;
mod xattr;

pub use atomic::{AtomicFile, AtomicGroup};
pub use dir::{DirEntry, ReadDir};
pub use error::{Error, Result};
pub use file::File;
pub use low::{FileType, Preset};
pub use metadata::{Metadata, SetMetadata};
pub use names::Node;
pub use open_options::OpenOptions;
pub use options::MountOptions;
pub use volume::{Space, Volume};
pub use walk::Walk;
