//! Locks, atomics, threads and clocks of code that runs in virtual time, but that models do not
//! take apart: what lies beside the journal.
//!
//! They are parking_lot's and the standard library's types, with no code between. With the feature
//! `virtual` they are those of a simulation of many cores (`simulated`).

#[cfg(not(all(feature = "virtual", not(feature = "model"))))]
mod real {
    pub use crossbeam_channel as channel;
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::{atomic, mpsc};
    pub use std::thread;
    pub use std::thread_local;
    pub use std::time::Instant;

    /// Locks and atomics that a simulation does not see: for sections that never wait for long.
    pub mod unmodelled {
        pub use parking_lot::{Mutex, MutexGuard, RwLock};
        pub use std::sync::atomic;
    }
}

#[cfg(not(all(feature = "virtual", not(feature = "model"))))]
pub use real::*;

#[cfg(all(feature = "virtual", not(feature = "model")))]
pub use crate::simulated::*;
