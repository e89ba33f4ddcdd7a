//! A running simulation: its host threads, of which one runs at a time, and the scheduling points.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::time::{ClockId, clock_gettime};

use super::cost::{Charge, Settings};
use super::profile::WaitKind;
use super::scheduler::{Key, State, Wait};

/// Why a simulation ended without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulationError {
    /// Nothing can go on: the text says who waits where.
    Deadlock(String),
    /// It did not end in the virtual time that it had: the text says who waits where.
    Late(String),
    /// A thread waits for something outside of the simulation, or runs without a scheduling point:
    /// the text names it.
    Stuck(String),
    /// The first thread panicked, or could not be started: the text says how.
    Panicked(String),
}

impl std::fmt::Display for SimulationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SimulationError::Deadlock(who) => write!(f, "deadlock: no thread can go on:{who}"),
            SimulationError::Late(who) => write!(f, "no end in virtual time:{who}"),
            SimulationError::Stuck(who) => write!(f, "no scheduling point for long: {who}"),
            SimulationError::Panicked(how) => write!(f, "the first thread panicked: {how}"),
        }
    }
}

impl std::error::Error for SimulationError {}

/// The right to run, which one thread at a time has.
#[derive(Default)]
pub(super) struct Baton {
    here: Mutex<bool>,
    came: Condvar,
}

impl Baton {
    pub(super) fn give(&self) {
        *self.here.lock() = true;
        self.came.notify_one();
    }

    fn await_turn(&self) {
        let mut here = self.here.lock();
        while !*here {
            self.came.wait(&mut here);
        }
        *here = false;
    }
}

/// The shim's own processor time, ns: it is taken from what work cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overhead {
    /// Of a scheduling point.
    pub(super) point: u64,
    /// Of taking a lock, and of releasing it.
    pub(super) lock: u64,
    /// Of an atomic operation that is no scheduling point.
    pub(super) small: u64,
}

pub(super) struct World {
    /// Numbers simulations, from 1.
    pub(super) number: u64,
    pub(super) settings: Settings,
    pub(super) overhead: Overhead,
    pub(super) state: Mutex<State>,
    pub(super) batons: Mutex<Vec<Arc<Baton>>>,
    pub(super) end: Mutex<Option<Result<(), SimulationError>>>,
    pub(super) ended: Condvar,
}

/// The calling thread in its simulation.
pub(super) struct Me {
    pub(super) world: Arc<World>,
    pub(super) id: usize,
    pub(super) baton: Arc<Baton>,
    pub(super) core: Cell<usize>,
    /// Processor time of the host when work began to count.
    pub(super) last: Cell<u64>,
    /// Nanoseconds to be charged at the next scheduling point.
    pub(super) charged: Cell<u64>,
    /// Operations since the last scheduling point that were none.
    pub(super) cheap: Cell<u32>,
    /// Nanoseconds until another thread may have to run, as of the last scheduling point.
    pub(super) ahead: Cell<u64>,
}

thread_local! {
    static ME: RefCell<Option<Rc<Me>>> = const { RefCell::new(None) };
}

/// `Me` is used by its thread alone; an operation keeps it while it waits.
pub(super) fn me() -> Option<Rc<Me>> {
    ME.try_with(|me| me.borrow().clone()).ok().flatten()
}

/// The kinds of operations, for the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Lock,
    Atomic,
    Spawn,
    Yield,
    Other,
    /// Work that was charged by its name.
    Work,
}

/// Operations on lines that are here: each so-manieth of them is a scheduling point, for threads
/// that spin.
pub(super) const CHEAP: u32 = 64;

pub(super) fn processor_time() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

impl Me {
    /// The cost of what was done since the last point, and of `op`.
    pub(super) fn cost(&self, op: Op) -> u64 {
        let settings = &self.world.settings;
        let costs = &settings.costs;
        let charged = self.charged.take();
        let cheap = u64::from(self.cheap.take());
        if settings.charge == Charge::Measured {
            let Overhead { point, lock, small } = self.world.overhead;
            let shim = cheap * small + if op == Op::Lock { lock } else { point };
            let spent = processor_time().saturating_sub(self.last.get());
            let named = if op == Op::Yield { costs.yielding } else { 0 };
            return charged + spent.saturating_sub(shim) + named;
        }
        let named = match op {
            Op::Lock => costs.lock,
            Op::Atomic => costs.atomic,
            Op::Spawn => costs.spawn,
            Op::Yield => costs.yielding,
            Op::Other => costs.other,
            Op::Work => 0,
        };
        charged + cheap * costs.atomic + named
    }

    /// Work counts from here on.
    pub(super) fn restart(&self) {
        if self.world.settings.charge == Charge::Measured {
            self.last.set(processor_time());
        }
    }

    pub(super) fn point(&self, op: Op) {
        let mut state = self.world.state.lock();
        state.advance(self.id, self.cost(op));
        state.step(self.id);
        if op == Op::Yield {
            state.give_way(self.id);
        } else if state.is_first(self.id) {
            self.ahead.set(state.ahead(self.id));
            drop(state);
            return self.restart();
        }
        self.turn(state);
    }

    /// Lets the first task run, and returns when it is this one.
    pub(super) fn turn(&self, mut state: MutexGuard<'_, State>) {
        if !state.is_first(self.id) {
            state.end_slice(self.id);
        }
        let next = state.pick();
        if let Some(late) = next.and_then(|next| state.late(next)) {
            drop(state);
            self.world.finish(Err(SimulationError::Late(late)));
            return self.baton.await_turn();
        }
        if next == Some(self.id) {
            self.resume(state);
            return;
        }
        let stuck = next.is_none().then(|| state.stuck());
        drop(state);
        match (next, stuck) {
            (Some(next), _) => self.world.baton(next).give(),
            (None, who) => {
                let who = who.unwrap_or_default();
                self.world.finish(Err(SimulationError::Deadlock(who)));
            }
        }
        self.baton.await_turn();
        self.resume(self.world.state.lock());
    }

    /// The thread runs.
    fn resume(&self, state: MutexGuard<'_, State>) {
        self.core.set(state.core(self.id));
        self.ahead.set(state.ahead(self.id));
        drop(state);
        self.restart();
    }

    /// The assumed time of an operation that is no scheduling point, with the work around it, ns.
    pub(super) fn small(&self) -> u64 {
        const MEASURED: u64 = 20;
        match self.world.settings.charge {
            Charge::Measured => MEASURED,
            Charge::Table => self.world.settings.costs.atomic,
        }
    }

    /// Waits as `wait` says; the thread was at a scheduling point just now. Returns whether time
    /// ran out.
    pub(super) fn block(&self, wait: Wait) -> bool {
        let mut state = self.world.state.lock();
        let began = state.clock(self.id);
        state.block(self.id, wait);
        self.turn(state);
        let mut state = self.world.state.lock();
        let took = state.clock(self.id) - began;
        if !matches!(wait.key, Key::Sleep(_)) {
            state.waited(self.id, wait.kind, wait.site, took);
        }
        let timed_out = state.timed_out(self.id);
        drop(state);
        self.restart();
        timed_out
    }
}

impl World {
    pub(super) fn baton(&self, id: usize) -> Arc<Baton> {
        self.batons.lock()[id].clone()
    }

    pub(super) fn finish(&self, how: Result<(), SimulationError>) {
        let mut end = self.end.lock();
        if end.is_none() {
            *end = Some(how);
        }
        self.ended.notify_all();
    }

    /// A new task, whose thread is to call [`Task::enter`].
    pub(super) fn task(self: &Arc<World>, name: String, at: u64) -> Task {
        let mut batons = self.batons.lock();
        let id = self.state.lock().add(name, at);
        batons.push(Arc::default());
        Task {
            world: self.clone(),
            id,
        }
    }
}

/// A task of a simulation.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) world: Arc<World>,
    pub(super) id: usize,
}

impl Task {
    /// The calling thread becomes this task, and runs when its turn comes; until the result is
    /// dropped.
    pub(super) fn enter(self) -> Entered {
        let baton = self.world.baton(self.id);
        baton.await_turn();
        let me = Rc::new(Me {
            world: self.world,
            id: self.id,
            baton,
            core: Cell::new(0),
            last: Cell::new(0),
            charged: Cell::new(0),
            cheap: Cell::new(0),
            ahead: Cell::new(0),
        });
        ME.set(Some(me.clone()));
        me.resume(me.world.state.lock());
        Entered(me)
    }

    /// Whether it is over.
    pub(super) fn is_done(&self) -> bool {
        self.world.state.lock().is_done(self.id)
    }

    /// The calling simulated thread waits until the task is over.
    #[track_caller]
    pub(super) fn await_end(&self) {
        let Some(me) = me().filter(|me| Arc::ptr_eq(&me.world, &self.world)) else {
            return;
        };
        me.point(Op::Other);
        if !self.is_done() {
            me.block(waiting(Key::End(self.id), WaitKind::Signal));
        }
    }

    pub(super) fn unpark(&self) {
        if let Some(me) = me() {
            me.point(Op::Other);
            self.world.state.lock().unpark(me.id, self.id);
            me.ahead.set(0);
        }
    }
}

/// A host thread while it is a simulated one.
pub(super) struct Entered(Rc<Me>);

impl Drop for Entered {
    fn drop(&mut self) {
        let me = &self.0;
        let mut state = me.world.state.lock();
        state.advance(me.id, me.cost(Op::Other));
        state.step(me.id);
        state.end(me.id);
        ME.set(None);
        // The simulation ends with its first thread.
        if me.id == 0 {
            drop(state);
            return me.world.finish(Ok(()));
        }
        let next = state.pick();
        let stuck = state.stuck();
        drop(state);
        match next {
            Some(next) => me.world.baton(next).give(),
            None => me.world.finish(Err(SimulationError::Deadlock(stuck))),
        }
    }
}

#[track_caller]
pub(super) fn waiting(key: Key, kind: WaitKind) -> Wait {
    Wait {
        key,
        until: None,
        exclusive: true,
        kind,
        site: Location::caller(),
    }
}
