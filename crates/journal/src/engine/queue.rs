//! Those that wait for durability, and who serves them: one thread at a time leads. What comes
//! meanwhile is for the next lead.
//!
//! Invariants:
//! * **queue.Q1** While requests wait and nobody leads, a caller or the journal's thread is awake,
//!   or wakes up in time: who puts one into the queue sees to that, and so does a lead that ends.
//! * **queue.Q2** A caller waits as long as its request is in the queue or in what a lead took out
//!   of it, and has its answer then.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stetfs_sync::plain::{Condvar, Instant, Mutex, mended};

use super::gather::Gather;
use super::{Done, Inner, Wait};
use crate::error::Result;
use crate::ids::{CommitPoint, Ino};

/// Callers that wait in a queue, at most; more are called back. To wake one costs a change of
/// threads, and one can lead next.
const CALLERS: usize = 2;
/// While another leads, the journal's thread looks after this whether a commit is due.
const LOOK: Duration = Duration::from_millis(50);

/// What makes requests durable; whether it took what such work takes.
pub(crate) type Work = fn(&Inner, &Requests) -> Result<bool>;

/// Somebody who waits for durability.
pub(super) struct Waiter {
    pub(super) upto: CommitPoint,
    pub(super) data: Vec<Ino>,
    answer: Answer,
}

enum Answer {
    Call(Done),
    Caller(Arc<Caller>),
}

/// A thread that waits in the queue.
#[derive(Default)]
pub(super) struct Caller {
    answer: OnceLock<Result<()>>,
    /// It has its answer, or may lead. Goes with the queue's state.
    signal: Condvar,
}

/// What is asked for.
#[derive(Default)]
pub(crate) struct Requests {
    pub(super) waiters: Vec<Waiter>,
    /// A commit of the running transactions, with nobody waiting for it.
    pub(super) commit: bool,
}

#[derive(Default)]
struct State {
    requests: Requests,
    /// A thread leads.
    led: bool,
    /// The journal's thread sleeps until then at most.
    looks: Option<Instant>,
    gather: Gather,
}

impl State {
    fn any(&self) -> bool {
        self.requests.commit || !self.requests.waiters.is_empty()
    }

    /// Until when a lead is to wait for others; `None`: it is time.
    fn wait_until(&self, now: Instant) -> Option<Instant> {
        self.gather
            .wait_until(now)
            .filter(|_| !self.requests.commit)
    }

    fn callers(&self) -> impl Iterator<Item = &Arc<Caller>> {
        let waiters = self.requests.waiters.iter();
        waiters.filter_map(|waiter| match &waiter.answer {
            Answer::Caller(caller) => Some(caller),
            Answer::Call(_) => None,
        })
    }
}

/// Requests for one of the journal's threads, or for a caller that leads in its place.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// For the journal's thread.
    signal: Condvar,
    /// Nobody leads any more.
    ended: Condvar,
    pub(super) work: Work,
}

/// The right to serve a queue.
pub(crate) struct Lead<'a>(&'a Queue);

/// What a thread does that asked.
pub(super) enum Role<'a> {
    /// It leads.
    Lead(Lead<'a>),
    /// It waits in the queue ([`Queue::wait`]), and answers itself.
    Wait(Arc<Caller>, Done),
    /// Somebody sees to it, and calls.
    Go,
}

impl Queue {
    /// One without requests.
    pub(crate) fn new(work: Work) -> Queue {
        Queue {
            state: Mutex::default(),
            signal: Condvar::new(),
            ended: Condvar::new(),
            work,
        }
    }

    /// Puts a request into the queue. With [`Wait::Inline`] the thread may wait.
    pub(super) fn ask(
        &self,
        upto: CommitPoint,
        data: Vec<Ino>,
        wait: Wait,
        done: Done,
    ) -> Role<'_> {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.gather.comes(now);
        let may_wait = wait == Wait::Inline;
        let leads = may_wait && !state.led && state.wait_until(now).is_none();
        let (answer, role) = if leads {
            state.led = true;
            (Answer::Call(done), Role::Lead(Lead(self)))
        } else if may_wait && state.callers().count() < CALLERS {
            let caller = Arc::<Caller>::default();
            (Answer::Caller(caller.clone()), Role::Wait(caller, done))
        } else {
            (Answer::Call(done), Role::Go)
        };
        state.requests.waiters.push(Waiter { upto, data, answer });
        if matches!(role, Role::Go) && !state.led {
            self.call(&state, now);
        }
        role
    }

    /// Asks for a commit of the running transactions, with nobody waiting for it.
    pub(crate) fn want_commit(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.requests.commit, true) && !state.led {
            self.signal.notify_one();
        }
    }

    /// Has somebody lead, in time (queue.Q1). Nobody does now.
    fn call(&self, state: &State, now: Instant) {
        let wait = state.wait_until(now);
        if let Some(caller) = state.callers().next() {
            // One that waits knows until when.
            if wait.is_none() {
                caller.signal.notify_one();
            }
            return;
        }
        let in_time = state.looks.zip(wait).is_some_and(|(at, until)| at <= until);
        if !in_time {
            self.signal.notify_one();
        }
    }

    /// Waits for the answer, or to lead: then others wait for this thread, and its answer comes of
    /// that.
    pub(super) fn wait(&self, caller: &Caller) -> Option<Lead<'_>> {
        let mut state = self.state.lock();
        while caller.answer.get().is_none() {
            // What others lead, or took and are to answer.
            if state.led || !state.any() {
                caller.signal.wait(&mut state);
                continue;
            }
            match state.wait_until(Instant::now()) {
                Some(until) => drop(caller.signal.wait_until(&mut state, until)),
                None => {
                    state.led = true;
                    return Some(Lead(self));
                }
            }
        }
        None
    }

    /// Waits for something to lead, at most `idle`; `None` if it is to quit.
    pub(super) fn next(&self, idle: Duration, quit: impl Fn() -> bool) -> Option<Lead<'_>> {
        let end = Instant::now() + idle;
        let mut state = self.state.lock();
        while !quit() {
            let now = Instant::now();
            let until = if state.led {
                end.max(now + LOOK)
            } else if now >= end {
                state.led = true;
                return Some(Lead(self));
            } else {
                let wait = state.wait_until(now);
                let is_mine =
                    state.requests.commit || (state.any() && state.callers().next().is_none());
                if is_mine && wait.is_none() {
                    state.led = true;
                    return Some(Lead(self));
                }
                wait.map_or(end, |until| until.min(end))
            };
            state.looks = Some(until);
            self.signal.wait_until(&mut state, until);
            state.looks = None;
        }
        None
    }

    /// Waits for requests, at most `timeout`, unless it is to quit.
    pub(super) fn rest(&self, timeout: Duration, quit: impl Fn() -> bool) {
        let mut state = self.state.lock();
        if !state.any() && !quit() {
            self.signal.wait_for(&mut state, timeout);
        }
    }

    /// Nobody else serves the queue from here on.
    pub(crate) fn close(&self) -> Lead<'_> {
        let mut state = self.state.lock();
        while state.led {
            self.ended.wait(&mut state);
        }
        state.led = true;
        Lead(self)
    }

    /// Everybody looks again.
    pub(crate) fn wake(&self) {
        let state = self.state.lock();
        state.callers().for_each(|caller| {
            caller.signal.notify_one();
        });
        self.signal.notify_all();
    }

    pub(super) fn take(&self) -> Requests {
        std::mem::take(&mut self.state.lock().requests)
    }

    /// Answers those that wait; the others are left to be called.
    pub(super) fn tell(&self, waiters: Vec<Waiter>, result: &Result<()>) -> Vec<Done> {
        let mut callers = Vec::new();
        let mut calls = Vec::new();
        for waiter in waiters {
            match waiter.answer {
                Answer::Call(done) => calls.push(done),
                Answer::Caller(caller) => {
                    let is_first = caller.answer.set(result.clone()).is_ok();
                    debug_assert!(is_first, "queue.Q2: one request is answered twice");
                    callers.push(caller);
                }
            }
        }
        if !callers.is_empty() {
            // One that is about to sleep does so first.
            if mended("queue.tell") {
                drop(self.state.lock());
            }
            callers.iter().for_each(|caller| {
                caller.signal.notify_one();
            });
        }
        calls
    }
}

impl Caller {
    /// The answer, once [`Queue::wait`] has it.
    pub(super) fn answer(&self) -> Option<Result<()>> {
        self.answer.get().cloned()
    }
}

impl Lead<'_> {
    /// Ends, with so many answered by what took so long.
    pub(super) fn ends(self, count: usize, took: Duration) {
        let mut state = self.0.state.lock();
        state.gather.answered(count, took, Instant::now());
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.led = false;
        self.0.ended.notify_all();
        if !state.any() || !mended("queue.hand-on") {
            return;
        }
        match state.callers().next() {
            // It leads, or sets its clock.
            Some(caller) => drop(caller.signal.notify_one()),
            None => self.0.call(&state, Instant::now()),
        }
    }
}
