//! Makes ext4 volumes, without e2fsprogs.
//!
//! A [`Plan`] is made from a [`Space`] and [`FormatOptions`] without any I/O: it holds all numbers
//! of the volume and the places and bytes of its first files. [`Plan::write`] writes it.
//!
//! ```
//! use stetfs_block::MemDevice;
//! use stetfs_format::{Before, FormatOptions, Plan, Space};
//!
//! let device = MemDevice::new(64 << 20);
//! let space = Space { bytes: 64 << 20, sector: 512 };
//! let plan = Plan::new(space, &FormatOptions::default())?;
//! plan.write(&device, Before::Zeros)?;
//! # Ok::<(), stetfs_format::FormatError>(())
//! ```
//!
//! The floors of the crate, from the bottom: options, features, profiles; `settle` (the numbers);
//! `groups` (the places of metadata); `room` and `file_map` (those of files); `files` (their
//! contents); `tables` (descriptors and bitmaps); `plan`.
//!
//! The numbers follow mke2fs's documentation (`mke2fs(8)`, `mke2fs.conf(5)`) and what it does; the
//! layouts follow the ext4 documentation of the kernel.

#![forbid(unsafe_code)]
#![deny(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss
    )
)]

mod batch;
mod error;
mod features;
mod file_map;
mod files;
mod found;
mod groups;
mod options;
mod plan;
mod profile;
mod quota;
mod random;
mod room;
mod rules;
mod settle;
mod space;
mod tables;

pub use error::{FormatError, Result as FormatResult};
pub use features::FeatureEdits;
pub use found::{Found, found};
pub use options::FormatOptions;
pub use plan::{Before, Plan, Summary};
pub use profile::Profile;
pub use space::Space;
