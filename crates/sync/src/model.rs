//! The model's version of `plain`: Shuttle's locks, atomics and threads, with the interfaces of the
//! types that they replace. Each of their steps is a point where Shuttle may switch to another
//! thread; one run of a model is one order of these steps.
//!
//! Time stands still, and no timeout expires: a wait with a time limit waits without one. A missing
//! signal is therefore a deadlock, which Shuttle reports.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

use shuttle::sync as inner;

pub use crate::moment::Instant;
pub use crossbeam_channel as channel;
pub use shuttle;
pub use shuttle::sync::{atomic, mpsc};
pub use shuttle::thread;
pub use shuttle::thread_local;

/// Locks and atomics without steps of the model.
pub mod unmodelled {
    pub use parking_lot::{Mutex, MutexGuard, RwLock};
    pub use std::sync::atomic;
}

fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(inner::Mutex<T>);

/// As `parking_lot::MutexGuard`. It is empty only while its thread waits.
pub struct MutexGuard<'a, T>(Option<inner::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(unpoisoned(self.0.lock())))
    }

    /// Locks if the mutex is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard(Some(self.0.try_lock().ok()?)))
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }

    /// The value.
    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("the thread that has the guard waits"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("the thread that has the guard waits"),
        }
    }
}

/// As `parking_lot::WaitTimeoutResult`: no wait times out.
pub struct WaitTimeoutResult;

impl WaitTimeoutResult {
    /// Always false: time stands still.
    pub const fn timed_out(&self) -> bool {
        false
    }
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar(inner::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar(inner::Condvar::new())
    }

    /// Waits for a signal.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.0.take() {
            guard.0 = Some(unpoisoned(self.0.wait(held)));
        }
    }

    /// Like `wait`: time stands still.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
    }

    /// Like `wait`: time stands still.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
    }

    /// Wakes one waiter. Always returns true, as Shuttle does not tell whether one waits.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one();
        true
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T>(inner::RwLock<T>);

/// As `parking_lot::RwLockReadGuard`.
pub struct RwLockReadGuard<'a, T>(inner::RwLockReadGuard<'a, T>);

/// As `parking_lot::RwLockWriteGuard`.
pub struct RwLockWriteGuard<'a, T>(inner::RwLockWriteGuard<'a, T>);

/// As `parking_lot::MappedRwLockReadGuard`: each access calls the function that finds the part.
pub struct MappedRwLockReadGuard<'a, T, F>(RwLockReadGuard<'a, T>, F);

impl<T> RwLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(inner::RwLock::new(value))
    }

    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard(unpoisoned(self.0.read()))
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(unpoisoned(self.0.write()))
    }

    /// Locks shared if that needs no waiting.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        Some(RwLockReadGuard(self.0.try_read().ok()?))
    }

    /// Locks exclusively if that needs no waiting.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        Some(RwLockWriteGuard(self.0.try_write().ok()?))
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }
}

impl<'a, T> RwLockReadGuard<'a, T> {
    /// A guard of a part of the value.
    ///
    /// # Errors
    /// The original guard, if `part` returns none.
    pub fn try_map<U, F>(guard: Self, part: F) -> Result<MappedRwLockReadGuard<'a, T, F>, Self>
    where
        U: ?Sized,
        F: Fn(&T) -> Option<&U>,
    {
        match part(&guard).is_some() {
            true => Ok(MappedRwLockReadGuard(guard, part)),
            false => Err(guard),
        }
    }
}

impl<T, U, F> Deref for MappedRwLockReadGuard<'_, T, F>
where
    U: ?Sized + 'static,
    F: Fn(&T) -> Option<&U>,
{
    type Target = U;
    fn deref(&self) -> &U {
        match (self.1)(&self.0) {
            Some(part) => part,
            None => unreachable!("it was there, and nobody has written since"),
        }
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl Instant {
    /// The moment; it is always the same.
    pub const fn now() -> Instant {
        Instant::at(Duration::ZERO)
    }
}
