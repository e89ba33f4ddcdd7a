//! The operations of simulated threads: scheduling points, locks, signals, sleeps. Outside of a
//! simulation each says so, and does nothing.

use std::panic::Location;

use super::line::Line;
use super::profile::{WaitKind, Waited};
use super::scheduler::{Key, Wait};
use super::world::{CHEAP, Op, Task, me, waiting};

/// A new task that the calling simulated thread starts; none outside of a simulation.
pub(super) fn new_task(name: Option<&str>) -> Option<Task> {
    let me = me()?;
    me.point(Op::Spawn);
    let at = me.world.state.lock().clock(me.id);
    let name = name.map_or_else(|| "thread".to_owned(), str::to_owned);
    Some(me.world.task(name, at))
}

/// The calling thread as a task.
pub(super) fn this_task() -> Option<Task> {
    me().map(|me| Task {
        world: me.world.clone(),
        id: me.id,
    })
}

/// A scheduling point. Outside of a simulation: nothing. Returns whether it was one.
pub(super) fn point(op: Op) -> bool {
    me().is_some_and(|me| {
        me.point(op);
        true
    })
}

/// Work of the calling thread, charged at the next point.
pub(super) fn charge(nanos: u64) {
    if let Some(me) = me() {
        me.charged.set(me.charged.get() + nanos);
    }
}

/// Virtual nanoseconds since the simulation began, at the last scheduling point; none outside of
/// one.
pub fn now() -> Option<u64> {
    me().map(|me| me.world.state.lock().clock(me.id))
}

/// The number of scheduling points so far, and a number that is equal for equal runs; none outside
/// of a simulation.
pub fn trace() -> Option<(u64, u64)> {
    me().map(|me| {
        let state = me.world.state.lock();
        (state.steps, state.trace)
    })
}

/// The core of the calling thread; none outside of a simulation.
pub fn this_core() -> Option<usize> {
    me().map(|me| me.core.get())
}

pub(super) fn cores() -> Option<usize> {
    me().map(|me| me.world.settings.cores)
}

pub(super) fn task_number() -> Option<usize> {
    me().map(|me| me.id)
}

/// The waits since the start or the last call, longest first. Outside of a simulation: none.
pub fn take_profile() -> Vec<Waited> {
    me().map_or_else(Vec::new, |me| me.world.state.lock().profile.take())
}

pub(super) fn pin(core: usize) {
    if let Some(me) = me() {
        me.point(Op::Other);
        let mut state = me.world.state.lock();
        state.pin(me.id, core);
        me.turn(state);
    }
}

/// The calling simulated thread accesses a line before its operation.
#[track_caller]
pub(super) fn touch(line: &Line, write: bool, op: Op) {
    let Some(me) = me() else { return };
    let of = me.world.number;
    if op == Op::Atomic && line.is_here(of, me.core.get(), write) {
        let cheap = me.cheap.get() + 1;
        me.cheap.set(cheap);
        if cheap < CHEAP && u64::from(cheap) * me.small() < me.ahead.get() {
            return;
        }
        return me.point(Op::Atomic);
    }
    me.point(op);
    let core = me.core.get();
    if line.is_here(of, core, write) {
        return;
    }
    let mut state = me.world.state.lock();
    let now = state.clock(me.id);
    let here = line.fetch(core, write, now, me.world.settings.costs.transfer);
    state.advance(me.id, here - now);
    state.waited(me.id, WaitKind::Line, Location::caller(), here - now);
    me.ahead.set(state.ahead(me.id));
    drop(state);
    me.restart();
}

/// Takes a lock: `try_it` until it succeeds; between tries the thread waits for a release. Outside
/// of a simulation returns none.
#[track_caller]
pub(super) fn acquire<G>(
    line: &Line,
    kind: WaitKind,
    mut try_it: impl FnMut() -> Option<G>,
) -> Option<G> {
    let me = me()?;
    touch(line, true, Op::Lock);
    let key = Key::Lock(line.address());
    let exclusive = kind != WaitKind::Read;
    let mut came = true;
    loop {
        let mut state = me.world.state.lock();
        let waits = came && !exclusive && state.writer_waits(key);
        if !waits && !state.is_handed(me.id, key) {
            // A hand-over counts once, even if one took the lock that never waits.
            state.took(me.id, key);
            drop(state);
            if let Some(guard) = try_it() {
                return Some(guard);
            }
        } else {
            drop(state);
        }
        came = false;
        me.block(Wait {
            exclusive,
            ..waiting(key, kind)
        });
    }
}

/// Before a release: it happens in the order of virtual time. Not while a panic unwinds, whose
/// releases are not waited for.
pub(super) fn before_release() {
    if !std::thread::panicking() {
        point(Op::Lock);
    }
}

/// After a release: the next waiter may go on.
pub(super) fn released(line: &Line) {
    if let Some(me) = me() {
        me.world.state.lock().released(me.id, line);
        // The thread that woke up may be the first now.
        me.ahead.set(0);
    }
}

/// Waits for a signal at `address`, at most until `until`, having called `release`. Returns
/// whether time ran out; none outside of a simulation, where `release` is not called.
#[track_caller]
pub(super) fn await_signal(
    address: usize,
    until: Option<u64>,
    release: impl FnOnce(),
) -> Option<bool> {
    let me = me()?;
    me.point(Op::Other);
    let wait = Wait {
        until,
        ..waiting(Key::Signal(address), WaitKind::Signal)
    };
    release();
    Some(me.block(wait))
}

/// Wakes up to `count` waiters for signals. Returns how many; none outside of a simulation.
pub(super) fn signal(address: usize, count: usize) -> Option<usize> {
    let me = me()?;
    me.point(Op::Other);
    me.ahead.set(0);
    Some(
        me.world
            .state
            .lock()
            .wake(me.id, Key::Signal(address), count),
    )
}

/// Sleeps until `until`. Returns false outside of a simulation.
#[track_caller]
pub(super) fn sleep_until(until: impl FnOnce(u64) -> u64) -> bool {
    let Some(me) = me() else { return false };
    me.point(Op::Other);
    let now = me.world.state.lock().clock(me.id);
    me.block(Wait {
        until: Some(until(now)),
        ..waiting(Key::Sleep(me.id), WaitKind::Signal)
    });
    true
}

/// Waits for `unpark`, at most for a time. Returns false outside of a simulation.
#[track_caller]
pub(super) fn park(limit: Option<u64>) -> bool {
    let Some(me) = me() else { return false };
    me.point(Op::Other);
    let mut state = me.world.state.lock();
    let now = state.clock(me.id);
    if !state.take_token(me.id) {
        drop(state);
        me.block(Wait {
            until: limit.map(|limit| now + limit),
            ..waiting(Key::Park(me.id), WaitKind::Signal)
        });
    }
    true
}
