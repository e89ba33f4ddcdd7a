//! The commit thread and the sync thread: who asked for durability is answered from here.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stetfs_block::WriteList;

use super::{Done, Inner};
use crate::error::Result;
use crate::ids::{CommitPoint, Ino};
use crate::stats::bump;

/// Somebody who waits for durability.
struct Waiter {
    upto: CommitPoint,
    data: Vec<Ino>,
    done: Done,
}

/// Requests for one of the threads.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    signal: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiters: Vec<Waiter>,
    commit: bool,
}

impl Queue {
    fn push(&self, waiter: Waiter) {
        self.state.lock().waiters.push(waiter);
        self.signal.notify_one();
    }

    /// Asks for a commit of the running transactions, with nobody waiting for it.
    pub(crate) fn want_commit(&self) {
        let mut state = self.state.lock();
        if !state.commit {
            state.commit = true;
            self.signal.notify_one();
        }
    }

    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.signal.notify_all();
    }

    /// Waits for requests, at most `timeout`.
    fn take(&self, timeout: Duration, quit: impl Fn() -> bool) -> QueueState {
        let mut state = self.state.lock();
        if state.waiters.is_empty() && !state.commit && !quit() {
            self.signal.wait_for(&mut state, timeout);
        }
        std::mem::take(&mut *state)
    }
}

fn union(waiters: &[Waiter]) -> (CommitPoint, Vec<Ino>) {
    let mut point = CommitPoint::none();
    let mut inos = Vec::new();
    for waiter in waiters {
        point.merge(&waiter.upto);
        inos.extend_from_slice(&waiter.data);
    }
    inos.sort_unstable();
    inos.dedup();
    (point, inos)
}

impl Inner {
    pub(crate) fn sync(&self, upto: CommitPoint, data: Vec<Ino>, done: Done) {
        bump(&self.counters.syncs, 1);
        if let Err(e) = self.check() {
            return done(Err(e));
        }
        let queue = if self.is_valid(&upto) {
            &self.plain
        } else {
            &self.commits
        };
        self.waiting.fetch_add(1, Ordering::AcqRel);
        queue.push(Waiter { upto, data, done });
        if self.stopped.load(Ordering::Acquire) {
            queue.wake();
        }
    }

    fn answer(&self, waiters: Vec<Waiter>, result: &Result<()>) {
        for waiter in waiters {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            (waiter.done)(result.clone());
        }
    }

    /// Answers everybody after a stop, until the journal ends. The error is the one that stopped
    /// it, so that each caller it concerns learns the cause.
    fn drain(&self, queue: &Queue) {
        loop {
            let quit = self.quit.load(Ordering::Acquire);
            let state = queue.take(Duration::from_millis(50), || quit);
            let stopped_by = self.why.lock().clone();
            let why = stopped_by.unwrap_or_else(|| self.stop_error());
            self.answer(state.waiters, &Err(why));
            if quit {
                return;
            }
        }
    }

    /// The sync thread: data home and one flush, for requests that need no commit. They do not
    /// wait behind a commit that has nothing to do with them.
    pub(crate) fn plain_loop(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            let QueueState { waiters, .. } = self.plain.take(Duration::from_secs(1), || {
                self.stopped.load(Ordering::Acquire)
            });
            if waiters.is_empty() {
                continue;
            }
            let (_, inos) = union(&waiters);
            let result = self
                .write_data(&inos, &WriteList::new())
                .and_then(|()| self.flush());
            if let Err(e) = &result {
                self.stop(Some(e.clone()));
            }
            bump(&self.counters.plain_syncs, waiters.len() as u64);
            self.answer(waiters, &result);
        }
        self.drain(&self.plain);
    }

    /// The commit thread: group commits on request, by size and by time.
    pub(crate) fn commit_loop(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            let QueueState { waiters, commit } = self.commits.take(self.next_periodic(), || {
                self.stopped.load(Ordering::Acquire)
            });
            let (mut point, inos) = union(&waiters);
            if commit || self.next_periodic().is_zero() {
                for slot in &self.slots {
                    point.add(slot.run.lock().tx.id);
                }
            }
            let result = self.serve(&point, &inos, !waiters.is_empty());
            if let Err(e) = &result {
                self.stop(Some(e.clone()));
            }
            self.answer(waiters, &result);
        }
        self.drain(&self.commits);
    }

    fn serve(&self, point: &CommitPoint, inos: &[Ino], somebody_waits: bool) -> Result<()> {
        let committed = !self.is_valid(point) && self.commit_group(point, inos)?;
        if !committed && somebody_waits {
            // Durable already, or nothing to commit: what was written home still needs a flush.
            self.write_data(inos, &WriteList::new())?;
            self.flush()?;
        }
        Ok(())
    }

    /// Time until the oldest running transaction with changes commits by itself.
    fn next_periodic(&self) -> Duration {
        let period = Duration::from_millis(self.commit_millis.load(Ordering::Relaxed));
        let now = Instant::now();
        self.slots
            .iter()
            .map(|slot| {
                let run = slot.run.lock();
                if run.tx.is_untouched() {
                    return period;
                }
                let first = run.tx.state.lock().touched.unwrap_or(now);
                period.saturating_sub(now.duration_since(first))
            })
            .min()
            .unwrap_or(period)
    }
}
