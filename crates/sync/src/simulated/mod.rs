//! Virtual time: locks, atomics, threads and clocks for a simulation of many cores.
//!
//! [`run`] starts a simulation. Each simulated thread is a thread of the host, and exactly one of
//! them runs at a time: always the one with the lowest virtual time. A thread charges its work to
//! its clock at scheduling points, which are the operations of this module (decisions/0046).
//!
//! A thread outside of a simulation gets the real operations of the same types. It must not wait
//! for a simulated thread that waits in the simulation, nor wake one: nothing would happen.

mod atomics;
mod channels;
mod cost;
mod instant;
mod line;
mod locks;
mod operations;
mod profile;
mod rwlock;
mod scheduler;
mod start;
mod threads;
mod world;

#[cfg(test)]
mod tests;

pub use channels::{channel, mpsc};
pub use cost::{Charge, Costs, Placement, Settings};
pub use instant::Instant;
pub use locks::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
pub use profile::{WaitKind, Waited};
pub use rwlock::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use start::{Outcome, run};
pub use std::thread_local;
pub use world::SimulationError;

pub use atomics::atomic;
pub use threads::thread;

/// Locks and atomics that are no scheduling points, for short sections that never wait for long:
/// counters of statistics and the like. A section under such a lock must not contain an operation
/// of the simulation.
pub mod unmodelled {
    pub use parking_lot::{Mutex, MutexGuard, RwLock};
    pub use std::sync::atomic;
}

/// Questions of a simulated thread about its simulation, and its wishes.
pub mod control {
    use super::{operations, world};

    pub use super::operations::{now, take_profile, this_core, trace};

    /// Whether the calling thread is a simulated one.
    pub fn is_simulated() -> bool {
        operations::this_core().is_some()
    }

    /// Charges `nanos` ns of work to the calling thread. Outside of a simulation: nothing.
    pub fn work(nanos: u64) {
        operations::charge(nanos);
        operations::point(world::Op::Work);
    }

    /// Pins the calling thread to `core` from now on. Outside of a simulation: nothing.
    pub fn pin(core: usize) {
        operations::pin(core);
    }
}

/// The number of cores of the calling thread's simulation.
pub(crate) fn cores() -> Option<usize> {
    operations::cores()
}

/// The calling thread's virtual time.
pub(crate) fn virtual_nanos() -> Option<u64> {
    operations::now()
}

/// The calling thread's core.
pub(crate) fn this_core() -> Option<usize> {
    operations::this_core()
}

/// The calling thread's number in its simulation.
pub(crate) fn task_number() -> Option<usize> {
    operations::task_number()
}
