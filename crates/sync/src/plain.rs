//! Locks without ranks, atomics, threads and clocks: the only ones that the journal and the crates
//! below it use.
//!
//! They are those of [`crate::timed`]: parking_lot's and the standard library's types, with no code
//! between. With the feature `model` they are Shuttle's: a model of the journal then runs in any
//! order of its steps (`model`).

#[cfg(not(feature = "model"))]
pub use crate::timed::*;

#[cfg(feature = "model")]
pub use crate::model::*;
