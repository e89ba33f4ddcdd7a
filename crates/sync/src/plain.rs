//! Locks without ranks, atomics, threads and clocks: what the journal and what stands below it take
//! from here and from nowhere else.
//!
//! They are parking_lot's and the standard library's, and no code lies between. With the feature
//! `model` they are Shuttle's, under which a model of the journal runs in any order of its steps
//! (`model`).

#[cfg(not(feature = "model"))]
mod real {
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::{atomic, mpsc};
    pub use std::thread;
    pub use std::thread_local;
    pub use std::time::Instant;

    /// Whether a mending is in its place; a model takes it out to see that it finds what it mends.
    /// Here it always is.
    #[inline(always)]
    pub const fn mended(_what: &str) -> bool {
        true
    }
}

#[cfg(not(feature = "model"))]
pub use real::*;

#[cfg(feature = "model")]
pub use crate::model::*;
