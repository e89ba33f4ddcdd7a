//! The scheduler: tasks, cores, and who runs next. Pure state: no thread of the host is touched
//! here.
//!
//! ```text
//!           pick               block
//!  Ready ─────────▶ Running ─────────▶ Blocked
//!    ▲                 │                  │
//!    └── yield, slice ─┘                  │
//!    └───────── wake, deadline ───────────┘
//! ```

use std::collections::{HashMap, VecDeque};
use std::panic::Location;

use super::cost::{Placement, Settings};
use super::line::Line;
use super::profile::{Profile, WaitKind};

/// The thing that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A lock, by address.
    Lock(usize),
    /// A condition variable, by address.
    Signal(usize),
    /// The end of a task.
    End(usize),
    /// `unpark` of a task.
    Park(usize),
    /// Only time.
    Sleep(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// On its core.
    Running,
    /// Waits for a core since a time.
    Ready(u64),
    /// Waits for a key, at most until a time.
    Blocked(Key, Option<u64>),
    Done,
}

/// A waiting task as the profile and a deadlock's text name it.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) key: Key,
    pub(super) until: Option<u64>,
    pub(super) exclusive: bool,
    pub(super) kind: WaitKind,
    pub(super) site: &'static Location<'static>,
}

struct Task {
    name: String,
    status: Status,
    /// Its virtual time.
    clock: u64,
    core: usize,
    pinned: bool,
    /// When it came to its core.
    since: u64,
    /// Breaks ties.
    tie: u64,
    /// The last wait, for texts.
    wait: Option<Wait>,
    timed_out: bool,
    /// An `unpark` that came before the `park`.
    token: bool,
}

#[derive(Clone, Copy, Default)]
struct Core {
    occupant: Option<usize>,
    /// The task that ran last.
    last: Option<usize>,
    free_at: u64,
}

/// How a lock's waiter is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) task: usize,
    pub(super) exclusive: bool,
}

/// A lock with waiters is handed to the first of them, before threads that run, at random times up
/// to this apart (ns); at others a thread that runs may take it first. parking_lot does it so.
const FAIR: u64 = 1_000_000;

pub(super) struct State {
    pub(super) settings: Settings,
    tasks: Vec<Task>,
    cores: Vec<Core>,
    waiting: HashMap<Key, VecDeque<Waiter>>,
    /// Locks that were handed to a waiter, which has not run since.
    handed: HashMap<Key, usize>,
    random: u64,
    pub(super) profile: Profile,
    /// Number of scheduling points.
    pub(super) steps: u64,
    /// Changes with each step's task and time: equal for equal runs.
    pub(super) trace: u64,
    /// Until this time the task that runs is the first: no other has to be asked.
    horizon: u64,
}

impl State {
    pub(super) fn new(settings: Settings) -> State {
        State {
            settings,
            tasks: Vec::new(),
            cores: vec![Core::default(); settings.cores.max(1)],
            waiting: HashMap::new(),
            handed: HashMap::new(),
            random: settings.seed ^ 0x9e37_79b9_7f4a_7c15,
            profile: Profile::default(),
            steps: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            horizon: 0,
        }
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A new task, ready at `at`.
    pub(super) fn add(&mut self, name: String, at: u64) -> usize {
        let id = self.tasks.len();
        let tie = self.draw();
        self.horizon = 0;
        self.tasks.push(Task {
            name,
            status: Status::Ready(at),
            clock: at,
            core: id % self.cores.len(),
            pinned: self.settings.placement == Placement::RoundRobin,
            since: at,
            tie,
            wait: None,
            timed_out: false,
            token: false,
        });
        id
    }

    pub(super) fn clock(&self, id: usize) -> u64 {
        self.tasks[id].clock
    }

    pub(super) fn core(&self, id: usize) -> usize {
        self.tasks[id].core
    }

    /// Adds a wait of the task to the profile.
    pub(super) fn waited(
        &mut self,
        id: usize,
        kind: WaitKind,
        site: &'static Location<'static>,
        nanos: u64,
    ) {
        self.profile.add(kind, site, &self.tasks[id].name, nanos);
    }

    pub(super) fn timed_out(&self, id: usize) -> bool {
        self.tasks[id].timed_out
    }

    /// The running task's clock goes on by `nanos`.
    pub(super) fn advance(&mut self, id: usize, nanos: u64) {
        self.tasks[id].clock += nanos;
    }

    /// Counts a scheduling point of the running task.
    pub(super) fn step(&mut self, id: usize) {
        self.steps += 1;
        for word in [id as u64, self.tasks[id].clock] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Whether the running task goes on without a look at the others.
    pub(super) fn is_first(&self, id: usize) -> bool {
        self.tasks[id].clock < self.horizon
    }

    /// Nanoseconds for which the running task goes on without a look at the others.
    pub(super) fn ahead(&self, id: usize) -> u64 {
        self.horizon.saturating_sub(self.tasks[id].clock)
    }

    /// Takes the task from its core.
    fn leave_core(&mut self, id: usize) {
        let clock = self.tasks[id].clock;
        let core = &mut self.cores[self.tasks[id].core];
        if core.occupant == Some(id) {
            core.occupant = None;
            core.free_at = clock;
        }
        self.horizon = 0;
    }

    fn make_ready(&mut self, id: usize, at: u64) {
        let tie = self.draw();
        self.horizon = 0;
        let task = &mut self.tasks[id];
        task.status = Status::Ready(at.max(task.clock));
        task.tie = tie;
    }

    /// The running task waits.
    pub(super) fn block(&mut self, id: usize, wait: Wait) {
        self.leave_core(id);
        let task = &mut self.tasks[id];
        task.status = Status::Blocked(wait.key, wait.until);
        task.wait = Some(wait);
        task.timed_out = false;
        self.waiting.entry(wait.key).or_default().push_back(Waiter {
            task: id,
            exclusive: wait.exclusive,
        });
    }

    /// The running task leaves its core to others that wait for it.
    pub(super) fn give_way(&mut self, id: usize) {
        self.leave_core(id);
        self.make_ready(id, 0);
    }

    /// The running task leaves its core if its slice is over and another waits for the core.
    pub(super) fn end_slice(&mut self, id: usize) {
        let task = &self.tasks[id];
        let (clock, core) = (task.clock, task.core);
        if clock - task.since < self.settings.slice {
            return;
        }
        let waits = |other: &Task| match other.status {
            Status::Ready(at) => at <= clock && (!other.pinned || other.core == core),
            _ => false,
        };
        if self.tasks.iter().any(waits) {
            self.give_way(id);
        }
    }

    pub(super) fn pin(&mut self, id: usize, core: usize) {
        let core = core % self.cores.len();
        self.tasks[id].pinned = true;
        if core != self.tasks[id].core {
            self.leave_core(id);
            self.tasks[id].core = core;
            self.make_ready(id, 0);
        }
    }

    /// The task is over; who waits for its end wakes up.
    pub(super) fn end(&mut self, id: usize) {
        self.leave_core(id);
        self.tasks[id].status = Status::Done;
        self.wake(id, Key::End(id), usize::MAX);
    }

    pub(super) fn is_done(&self, id: usize) -> bool {
        self.tasks[id].status == Status::Done
    }

    /// Takes or leaves a token for `park`. Returns whether the task waits no more.
    pub(super) fn unpark(&mut self, by: usize, id: usize) {
        if self.wake(by, Key::Park(id), 1) == 0 {
            self.tasks[id].token = true;
        }
    }

    pub(super) fn take_token(&mut self, id: usize) -> bool {
        std::mem::take(&mut self.tasks[id].token)
    }

    /// The running task `by` wakes up to `count` of those that wait for `key`. Returns how many.
    pub(super) fn wake(&mut self, by: usize, key: Key, count: usize) -> usize {
        let mut woken = 0;
        while woken < count
            && let Some(waiter) = self.waiting.get_mut(&key).and_then(VecDeque::pop_front)
        {
            self.wake_one(by, waiter.task);
            woken += 1;
        }
        if self.waiting.get(&key).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(&key);
        }
        woken
    }

    /// A task that still spins gets the line; one that sleeps has to be woken.
    fn wake_one(&mut self, by: usize, task: usize) {
        let costs = self.settings.costs;
        let now = self.tasks[by].clock;
        let spins = now.saturating_sub(self.tasks[task].clock) < costs.spin
            && matches!(self.tasks[task].status, Status::Blocked(Key::Lock(_), _));
        let latency = if spins {
            costs.transfer
        } else {
            costs.wake_latency
        };
        if !spins {
            self.tasks[by].clock += costs.wake;
        }
        self.make_ready(task, now + latency);
    }

    /// Whether the lock was handed to another than `id`.
    pub(super) fn is_handed(&self, id: usize, key: Key) -> bool {
        self.handed.get(&key).is_some_and(|to| *to != id)
    }

    /// Whether someone waits for the lock to write: then readers that come wait, too. Not those
    /// that were woken: their turn it is.
    pub(super) fn writer_waits(&self, key: Key) -> bool {
        let queue = self.waiting.get(&key);
        queue.is_some_and(|q| q.iter().any(|w| w.exclusive))
    }

    /// The task has the lock: a hand-over to it is done.
    pub(super) fn took(&mut self, id: usize, key: Key) {
        if self.handed.get(&key) == Some(&id) {
            self.handed.remove(&key);
        }
    }

    /// The running task released the lock: the first waiter that wants it alone wakes up, or all
    /// readers before the first such. One that waited for long gets the lock with that.
    pub(super) fn released(&mut self, by: usize, line: &Line) {
        let key = Key::Lock(line.address());
        let Some(first) = self.waiting.get(&key).and_then(VecDeque::front).copied() else {
            return;
        };
        if self.handed.contains_key(&key) {
            return;
        }
        if first.exclusive {
            let now = self.tasks[by].clock;
            if line.fair() <= now {
                line.set_fair(now + self.draw() % FAIR);
                self.handed.insert(key, first.task);
            }
            self.wake(by, key, 1);
            return;
        }
        let readers = self
            .waiting
            .get(&key)
            .map_or(0, |queue| queue.iter().take_while(|w| !w.exclusive).count());
        self.wake(by, key, readers);
    }

    /// The core on which a ready task would run, and from when; none if all that it may use are
    /// taken.
    fn core_for(&self, id: usize, at: u64) -> Option<(usize, u64)> {
        let task = &self.tasks[id];
        let start = |core: usize| {
            let c = &self.cores[core];
            c.occupant.is_none().then(|| (core, c.free_at.max(at)))
        };
        if task.pinned {
            return start(task.core);
        }
        let own = start(task.core);
        if own.is_some_and(|(_, when)| when == at) {
            return own;
        }
        let all = 0..self.cores.len();
        all.filter_map(start)
            .chain(own)
            .min_by_key(|(core, when)| (*when, *core != task.core, *core))
    }

    /// The task that runs next: the one with the lowest time. `None`: nothing can go on.
    pub(super) fn pick(&mut self) -> Option<usize> {
        loop {
            let mut best: Option<(u64, u64, u64, usize, usize)> = None;
            let mut second = u64::MAX;
            for (id, task) in self.tasks.iter().enumerate() {
                let (when, since, core) = match task.status {
                    Status::Running => (task.clock, task.clock, task.core),
                    Status::Ready(at) => match self.core_for(id, at) {
                        Some((core, when)) => (when, at, core),
                        None => continue,
                    },
                    Status::Blocked(_, Some(until)) => (until.max(task.clock), 0, task.core),
                    Status::Blocked(_, None) | Status::Done => continue,
                };
                let order = (when, since, task.tie, id, core);
                match best {
                    Some(b) if b <= order => second = second.min(when),
                    Some(b) => {
                        second = second.min(b.0);
                        best = Some(order);
                    }
                    None => best = Some(order),
                }
            }
            let (when, _, _, id, core) = best?;
            match self.tasks[id].status {
                Status::Running => {
                    let slice = self.tasks[id].since + self.settings.slice;
                    let ahead = second.saturating_add(self.settings.slack);
                    self.horizon = ahead.min(slice.max(when + 1));
                    return Some(id);
                }
                Status::Blocked(key, _) => self.expire(id, key, when),
                _ => self.place(id, core, when),
            }
        }
    }

    /// A deadline passed.
    fn expire(&mut self, id: usize, key: Key, when: u64) {
        if let Some(queue) = self.waiting.get_mut(&key) {
            queue.retain(|w| w.task != id);
            if queue.is_empty() {
                self.waiting.remove(&key);
            }
        }
        self.tasks[id].timed_out = true;
        self.make_ready(id, when + self.settings.costs.sleep_late);
    }

    /// The task comes to a core.
    fn place(&mut self, id: usize, core: usize, when: u64) {
        let switch = self.settings.costs.switch;
        let c = &mut self.cores[core];
        let changes = c.last.is_some_and(|last| last != id);
        c.occupant = Some(id);
        c.last = Some(id);
        let task = &mut self.tasks[id];
        task.core = core;
        task.clock = when + if changes { switch } else { 0 };
        task.since = task.clock;
        task.status = Status::Running;
    }

    /// The tasks on cores, by name, one of which runs on the host.
    pub(super) fn running(&self) -> String {
        let on_cores = self.tasks.iter().filter(|t| t.status == Status::Running);
        let names: Vec<&str> = on_cores.map(|t| t.name.as_str()).collect();
        names.join(", ")
    }

    /// The list of waiting tasks, if the task's time is beyond the longest.
    pub(super) fn late(&self, id: usize) -> Option<String> {
        (self.tasks[id].clock > self.settings.longest).then(|| self.stuck())
    }

    /// The list of waiting tasks and their places, one line each.
    pub(super) fn stuck(&self) -> String {
        let live = self.tasks.iter().filter(|t| t.status != Status::Done);
        live.map(|task| {
            let at = task.wait.map_or_else(
                || "is on its way".to_owned(),
                |w| format!("waits for a {} at {}", w.kind.name(), w.site),
            );
            format!(
                "\n  {} (core {}, {} ns) {at}",
                task.name, task.core, task.clock
            )
        })
        .collect()
    }
}
