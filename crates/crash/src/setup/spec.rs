//! A journal with its options, and the shape of a volume.

use std::fmt;

use stetfs::low::{FsOptions, Preset};

use crate::judge::promise::Promise;
use crate::volume::{Batches, options};

/// `PRESET[,option…]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSpec {
    /// As it was written, normalised.
    pub(super) text: String,
    /// How the volume is opened.
    pub options: FsOptions,
    /// What is taken as promised.
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
    /// What its device promises of batches that it shares.
    pub batches: Batches,
    /// Its device has FUA.
    pub fua: bool,
    /// Bytes of a region of persistent memory for records of files; none without one.
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
