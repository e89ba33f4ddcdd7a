//! Locks without ranks, atomics, threads and clocks: the only ones that the journal and the crates
//! below it use.
//!
//! They are parking_lot's and the standard library's types, with no code between. With the feature
//! `model` they are Shuttle's: a model of the journal then runs in any order of its steps
//! (`model`).

#[cfg(not(feature = "model"))]
mod real {
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::{atomic, mpsc};
    pub use std::thread;
    pub use std::thread_local;
    pub use std::time::Instant;
}

#[cfg(not(feature = "model"))]
pub use real::*;

#[cfg(feature = "model")]
pub use crate::model::*;
