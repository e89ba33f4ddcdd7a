//! A journal with its options, and the shape of a volume.

use std::fmt;

use stetfs::low::{FsOptions, Preset};

use crate::judge::promise::Promise;
use crate::volume::{Batches, options};

/// A journal with its options, written `PRESET[,option…]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSpec {
    /// The text as written, normalised.
    pub(super) text: String,
    /// The options to open the volume with.
    pub options: FsOptions,
    /// The promise that the journal is held to.
    pub promise: Promise,
}

impl fmt::Display for JournalSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The shape of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in a block.
    pub block: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// The device's promise for batches that it shares.
    pub batches: Batches,
    /// Whether the device has FUA.
    pub fua: bool,
    /// Bytes of a region of persistent memory for sync records; `None` without one.
    pub region: Option<u64>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            block: 1024,
            journal_blocks: 1024,
            batches: Batches::Torn,
            fua: false,
            region: None,
        }
    }
}

impl JournalSpec {
    /// A preset without options.
    pub fn of(preset: Preset) -> JournalSpec {
        JournalSpec {
            text: preset.name().into(),
            options: options(preset),
            promise: Promise::Synced,
        }
    }
}
