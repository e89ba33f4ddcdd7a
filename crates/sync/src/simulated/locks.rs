//! Mutexes and condition variables: parking_lot's types, on which simulated threads never wait.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::instant::Instant;
use super::line::Line;
use super::operations;
use super::profile::WaitKind;
use super::world::Op;

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    line: Line,
    inner: parking_lot::Mutex<T>,
}

/// As `parking_lot::MutexGuard`. It is empty only while its thread waits for a signal.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    guard: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            line: Line::new(),
            inner: parking_lot::Mutex::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: self,
            guard: Some(self.take()),
        }
    }

    #[track_caller]
    fn take(&self) -> parking_lot::MutexGuard<'_, T> {
        let try_it = || self.inner.try_lock();
        operations::acquire(&self.line, WaitKind::Mutex, try_it)
            .unwrap_or_else(|| self.inner.lock())
    }

    /// Locks if the mutex is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        operations::touch(&self.line, true, Op::Lock);
        let guard = self.inner.try_lock()?;
        Some(MutexGuard {
            mutex: self,
            guard: Some(guard),
        })
    }

    /// Whether someone holds it.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.is_some() {
            operations::before_release();
            self.guard = None;
            operations::released(&self.mutex.line);
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the thread that has the guard waits"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the thread that has the guard waits"),
        }
    }
}

/// As `parking_lot::WaitTimeoutResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether time ran out before a signal came.
    pub const fn timed_out(&self) -> bool {
        self.0
    }
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
    /// Makes the type's size that of something: addresses tell variables apart.
    _place: u8,
}

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar {
            inner: parking_lot::Condvar::new(),
            _place: 0,
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Waits for a signal.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_within(guard, None);
    }

    /// Waits for a signal, at most for `limit`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        limit: Duration,
    ) -> WaitTimeoutResult {
        self.wait_within(guard, Instant::now().checked_add(limit))
    }

    /// Waits for a signal, at most until `until`.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        until: Instant,
    ) -> WaitTimeoutResult {
        self.wait_within(guard, Some(until))
    }

    /// As `wait`, while `condition` holds.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            self.wait(guard);
        }
    }

    #[track_caller]
    fn wait_within<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        until: Option<Instant>,
    ) -> WaitTimeoutResult {
        let mutex = guard.mutex;
        let held = &mut guard.guard;
        let release = || {
            *held = None;
            operations::released(&mutex.line);
        };
        let nanos = until.map(Instant::nanos);
        if let Some(timed_out) = operations::await_signal(self.address(), nanos, release) {
            guard.guard = Some(mutex.take());
            return WaitTimeoutResult(timed_out);
        }
        let Some(held) = &mut guard.guard else {
            unreachable!("the thread that has the guard waits")
        };
        let timed_out = match until {
            Some(until) => self.inner.wait_for(held, until.left()).timed_out(),
            None => {
                self.inner.wait(held);
                false
            }
        };
        WaitTimeoutResult(timed_out)
    }

    /// Wakes one waiter. Returns whether one waited.
    pub fn notify_one(&self) -> bool {
        match operations::signal(self.address(), 1) {
            Some(woken) => woken > 0,
            None => self.inner.notify_one(),
        }
    }

    /// Wakes all waiters. Returns their number.
    pub fn notify_all(&self) -> usize {
        match operations::signal(self.address(), usize::MAX) {
            Some(woken) => woken,
            None => self.inner.notify_all(),
        }
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
