//! Reader-writer locks: parking_lot's, on which simulated threads never wait.

use std::ops::{Deref, DerefMut};

use super::line::Line;
use super::operations;
use super::profile::WaitKind;
use super::world::Op;

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    line: Line,
    inner: parking_lot::RwLock<T>,
}

/// The release of a lock after its inner guard is gone.
struct Release<'a>(&'a Line);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        operations::released(self.0);
    }
}

/// A scheduling point before the inner guard goes.
struct Before;

impl Drop for Before {
    fn drop(&mut self) {
        operations::before_release();
    }
}

// Fields are dropped in their order: the point, the inner guard, the release.

/// As `parking_lot::RwLockReadGuard`.
pub struct RwLockReadGuard<'a, T: ?Sized> {
    before: Before,
    guard: parking_lot::RwLockReadGuard<'a, T>,
    release: Release<'a>,
}

/// As `parking_lot::RwLockWriteGuard`.
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    _before: Before,
    guard: parking_lot::RwLockWriteGuard<'a, T>,
    _release: Release<'a>,
}

/// As `parking_lot::MappedRwLockReadGuard`.
pub struct MappedRwLockReadGuard<'a, T: ?Sized> {
    _before: Before,
    guard: parking_lot::MappedRwLockReadGuard<'a, T>,
    _release: Release<'a>,
}

impl<T> RwLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock {
            line: Line::new(),
            inner: parking_lot::RwLock::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    fn reading<'a>(&'a self, guard: parking_lot::RwLockReadGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard {
            before: Before,
            guard,
            release: Release(&self.line),
        }
    }

    fn writing<'a>(
        &'a self,
        guard: parking_lot::RwLockWriteGuard<'a, T>,
    ) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard {
            _before: Before,
            guard,
            _release: Release(&self.line),
        }
    }

    /// Waits for shared access.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let try_it = || self.inner.try_read();
        let guard = operations::acquire(&self.line, WaitKind::Read, try_it);
        self.reading(guard.unwrap_or_else(|| self.inner.read()))
    }

    /// Waits for exclusive access.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let try_it = || self.inner.try_write();
        let guard = operations::acquire(&self.line, WaitKind::Write, try_it);
        self.writing(guard.unwrap_or_else(|| self.inner.write()))
    }

    /// Locks shared if that needs no waiting.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        operations::touch(&self.line, true, Op::Lock);
        Some(self.reading(self.inner.try_read()?))
    }

    /// Locks exclusively if that needs no waiting.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        operations::touch(&self.line, true, Op::Lock);
        Some(self.writing(self.inner.try_write()?))
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// A guard of a part of the value.
    ///
    /// # Errors
    /// The original guard, if `part` returns none.
    pub fn try_map<U: ?Sized>(
        this: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedRwLockReadGuard<'a, U>, Self> {
        let (before, release) = (this.before, this.release);
        match parking_lot::RwLockReadGuard::try_map(this.guard, part) {
            Ok(guard) => Ok(MappedRwLockReadGuard {
                _before: before,
                guard,
                _release: release,
            }),
            Err(guard) => Err(RwLockReadGuard {
                before,
                guard,
                release,
            }),
        }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> Deref for MappedRwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
