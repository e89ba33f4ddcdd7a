//! A group-commit queue: one leader at a time serves it. Requests that arrive meanwhile wait for
//! the next leader.
//!
//! A caller that waits in the queue is a follower: it gets its answer from the leader, or leads
//! next.
//!
//! Invariants:
//! * **queue.Q1** While requests wait and no thread leads, a follower or the journal's thread is
//!   awake, or wakes up in time: the thread that queues a request sees to that, and so does a
//!   leader that ends.
//! * **queue.Q2** A follower waits as long as its request is in the queue or taken by a leader, and
//!   then has its answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stetfs_sync::plain::{Condvar, Instant, Mutex};

use super::gather::Gather;
use crate::canary::Canary;
use crate::engine::config::{Done, Wait};
use crate::error::Result;
use crate::ids::{CommitPoint, Ino};

/// The most followers in a queue; further requests are answered by a callback. Waking a follower
/// costs a change of threads, and only one can lead next.
const CALLERS: usize = 2;
/// The shortest sleep of the journal's thread while another thread leads. Then it checks whether a
/// commit is due.
const LOOK: Duration = Duration::from_millis(50);

/// A request for durability.
pub(in crate::engine) struct Waiter {
    pub(in crate::engine) upto: CommitPoint,
    pub(in crate::engine) data: Vec<Ino>,
    answer: Answer,
}

enum Answer {
    Call(Done),
    Caller(Arc<Caller>),
}

/// A follower: a thread that waits in the queue.
#[derive(Default)]
pub(in crate::engine) struct Caller {
    answer: OnceLock<Result<()>>,
    /// Signalled when it has its answer, or may lead. Used with the lock of the queue's state.
    signal: Condvar,
}

/// The requests of a queue.
#[derive(Default)]
pub(in crate::engine) struct Requests {
    pub(in crate::engine) waiters: Vec<Waiter>,
    /// A commit of the running transactions is requested, for which no caller waits.
    pub(in crate::engine) commit: bool,
}

#[derive(Default)]
struct State {
    requests: Requests,
    /// Whether a thread leads.
    led: bool,
    /// The time until which the journal's thread sleeps at most; none while it is awake.
    looks: Option<Instant>,
    gather: Gather,
}

impl State {
    fn any(&self) -> bool {
        self.requests.commit || !self.requests.waiters.is_empty()
    }

    /// The time until which a leader waits for more requests; `None` if there is no reason to wait.
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

/// A queue of requests, served by one of the journal's threads, or by a caller that leads in its
/// place.
pub(in crate::engine) struct Queue {
    state: Mutex<State>,
    /// Signals the journal's thread.
    signal: Condvar,
    /// Signalled when a leader ends.
    ended: Condvar,
    canary: Canary,
}

/// The right to serve a queue: its holder is the leader. Dropping it ends the leadership.
pub(in crate::engine) struct Leader<'a>(&'a Queue);

/// The role of a thread that made a request.
pub(in crate::engine) enum Role<'a> {
    /// The thread leads.
    Leader(Leader<'a>),
    /// The thread is a follower: it waits in the queue ([`Queue::wait`]), and calls `Done` itself.
    Wait(Arc<Caller>, Done),
    /// The thread goes on: a leader serves the request, and calls `Done`.
    Go,
}

impl Queue {
    /// A queue without requests.
    pub(super) fn new(canary: Canary) -> Queue {
        Queue {
            state: Mutex::default(),
            signal: Condvar::default(),
            ended: Condvar::default(),
            canary,
        }
    }

    /// Puts a request into the queue. With [`Wait::Inline`] the calling thread may lead or follow.
    pub(in crate::engine) fn ask(
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
            (Answer::Call(done), Role::Leader(Leader(self)))
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

    /// Requests a commit of the running transactions, for which no caller waits.
    pub(in crate::engine) fn want_commit(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.requests.commit, true) && !state.led {
            self.signal.notify_one();
        }
    }

    /// Wakes a thread that will lead in time (queue.Q1). No thread leads now.
    fn call(&self, state: &State, now: Instant) {
        let wait = state.wait_until(now);
        if let Some(caller) = state.callers().next() {
            // A follower that is to lead later knows the time: it sleeps until then.
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

    /// Waits for the answer, or to lead. A follower that leads serves all requests, its own
    /// among them.
    pub(in crate::engine) fn wait(&self, caller: &Caller) -> Option<Leader<'_>> {
        let mut state = self.state.lock();
        while caller.answer.get().is_none() {
            // Another thread leads, or has taken the requests and will answer.
            if state.led || !state.any() {
                caller.signal.wait(&mut state);
                continue;
            }
            match state.wait_until(Instant::now()) {
                Some(until) => drop(caller.signal.wait_until(&mut state, until)),
                None => {
                    state.led = true;
                    return Some(Leader(self));
                }
            }
        }
        None
    }

    /// Waits for requests, for `idle` at most, and leads; `None` if `quit` says so.
    pub(in crate::engine) fn next(
        &self,
        idle: Duration,
        quit: impl Fn() -> bool,
    ) -> Option<Leader<'_>> {
        let end = Instant::now() + idle;
        let mut state = self.state.lock();
        while !quit() {
            let now = Instant::now();
            let until = if state.led {
                end.max(now + LOOK)
            } else if now >= end {
                state.led = true;
                return Some(Leader(self));
            } else {
                let wait = state.wait_until(now);
                let is_mine =
                    state.requests.commit || (state.any() && state.callers().next().is_none());
                if is_mine && wait.is_none() {
                    state.led = true;
                    return Some(Leader(self));
                }
                wait.map_or(end, |until| until.min(end))
            };
            state.looks = Some(until);
            self.signal.wait_until(&mut state, until);
            state.looks = None;
        }
        None
    }

    /// Waits for requests, for `timeout` at most, unless `quit` says to end.
    pub(in crate::engine) fn rest(&self, timeout: Duration, quit: impl Fn() -> bool) {
        let mut state = self.state.lock();
        if !state.any() && !quit() {
            self.signal.wait_for(&mut state, timeout);
        }
    }

    /// Waits for the leader to end, and leads: no other thread serves the queue while it is
    /// held.
    pub(in crate::engine) fn close(&self) -> Leader<'_> {
        let mut state = self.state.lock();
        while state.led {
            self.ended.wait(&mut state);
        }
        state.led = true;
        Leader(self)
    }

    /// Wakes all waiting threads, which then check their condition again.
    pub(in crate::engine) fn wake(&self) {
        let state = self.state.lock();
        state.callers().for_each(|caller| {
            caller.signal.notify_one();
        });
        self.signal.notify_all();
    }

    pub(in crate::engine) fn take(&self) -> Requests {
        std::mem::take(&mut self.state.lock().requests)
    }

    /// Answers the followers. Returns the callbacks of the other requests.
    pub(in crate::engine) fn tell(&self, waiters: Vec<Waiter>, result: &Result<()>) -> Vec<Done> {
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
            // A follower that is about to sleep holds the lock: after it is released the signal
            // reaches it.
            if !self.canary.signal_unlocked {
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
    /// The answer, once [`Queue::wait`] has returned no leader.
    pub(in crate::engine) fn answer(&self) -> Option<Result<()>> {
        self.answer.get().cloned()
    }
}

impl Leader<'_> {
    /// Ends the leadership, after `count` answers by work that took `took`.
    pub(in crate::engine) fn ends(self, count: usize, took: Duration) {
        let mut state = self.0.state.lock();
        state.gather.answered(count, took, Instant::now());
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.led = false;
        self.0.ended.notify_all();
        if !state.any() || self.0.canary.no_next_leader {
            return;
        }
        match state.callers().next() {
            // That follower leads, or sleeps until it is time.
            Some(caller) => drop(caller.signal.notify_one()),
            None => self.0.call(&state, Instant::now()),
        }
    }
}
