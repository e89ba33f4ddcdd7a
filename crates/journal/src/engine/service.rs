//! The service of requests for durability, by the commit thread and the sync thread.
//!
//! A calling thread that may wait becomes the commit leader in their place when no thread leads:
//! that saves two changes of threads.

use std::time::Duration;

use stetfs_block::WriteList;
use stetfs_sync::plain::Instant;

use super::Engine;
use super::config::{Done, Wait};
use super::syncs::{Leader, Queue, Requests, Role, Waiter};
use crate::error::Result;
use crate::ids::{CommitPoint, Ino, Lane};
use crate::stats::bump;

/// The point and the inodes that cover all these requests.
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

/// The kinds of service, each with its queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    /// Commits, on request, by size and by time: the queue of this number.
    Commits(usize),
    /// Writes of data and a flush, for requests that need no commit.
    Plain,
}

impl Engine {
    fn queue(&self, service: Service) -> &Queue {
        match service {
            Service::Commits(queue) => self.syncs.commits(queue),
            Service::Plain => &self.syncs.plain,
        }
    }

    /// As [`Journal::sync`](crate::Journal::sync).
    pub(crate) fn sync(&self, upto: CommitPoint, data: Vec<Ino>, wait: Wait, done: Done) {
        let base = &self.base;
        bump(&base.counters.syncs, 1);
        if let Err(e) = base.check() {
            return done(Err(e));
        }
        // A commit takes all that the request names, whichever of its queues it is in.
        let first = self.validity.unsettled(&upto);
        let service = first.map_or(Service::Plain, |tx| {
            Service::Commits(self.syncs.queue_of(tx.lane))
        });
        let queue = self.queue(service);
        self.syncs.begins_to_wait();
        match queue.ask(upto, data, wait, done) {
            Role::Leader(leader) => self.serve(service, leader),
            Role::Wait(caller, done) => {
                while let Some(leader) = queue.wait(&caller) {
                    self.serve(service, leader);
                }
                done(caller.answer().unwrap_or_else(|| Err(base.stop_error())));
            }
            // The journal's thread may have ended.
            Role::Go if base.has_stopped() => self.refuse(queue),
            Role::Go => {}
        }
    }

    fn answer(&self, queue: &Queue, waiters: Vec<Waiter>, result: &Result<()>) {
        self.syncs.end_waiting(waiters.len() as u64);
        for done in queue.tell(waiters, result) {
            done(result.clone());
        }
    }

    /// Answers all requests after a stop, with the error that stopped the journal, so that each
    /// caller learns the cause.
    fn refuse(&self, queue: &Queue) {
        let stopped_by = self.base.stopped_by();
        let why = stopped_by.unwrap_or_else(|| self.base.stop_error());
        self.answer(queue, queue.take().waiters, &Err(why));
    }

    /// Answers all requests after a stop, until the journal ends.
    fn drain(&self, queue: &Queue) {
        loop {
            let quit = || self.base.quits();
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

    /// The sync thread.
    pub(super) fn plain_loop(&self) {
        self.serve_all(Service::Plain, || Duration::from_secs(1));
    }

    /// The commit thread of a queue.
    pub(super) fn commit_loop(&self, queue: usize) {
        self.serve_all(Service::Commits(queue), || self.next_periodic(queue));
    }

    /// Asks for a commit of a lane's running transaction, for which no caller waits.
    pub(super) fn want_commit(&self, lane: Lane) {
        self.syncs.commits(self.syncs.queue_of(lane)).want_commit();
    }

    /// Makes earlier writes durable for a thread that syncs files by records.
    ///
    /// # Errors
    /// The device's; the journal has then stopped.
    pub(crate) fn flush_for_records(&self) -> Result<()> {
        let flushed = self.clock.flush()?;
        bump(&self.base.counters.file_flushes, u64::from(flushed));
        Ok(())
    }

    /// Serves a queue until the journal ends, on request or after `idle` without one.
    fn serve_all(&self, service: Service, idle: impl Fn() -> Duration) {
        let queue = self.queue(service);
        while let Some(leader) = queue.next(idle(), || self.base.has_stopped()) {
            self.serve(service, leader);
        }
        self.drain(queue);
    }

    /// Takes all requests of a queue, does the work, and answers them.
    fn serve(&self, service: Service, leader: Leader<'_>) {
        let (base, queue) = (&self.base, self.queue(service));
        if base.has_stopped() {
            drop(leader);
            return self.refuse(queue);
        }
        let requests = queue.take();
        let begun = Instant::now();
        let done = match service {
            Service::Commits(queue) => self.commit_for(queue, &requests),
            Service::Plain => self.flush_for(&requests),
        };
        // No caller is told of success after a stop: the error that stopped the journal may concern
        // what was done here.
        let result = done.and_then(|done| base.check().map(|()| done));
        if let Err(e) = &result {
            base.stop(Some(e.clone()));
        }
        // The leadership ends before the answers are given, because an answer may end the journal.
        if matches!(result, Ok(true)) {
            leader.ends(requests.waiters.len(), begun.elapsed());
        } else {
            drop(leader);
        }
        let result = result.map(drop);
        self.answer(queue, requests.waiters, &result);
    }

    /// Writes data home and flushes once. Returns whether there was a request.
    fn flush_for(&self, requests: &Requests) -> Result<bool> {
        if requests.waiters.is_empty() {
            return Ok(false);
        }
        let (_, inos) = union(&requests.waiters);
        bump(
            &self.base.counters.plain_syncs,
            requests.waiters.len() as u64,
        );
        self.flush_data(&inos)?;
        Ok(true)
    }

    /// Commits once. Returns whether there was anything to commit.
    fn commit_for(&self, queue: usize, requests: &Requests) -> Result<bool> {
        let (mut point, inos) = union(&requests.waiters);
        if requests.commit || self.next_periodic(queue).is_zero() {
            let is_mine = |lane| self.syncs.serves(queue, lane);
            point.merge(&self.lanes.everything_of(is_mine));
        }
        let committed = !self.validity.has_settled(&point) && self.commit_group(&point, &inos)?;
        if !committed && !requests.waiters.is_empty() {
            // All is durable already, or there is nothing to commit: data that was written home
            // still needs a flush.
            self.flush_data(&inos)?;
        }
        Ok(committed)
    }

    fn flush_data(&self, inos: &[Ino]) -> Result<()> {
        self.base.write_data(inos, &WriteList::new())?;
        self.clock.flush().map(drop)
    }

    /// The time until the oldest running transaction with changes, of the lanes of a queue, is due
    /// for its periodic commit.
    fn next_periodic(&self, queue: usize) -> Duration {
        let period = self.syncs.period();
        let now = Instant::now();
        let recorded = self.records.recorded_since();
        let is_mine = |lane| self.syncs.serves(queue, lane);
        let first = self.lanes.touched(is_mine).chain(recorded).min();
        first.map_or(period, |first| {
            period.saturating_sub(now.duration_since(first))
        })
    }
}
