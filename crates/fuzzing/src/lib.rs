//! What fuzzing runs.
//!
//! [`TARGETS`] are functions of any bytes that must not panic, hang, or take memory without bound.
//! The fuzzers of `fuzz/` call them with bytes that they make up (`./test --fuzz SECONDS`); a test
//! of this crate calls them with the corpus, so each crash that was found stays found.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

pub mod blocks;
pub mod costly;
pub mod images;
pub mod logs;
pub mod requests;
pub mod sparse;
pub mod visit;
pub mod volumes;

/// A function that fuzzing calls.
pub type Target = fn(&[u8]);

/// All, with their names in `fuzz/`.
pub const TARGETS: [(&str, Target); 5] = [
    ("volume", volumes::run),
    ("journal", logs::run),
    ("directory", blocks::directory),
    ("attributes", blocks::attributes),
    ("sparse", sparse::run),
];

/// Bytes taken from the front of the fuzzer's; zeroes when there are no more.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn word(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    /// Up to `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }
}
