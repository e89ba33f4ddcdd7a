//! Requests held back by a frozen volume: requests that change something wait here, not in the
//! serving threads, so that reads go on. FORGET and RELEASE have no waiting caller, but they may
//! delete files, so they wait, too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use stetfs::low::Ino;

use crate::api::ops::{Fh, Request};

/// The state of a frozen volume.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    /// Time of the freeze.
    pub since: SystemTime,
    /// Number of waiting requests.
    pub waiting: usize,
}

/// The work that a thaw has to do.
pub(crate) struct Waiting<F> {
    /// Counts of FORGET, by inode.
    pub(crate) forgotten: HashMap<Ino, u64>,
    /// Handles of RELEASE.
    pub(crate) closed: Vec<Fh>,
    /// Requests, in the order of arrival.
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

/// The requests held back while the volume is frozen.
pub(crate) struct HeldBack<F> {
    /// Held during a freeze, a thaw, a reopening or the close of the volume, and taken before the
    /// volume's lock. Otherwise a thread that waits for the volume's write lock, behind requests
    /// that wait for a thaw, would keep the thaw from the volume.
    turn: Mutex<()>,
    since: Mutex<Option<Since<F>>>,
    /// Whether it holds back, or is about to.
    may_hold: AtomicBool,
    /// Whether it holds back, for checks without the lock.
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
    /// Waits until no other thread freezes, thaws, reopens or closes the volume.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Announces that holding back is about to begin; lasts until [`end`](Self::end).
    pub(crate) fn prepare(&self) {
        self.may_hold.store(true, Ordering::Release);
    }

    /// Whether it holds back, or is about to.
    pub(crate) fn may_hold(&self) -> bool {
        self.may_hold.load(Ordering::Acquire)
    }

    /// Begins to hold back; false if it has begun already.
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

    /// Ends holding back; returns the waiting work.
    pub(crate) fn end(&self) -> Option<Waiting<F>> {
        let mut since = self.since.lock();
        self.holds.store(false, Ordering::Release);
        self.may_hold.store(false, Ordering::Release);
        since.take().map(|since| since.waiting)
    }

    /// Whether it holds back.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    /// The state, if it holds back.
    pub(crate) fn since(&self) -> Option<Frozen> {
        self.since.lock().as_ref().map(|since| Frozen {
            since: since.at,
            waiting: since.waiting.requests.len(),
        })
    }

    /// Keeps a request, or returns it to be served now.
    pub(crate) fn request(&self, request: Request<F>) -> Option<Request<F>> {
        match self.since.lock().as_mut() {
            Some(since) => {
                since.waiting.requests.push(request);
                None
            }
            None => Some(request),
        }
    }

    /// Keeps a FORGET of `ino` for later; false if it is to be served now.
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

    /// Keeps the RELEASE of `fh` for later; false if it is to be served now.
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
