//! The commit thread and the sync thread: who asked for durability is answered from here. A thread that may wait leads in
//! their place where nobody else does: that saves two changes of threads.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stetfs_block::WriteList;

use super::queue::{Lead, Queue, Requests, Role, Waiter};
use super::{Done, Inner};
use crate::error::{JournalError, Result};
use crate::ids::{CommitPoint, Ino, Lane};
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
    /// `here`: this thread may wait.
    pub(crate) fn sync(&self, upto: CommitPoint, data: Vec<Ino>, here: bool, done: Done) {
        bump(&self.counters.syncs, 1);
        if let Err(e) = self.check() {
            return done(Err(e));
        }
        let queue = self.queue_for(&upto);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        match queue.ask(upto, data, here, done) {
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

    /// A sync waits in the lane of a transaction that it needs, and leads there.
    fn queue_for(&self, upto: &CommitPoint) -> &Queue {
        let mut missing = upto.iter().filter(|tx| self.valid_seq(tx.lane) < tx.seq);
        let queue = missing.find_map(|tx| self.commits.get(usize::from(tx.lane.0)));
        queue.unwrap_or(&self.plain)
    }

    /// Asks for a commit of a lane, with nobody waiting for it.
    pub(crate) fn want_commit(&self, lane: Lane) {
        if let Some(queue) = self.commits.get(usize::from(lane.0)) {
            queue.want_commit();
        }
    }

    fn answer(&self, queue: &Queue, waiters: Vec<Waiter>, result: &Result<()>) {
        let count = waiters.len() as u64;
        self.waiting.fetch_sub(count, Ordering::AcqRel);
        for done in queue.tell(waiters, result) {
            done(result.clone());
        }
    }

    /// Answers after a stop. The error is the one that stopped the journal, so that each caller it concerns learns the cause.
    fn refuse(&self, queue: &Queue) {
        self.answer(queue, queue.take().waiters, &Err(self.cause()));
    }

    fn cause(&self) -> JournalError {
        let stopped_by = self.why.lock().clone();
        stopped_by.unwrap_or_else(|| self.stop_error())
    }

    /// Answers everybody after a stop, until the journal ends.
    fn drain(&self, queue: &Queue) {
        loop {
            let quit = self.quit.load(Ordering::Acquire);
            if !quit {
                queue.rest(Duration::from_millis(50));
            }
            self.refuse(queue);
            if quit {
                return;
            }
        }
    }

    /// The thread of the queue without a lane: for requests that need no commit. They do not wait behind a commit that has nothing to do with them.
    pub(crate) fn plain_loop(&self) {
        self.serve_all(&self.plain, || Duration::from_secs(1));
    }

    /// A lane's commit thread: group commits on request, by size and by time.
    pub(crate) fn commit_loop(&self, lane: Lane) {
        if let Some(queue) = self.commits.get(usize::from(lane.0)) {
            self.serve_all(queue, || self.next_periodic(lane));
        }
    }

    /// Serves a queue until the journal ends, on request or after `idle` without one.
    fn serve_all(&self, queue: &Queue, idle: impl Fn() -> Duration) {
        while let Some(lead) = queue.next(idle(), || self.has_stopped()) {
            self.serve(queue, lead);
        }
        self.drain(queue);
    }

    /// Does and answers all that waits in a queue.
    fn serve(&self, queue: &Queue, mut lead: Lead<'_>) {
        // What comes until the log takes more is to be in it.
        let ready = queue
            .lane
            .map_or(Ok(()), |lane| self.await_room_behind(lane));
        if ready.is_err() || self.has_stopped() {
            drop(lead);
            return self.refuse(queue);
        }
        let requests = queue.take();
        let begun = Instant::now();
        let result = match queue.lane {
            Some(lane) => self.commit_for(lane, &requests, &mut lead),
            None => self.flush_for(&requests),
        };
        let result = result.map_err(|e| {
            self.stop(Some(e));
            self.cause()
        });
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

    /// One commit; whether there was one to do here.
    fn commit_for(&self, lane: Lane, requests: &Requests, lead: &mut Lead<'_>) -> Result<bool> {
        let (mut point, inos) = union(&requests.waiters);
        if requests.commit || self.next_periodic(lane).is_zero() {
            point.add(self.slot(lane).run.lock().tx.id);
        }
        let waiters = requests.waiters.len();
        let committed = self.commit_group(&point, &inos, || lead.hands_over(waiters))?;
        if !committed && waiters > 0 {
            // Durable already, or another's to commit, or nothing: what was written home still needs a flush.
            self.flush_data(&inos)?;
        }
        self.await_valid(&point)?;
        Ok(committed)
    }

    fn flush_data(&self, inos: &[Ino]) -> Result<()> {
        let begun = Instant::now();
        self.write_data(inos, &WriteList::new())?;
        self.flush_shared()?;
        self.note_sync_time(begun.elapsed());
        Ok(())
    }

    /// Time until the running transaction of a lane commits by itself, if it has changes.
    fn next_periodic(&self, lane: Lane) -> Duration {
        let period = Duration::from_millis(self.commit_millis.load(Ordering::Relaxed));
        let run = self.slot(lane).run.lock();
        if run.tx.is_untouched() {
            return period;
        }
        let touched = run.tx.state.lock().touched;
        period.saturating_sub(touched.map_or(Duration::ZERO, |first| first.elapsed()))
    }
}
