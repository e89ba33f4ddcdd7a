//! What a frozen volume holds back: requests that change something wait here, not in the threads
//! that serve, so that reads go on. Nobody waits for what is forgotten and closed, but it may
//! delete, so it waits, too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use stetfs::low::Ino;

use crate::ops::{Fh, Request};

/// Since when changes are held back.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    /// When it began.
    pub since: SystemTime,
    /// Requests that wait.
    pub waiting: usize,
}

/// What is to be done at a thaw.
pub(crate) struct Waiting<F> {
    /// Lookups that the kernel gave back, by inode.
    pub(crate) forgotten: HashMap<Ino, u64>,
    /// Handles that were closed.
    pub(crate) closed: Vec<Fh>,
    /// In the order in which they came.
    pub(crate) requests: Vec<Request<F>>,
}

impl<F> Default for Waiting<F> {
    fn default() -> Waiting<F> {
        Waiting {
            forgotten: HashMap::new(),
            closed: Vec::new(),
            requests: Vec::new(),
        }
    }
}

struct Since<F> {
    at: SystemTime,
    waiting: Waiting<F>,
}

/// Holds back while the volume is frozen.
pub(crate) struct HeldBack<F> {
    /// Held by who freezes, thaws, opens the volume again or closes it, to its end, and taken
    /// before the volume: a writer that waits for requests which wait for a thaw would keep the
    /// thaw from the volume.
    turn: Mutex<()>,
    since: Mutex<Option<Since<F>>>,
    /// It is about to, or does.
    may_hold: AtomicBool,
    /// Whether there is something in it, so that nobody needs the lock to see that there is not.
    holds: AtomicBool,
}

impl<F> Default for HeldBack<F> {
    fn default() -> HeldBack<F> {
        HeldBack {
            turn: Mutex::default(),
            since: Mutex::default(),
            may_hold: AtomicBool::default(),
            holds: AtomicBool::default(),
        }
    }
}

impl<F> HeldBack<F> {
    /// Waits until nobody else freezes, thaws, opens the volume again or closes it.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Says that it is about to begin; until [`end`](Self::end).
    pub(crate) fn prepare(&self) {
        self.may_hold.store(true, Ordering::Release);
    }

    /// Whether it is about to, or does.
    pub(crate) fn may_hold(&self) -> bool {
        self.may_hold.load(Ordering::Acquire)
    }

    /// Begins; false where it has begun already.
    pub(crate) fn begin(&self) -> bool {
        let mut since = self.since.lock();
        if since.is_some() {
            return false;
        }
        *since = Some(Since {
            at: SystemTime::now(),
            waiting: Waiting::default(),
        });
        self.holds.store(true, Ordering::Release);
        true
    }

    /// Ends, with what waited.
    pub(crate) fn end(&self) -> Option<Waiting<F>> {
        let mut since = self.since.lock();
        self.holds.store(false, Ordering::Release);
        self.may_hold.store(false, Ordering::Release);
        since.take().map(|since| since.waiting)
    }

    /// Whether it does.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    /// Since when, if it does.
    pub(crate) fn since(&self) -> Option<Frozen> {
        self.since.lock().as_ref().map(|since| Frozen {
            since: since.at,
            waiting: since.waiting.requests.len(),
        })
    }

    /// Keeps a request, or gives it back to be served now.
    pub(crate) fn request(&self, request: Request<F>) -> Option<Request<F>> {
        match self.since.lock().as_mut() {
            Some(since) => {
                since.waiting.requests.push(request);
                None
            }
            None => Some(request),
        }
    }

    /// Whether what the kernel forgets of `ino` is kept for later.
    pub(crate) fn forgets(&self, ino: Ino, nlookup: u64) -> bool {
        if !self.holds() {
            return false;
        }
        let mut since = self.since.lock();
        let Some(since) = since.as_mut() else {
            return false;
        };
        let n = since.waiting.forgotten.entry(ino).or_default();
        *n = n.saturating_add(nlookup);
        true
    }

    /// Whether the closing of `fh` is kept for later.
    pub(crate) fn closes(&self, fh: Fh) -> bool {
        if !self.holds() {
            return false;
        }
        let mut since = self.since.lock();
        let Some(since) = since.as_mut() else {
            return false;
        };
        since.waiting.closed.push(fh);
        true
    }
}
