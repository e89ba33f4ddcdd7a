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
mod input;
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
