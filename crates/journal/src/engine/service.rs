//! The commit thread and the sync thread: who asked for durability is answered from here. A thread
//! that may wait leads in their place where nobody else does: that saves two changes of threads.

use std::time::Duration;

use stetfs_block::WriteList;
use stetfs_sync::plain::{Instant, atomic::Ordering};

use super::queue::{Lead, Queue, Requests, Role, Waiter};
use super::{Done, Inner, Wait};
use crate::error::Result;
use crate::ids::{CommitPoint, Ino};
use crate::stats::bump;

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
    /// As [`Journal::sync`](super::Journal::sync).
    pub(crate) fn sync(&self, upto: CommitPoint, data: Vec<Ino>, wait: Wait, done: Done) {
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
        match queue.ask(upto, data, wait, done) {
            Role::Lead(lead) => self.serve(queue, lead),
            Role::Wait(caller, done) => {
                while let Some(lead) = queue.wait(&caller) {
                    self.serve(queue, lead);
                }
                done(caller.answer().unwrap_or_else(|| Err(self.stop_error())));
            }
            // The journal's thread may have ended.
            Role::Go if self.has_stopped() => self.refuse(queue),
            Role::Go => {}
        }
    }

    fn answer(&self, queue: &Queue, waiters: Vec<Waiter>, result: &Result<()>) {
        let count = waiters.len() as u64;
        self.waiting.fetch_sub(count, Ordering::AcqRel);
        for done in queue.tell(waiters, result) {
            done(result.clone());
        }
    }

    /// Answers after a stop. The error is the one that stopped the journal, so that each caller it
    /// concerns learns the cause.
    fn refuse(&self, queue: &Queue) {
        let stopped_by = self.why.lock().clone();
        let why = stopped_by.unwrap_or_else(|| self.stop_error());
        self.answer(queue, queue.take().waiters, &Err(why));
    }

    /// Answers everybody after a stop, until the journal ends.
    fn drain(&self, queue: &Queue) {
        loop {
            let quit = || self.quit.load(Ordering::Acquire);
            let is_last = quit();
            if !is_last {
                queue.rest(Duration::from_millis(50), quit);
            }
            self.refuse(queue);
            if is_last {
                return;
            }
        }
    }

    /// The sync thread: for requests that need no commit. They do not wait behind a commit that has
    /// nothing to do with them.
    pub(crate) fn plain_loop(&self) {
        self.serve_all(&self.plain, || Duration::from_secs(1));
    }

    /// The commit thread: group commits on request, by size and by time.
    pub(crate) fn commit_loop(&self) {
        self.serve_all(&self.commits, || self.next_periodic());
    }

    /// Serves a queue until the journal ends, on request or after `idle` without one.
    fn serve_all(&self, queue: &Queue, idle: impl Fn() -> Duration) {
        while let Some(lead) = queue.next(idle(), || self.has_stopped()) {
            self.serve(queue, lead);
        }
        self.drain(queue);
    }

    /// Does and answers all that waits in a queue.
    fn serve(&self, queue: &Queue, lead: Lead<'_>) {
        if self.has_stopped() {
            drop(lead);
            return self.refuse(queue);
        }
        let requests = queue.take();
        let begun = Instant::now();
        // Nobody is told of success after a stop: what stopped the journal may concern what was
        // done here.
        let result = (queue.work)(self, &requests).and_then(|done| self.check().map(|()| done));
        if let Err(e) = &result {
            self.stop(Some(e.clone()));
        }
        // An answer may end the journal.
        if matches!(result, Ok(true)) {
            lead.ends(requests.waiters.len(), begun.elapsed());
        } else {
            drop(lead);
        }
        let result = result.map(drop);
        self.answer(queue, requests.waiters, &result);
    }

    /// Data home and one flush.
    pub(crate) fn flush_for(&self, requests: &Requests) -> Result<bool> {
        if requests.waiters.is_empty() {
            return Ok(false);
        }
        let (_, inos) = union(&requests.waiters);
        bump(&self.counters.plain_syncs, requests.waiters.len() as u64);
        self.flush_data(&inos)?;
        Ok(true)
    }

    /// One commit; whether there was one to do.
    pub(crate) fn commit_for(&self, requests: &Requests) -> Result<bool> {
        let (mut point, inos) = union(&requests.waiters);
        if requests.commit || self.next_periodic().is_zero() {
            for lane in &self.lanes {
                point.add(lane.run.lock().tx.id);
            }
        }
        let committed = !self.is_valid(&point) && self.commit_group(&point, &inos)?;
        if !committed && !requests.waiters.is_empty() {
            // Durable already, or nothing to commit: what was written home still needs a flush.
            self.flush_data(&inos)?;
        }
        Ok(committed)
    }

    fn flush_data(&self, inos: &[Ino]) -> Result<()> {
        self.write_data(inos, &WriteList::new())?;
        self.flush()
    }

    /// Time until the oldest running transaction with changes commits by itself.
    fn next_periodic(&self) -> Duration {
        let period = Duration::from_millis(self.commit_millis.load(Ordering::Relaxed));
        let now = Instant::now();
        let touched = self.lanes.iter().filter_map(|lane| {
            let run = lane.run.lock();
            let touched = run.tx.state.lock().touched;
            touched.filter(|_| !run.tx.is_untouched())
        });
        let first = touched.chain(self.recorded.since()).min();
        first.map_or(period, |first| {
            period.saturating_sub(now.duration_since(first))
        })
    }
}
