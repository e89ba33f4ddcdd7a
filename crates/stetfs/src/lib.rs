//! StetFS as a library: ext4 volumes in image files and on block devices, by path and in the style
//! of [`std::fs`], without a mount, a server or administrator's rights.
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
//! // Durable from here on, whatever happens.
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
//! Paths are inside the volume: `/` is its root, and a path without a leading `/` begins there as
//! well. Symbolic links are followed inside the volume, 40 at most; absolute ones begin at its
//! root, and `..` does not lead out of it.
//!
//! # Users and permissions
//!
//! The library does not check permissions: a program that may write the image may change all files
//! in it, whatever their modes. New files belong to root, unless [`MountOptions::owner`] sets
//! another owner, and get their modes by a umask of 022.
//!
//! # Durability
//!
//! Durability is as with a mount: after a crash all synced changes ([`File::sync_all`],
//! [`Volume::sync_all`]) are there, unsynced changes of the last few seconds may be missing, and
//! the volume is consistent. [`MountOptions::journal`] chooses the journal.
//!
//! # Closing
//!
//! [`Volume::close`] writes everything back and returns the result. Dropping a volume does the
//! same, and reports a failure through [`tracing`]; then, as after a crash, the journal holds the
//! synced changes, and the next opening replays them. Files, directory listings and clones of a
//! [`Volume`] keep it open.
//!
//! # Threads
//!
//! All types are `Send` and `Sync`, and all operations take `&self` and run in parallel.

#![forbid(unsafe_code)]

mod atomic;
mod dir;
mod error;
mod file;
mod format_options;
mod format_text;
mod held_group;
pub mod low;
mod metadata;
mod names;
mod open_options;
mod option_text;
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
pub use format_options::FormatOptions;
pub use format_text::FORMAT_OPTIONS;
pub use low::{FileType, Formatted, Preset, Profile};
pub use metadata::{Metadata, SetMetadata};
pub use names::Node;
pub use open_options::OpenOptions;
pub use option_text::{BadOption, LIBRARY_OPTIONS};
pub use options::MountOptions;
pub use volume::{Space, Volume};
pub use walk::Walk;
