//! Locks with ranks: the lock order of StetFS, checked in debug builds; and helpers for threads.
//!
//! A thread takes locks in rising [`Rank`] only; a pair of the same rank needs the `nested` calls,
//! whose caller orders the pair by another rule (parents before children, then by inode number).
//! In debug builds a violation panics with both ranks; in release builds the checks are gone.
//! The order itself is documented in `docs/architecture.md`.

#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};

use plain::{
    Mutex as RawMutex, MutexGuard as RawGuard, RwLock as RawRwLock, RwLockReadGuard as RawRead,
    RwLockWriteGuard as RawWrite,
};

mod held;
#[cfg(feature = "model")]
mod model;
#[cfg(any(feature = "model", feature = "virtual"))]
mod moment;
pub mod plain;
mod points;
mod rank;
#[cfg(all(feature = "virtual", not(feature = "model")))]
pub mod simulated;
mod threads;
pub mod timed;

pub use held::{Held, hold};
pub use points::{Hold, point};
pub use rank::Rank;
pub use threads::{
    processor, processors, run_anywhere, serve_processor, served_processor, thread_number,
    time_of_day,
};

/// A mutex with a rank.
pub struct Mutex<T> {
    rank: Rank,
    inner: RawMutex<T>,
}

/// Guard of a [`Mutex`].
pub struct MutexGuard<'a, T> {
    guard: RawGuard<'a, T>,
    _held: Held,
}

impl<T> Mutex<T> {
    /// A mutex at `rank`.
    pub const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex {
            rank,
            inner: RawMutex::new(value),
        }
    }

    /// Locks; nothing of the same or a later rank may be held.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = hold(self.rank, false);
        MutexGuard {
            guard: self.inner.lock(),
            _held: held,
        }
    }

    /// Locks while another lock of the same rank may be held; the caller orders such pairs.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn lock_nested(&self) -> MutexGuard<'_, T> {
        let held = hold(self.rank, true);
        MutexGuard {
            guard: self.inner.lock(),
            _held: held,
        }
    }

    /// Locks if that needs no waiting. Any rank may be held: a thread that does not wait cannot
    /// deadlock.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock()?;
        Some(MutexGuard {
            guard,
            _held: Held::unchecked(self.rank),
        })
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A reader-writer lock with a rank.
pub struct RwLock<T> {
    rank: Rank,
    inner: RawRwLock<T>,
}

/// Shared guard of a [`RwLock`].
pub struct RwLockReadGuard<'a, T> {
    guard: RawRead<'a, T>,
    _held: Held,
}

/// Exclusive guard of a [`RwLock`].
pub struct RwLockWriteGuard<'a, T> {
    guard: RawWrite<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock at `rank`.
    pub const fn new(rank: Rank, value: T) -> RwLock<T> {
        RwLock {
            rank,
            inner: RawRwLock::new(value),
        }
    }

    /// Locks shared; nothing of the same or a later rank may be held.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = hold(self.rank, false);
        RwLockReadGuard {
            guard: self.inner.read(),
            _held: held,
        }
    }

    /// Locks exclusively; nothing of the same or a later rank may be held.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = hold(self.rank, false);
        RwLockWriteGuard {
            guard: self.inner.write(),
            _held: held,
        }
    }

    /// Like [`read`](Self::read) while another lock of the same rank may be held.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn read_nested(&self) -> RwLockReadGuard<'_, T> {
        let held = hold(self.rank, true);
        RwLockReadGuard {
            guard: self.inner.read(),
            _held: held,
        }
    }

    /// Like [`write`](Self::write) while another lock of the same rank may be held.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn write_nested(&self) -> RwLockWriteGuard<'_, T> {
        let held = hold(self.rank, true);
        RwLockWriteGuard {
            guard: self.inner.write(),
            _held: held,
        }
    }

    /// Locks exclusively if that needs no waiting, whatever is held.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let guard = self.inner.try_write()?;
        Some(RwLockWriteGuard {
            guard,
            _held: Held::unchecked(self.rank),
        })
    }

    /// Locks shared if that needs no waiting, whatever is held.
    #[cfg_attr(feature = "virtual", track_caller)]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let guard = self.inner.try_read()?;
        Some(RwLockReadGuard {
            guard,
            _held: Held::unchecked(self.rank),
        })
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn rising_ranks_pass_and_guards_may_drop_in_any_order() {
        let a = Mutex::new(Rank::Inode, 1);
        let b = RwLock::new(Rank::Group, 2);
        let ga = a.lock();
        let gb = b.write();
        drop(ga);
        drop(gb);
        let _again = a.lock();
    }

    #[test]
    #[should_panic(expected = "lock order")]
    fn a_falling_rank_panics() {
        let a = Mutex::new(Rank::Inode, ());
        let b = Mutex::new(Rank::Group, ());
        let _b = b.lock();
        let _a = a.lock();
    }

    #[test]
    #[should_panic(expected = "lock order")]
    fn an_unordered_pair_panics() {
        let a = Mutex::new(Rank::Inode, ());
        let b = Mutex::new(Rank::Inode, ());
        let _a = a.lock();
        let _b = b.lock();
    }

    #[test]
    fn an_ordered_pair_passes() {
        let a = Mutex::new(Rank::Inode, ());
        let b = Mutex::new(Rank::Inode, ());
        let _a = a.lock();
        let _b = b.lock_nested();
    }
}
