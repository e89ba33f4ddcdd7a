//! The operations of one thread: drawn one by one, and compared with the tree of the volume.

use std::sync::Arc;

use stetfs::low::FsError;

use super::fault::is_of_device;
use super::plan::Plan;
use super::pulse::Pulse;
use super::refusal::Refusals;
use super::volume::write_max;
use crate::judge::{attributes, is_as_left};
use crate::workload::feed::{Feed, Settled};
use crate::workload::model::{Kind, Node, State};
use crate::workload::script::DeviceFailure;
use crate::workload::{Bounds, Deed, Generator, Habits, Op, Script, Session, USER, Weights};

/// A file is compared after one operation in this many.
const LOOK: u8 = 4;
/// One sync in this many waits for another change.
const DELAYED: u8 = 4;
/// Number of retries of a sync that fails.
const RETRIES: u32 = 2;

/// The device below, as a thread sees it.
#[derive(Clone)]
pub struct Below {
    /// Whether a fault has hit it.
    pub has_failed: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether only reads fail.
    pub fails_reads: bool,
    /// Whether the fault is that its host is full.
    pub is_full: bool,
    /// [`DeviceFailure::loses`].
    pub loses: bool,
}

impl Below {
    /// Whether a fault that has hit the device explains an error.
    fn explains(&self, e: &FsError) -> bool {
        is_of_device(e, self.is_full) && (self.has_failed)()
    }
}

/// The operations of a thread, drawn by a plan.
pub struct Draws {
    /// The operations so far, in all mounts of the run.
    pub script: Script,
    generator: Generator,
    rng: fastrand::Rng,
    refusals: Refusals,
    /// Number of operations until the end of this mount.
    left: usize,
    /// Whether the thread acts as a user other than root.
    acts: bool,
    /// After one operation in this many the change is synced; 0: files are not synced.
    syncs: u8,
    /// The path to sync next.
    changed: Option<String>,
    below: Below,
    /// Number of retries of the operation that fails.
    retries: u32,
    /// Whether the last operation failed, and may have happened or not.
    is_over: bool,
    name: String,
    pulse: Arc<Pulse>,
}

/// The weights of the operations; their sum is at most 255.
fn weights(plan: &Plan) -> Weights {
    let often = |deed: Deed| match plan.get(&format!("{}{}", super::dimension::OP, deed.name())) {
        "some" => 4,
        "much" => 16,
        _ => 0,
    };
    let drawn: Vec<(Deed, u32)> = Deed::ALL
        .into_iter()
        .map(|deed| (deed, often(deed)))
        .collect();
    let sum: u32 = drawn.iter().map(|(_, weight)| weight).sum();
    let scaled = |weight: u32| (weight * 200 / sum.max(200)).max(1) as u8;
    let drawn = drawn.into_iter().filter(|(_, weight)| *weight > 0);
    drawn.map(|(deed, weight)| (deed, scaled(weight))).collect()
}

fn bounds(plan: &Plan) -> Bounds {
    let bounds = match plan.get("sizes") {
        "large" => Bounds {
            file: 800_000,
            write: 300_000,
            ..Bounds::default()
        },
        _ => Bounds::default(),
    };
    let bounds = match plan.get("tree") {
        "small" => Bounds {
            entries: 8,
            names: 12,
            ..bounds
        },
        _ => bounds,
    };
    Bounds {
        write: bounds.write.min(write_max(plan)),
        long: plan.is("names", "long"),
        habits: if plan.is("habits", "strong") {
            Habits::STRONG
        } else {
            Habits::default()
        },
        ..bounds
    }
}

impl Draws {
    /// The operations of thread number `thread`, which continue a script.
    pub fn new(
        plan: &Plan,
        thread: usize,
        script: Script,
        below: Below,
        pulse: &Arc<Pulse>,
    ) -> Draws {
        let of_mount = script.ops.len() as u64;
        let seed = plan.seed.wrapping_mul(8).wrapping_add(thread as u64) ^ of_mount << 48;
        Draws {
            acts: plan.is("user", "other"),
            syncs: match plan.get("syncs") {
                _ if plan.is("op-fsync", "no") => 0,
                "each" => 1,
                "seldom" => 8,
                _ => 3,
            },
            changed: None,
            below,
            retries: 0,
            is_over: false,
            script,
            generator: Generator::drawing(seed, weights(plan), bounds(plan)),
            rng: fastrand::Rng::with_seed(!seed),
            refusals: Refusals::of(plan),
            left: plan.number("length") as usize,
            name: format!("thread {thread}"),
            pulse: Arc::clone(pulse),
        }
    }

    fn draw(&mut self) -> Option<Op> {
        let state = self.script.last();
        if std::mem::take(&mut self.acts) {
            let (uid, gid) = (USER, 10);
            return Some(Op::Act { uid, gid });
        }
        if state.is_frozen() {
            return Some(match self.left {
                0 => Op::Thaw,
                _ => self.generator.frozen(),
            });
        }
        // In one case of four another change comes first.
        let is_due = self.rng.u8(0..DELAYED) > 0;
        if let Some(path) = self.changed.take_if(|_| is_due) {
            let op = self.generator.sync_of(path);
            if state.allows(&op).is_ok() {
                return Some(op);
            }
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.generator.allowed(state).unwrap_or(Op::SyncAll))
    }

    /// Compares one existing file.
    fn look(&mut self, session: &Session) -> Result<(), String> {
        let paths = self.script.last().paths();
        match self.rng.choice(&paths) {
            Some((path, _)) => self.compare(session, path),
            None => Ok(()),
        }
    }

    /// Compares a path with the model. If a failed device does not give the content, it is not
    /// compared.
    fn compare(&self, session: &Session, path: &str) -> Result<(), String> {
        self.compare_with(self.script.last(), session, path)
    }

    fn compare_with(&self, state: &State, session: &Session, path: &str) -> Result<(), String> {
        match self.differs(state, session, path) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => Err(format!("without a crash, {path:?}: {what}")),
            Err(e) if e.errno() == libc::EIO && (self.below.has_failed)() => Ok(()),
            Err(e) => Err(format!("{path:?} cannot be looked at: {e}")),
        }
    }

    /// The difference between a path and its node in the model. A path without a node is not
    /// compared.
    fn differs(
        &self,
        state: &State,
        session: &Session,
        path: &str,
    ) -> Result<Option<String>, FsError> {
        let Some(node) = state.node(path) else {
            return Ok(None);
        };
        let seen = session.seen(path)?;
        // Content that a device did not take is lost when memory is reclaimed.
        let is_lost = self.script.failure.is_some() && !self.below.fails_reads;
        let same = match is_lost {
            true => attributes(node, &seen),
            false => is_as_left(node, &seen),
        };
        if let Err(why) = same {
            return Ok(Some(why));
        }
        if let Kind::Dir(entries) = &node.kind {
            let names = session.names(path)?;
            if !names.iter().eq(entries.keys()) {
                return Ok(Some(format!(
                    "the names {names:?}, not {:?}",
                    entries.keys()
                )));
            }
        }
        let theirs = session.grouped(path)?;
        let ours = state.grouped(path).and_then(|node| Node::content(node));
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if *ours.data != theirs && !is_lost => {
                let mut both = ours.data.iter().zip(&theirs);
                let first = both.position(|(a, b)| a != b);
                Ok(Some(format!(
                    "the group's copy has {} bytes, not {}, or differs from byte {first:?} on",
                    theirs.len(),
                    ours.data.len()
                )))
            }
            _ => Ok(None),
        }
    }

    /// Notes the device's failure when it happens.
    fn watch(&mut self) {
        if self.script.failure.is_none() && (self.below.has_failed)() {
            self.script.failure = Some(DeviceFailure {
                since: self.script.ops.len(),
                loses: self.below.loses,
                ..DeviceFailure::default()
            });
        }
    }

    /// Handles an operation that failed because of the device.
    fn failed(&mut self, session: &Session, op: &Op) -> Settled {
        if matches!(op, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncAll) {
            let n = self.script.ops.len() + 1;
            if let Some(failure) = &mut self.script.failure {
                failure.failed.insert(n);
            }
            if self.retries < RETRIES {
                self.retries += 1;
                return Settled::Again;
            }
        } else if self.is_untouched(session, op) {
            let op = Box::new(op.clone());
            self.script.push(Op::Refused { op });
            return Settled::Done;
        }
        self.script.push(op.clone());
        self.is_over = true;
        Settled::Over
    }

    /// Whether an operation that failed has visibly changed nothing. If writes fail, its effect on
    /// content cannot be seen: it may be on the device and not in memory.
    fn is_untouched(&self, session: &Session, op: &Op) -> bool {
        if !self.below.fails_reads && op.is_of_content() {
            return false;
        }
        let touched = touched(op);
        let mut all = touched.iter();
        let state = self.script.last();
        !touched.is_empty()
            && !state.has_group()
            && all.all(|path| matches!(self.differs(state, session, path), Ok(None)))
    }
}

/// The paths that an operation changes, the new one last.
fn paths(op: &Op) -> Vec<&str> {
    crate::workload::ace::touched(op)
}

/// The paths that an operation changes, and their directories.
fn touched(op: &Op) -> Vec<&str> {
    let paths = paths(op);
    let mut all = paths.clone();
    all.extend(paths.into_iter().map(|path| match path.rsplit_once('/') {
        Some((dir, _)) => dir,
        None => "",
    }));
    all
}

impl Feed for Draws {
    fn kept_out(&mut self, why: &FsError) -> Result<(), String> {
        match self.below.explains(why) {
            true => Ok(()),
            false => Err(why.to_string()),
        }
    }

    fn next(&mut self, _: &mut Session) -> Option<(usize, Op)> {
        let op = self.draw();
        match &op {
            Some(op) => self.pulse.begins(&self.name, op),
            None => self.pulse.ends(&self.name),
        }
        op.map(|op| (self.script.ops.len() + 1, op))
    }

    fn settle(
        &mut self,
        session: &mut Session,
        op: &Op,
        done: Result<Op, FsError>,
    ) -> Result<Settled, String> {
        self.watch();
        match done {
            Ok(done) => self.script.push(done),
            Err(e) if self.refusals.allow(op, &e, self.script.last()) => {
                let op = Box::new(op.clone());
                self.script.push(Op::Refused { op });
            }
            Err(e) if self.script.failure.is_some() && self.below.explains(&e) => {
                match self.failed(session, op) {
                    Settled::Done => {}
                    settled => return Ok(settled),
                }
            }
            Err(e) => return Err(format!("is refused: {e}")),
        }
        self.retries = 0;
        if let Some(Op::Refused { op }) = self.script.ops.last() {
            for path in paths(op) {
                self.compare(session, path)?;
            }
        }
        // A change that follows from another is often synced, before a commit hides how they
        // interact.
        let is_due = self.generator.follows() && self.rng.bool();
        if self.syncs > 0 && !op.is_sync() && (is_due || self.rng.u8(0..self.syncs) == 0) {
            let path = paths(op).last().map(|path| (*path).to_owned());
            self.changed = path.filter(|path| self.script.last().find(path).is_some());
        }
        if self.rng.u8(0..LOOK) == 0 {
            self.look(session)?;
        }
        Ok(Settled::Done)
    }

    /// Compares all files. If the last operation failed, the files that it changes are skipped, and
    /// the others must be as before it or as after it.
    fn end(&mut self, session: &mut Session) -> Result<(), String> {
        self.pulse.ends(&self.name);
        let [.., before, last] = &self.script.states[..] else {
            return Ok(());
        };
        let of_last = match self.script.ops.last() {
            Some(op) if self.is_over => paths(op),
            _ => Vec::new(),
        };
        let all_of = |state: &State| {
            let paths = state.paths().into_iter().map(|(path, _)| path);
            let mut others = paths.filter(|path| !of_last.contains(&&**path));
            others.try_for_each(|path| self.compare_with(state, session, &path))
        };
        match all_of(last) {
            Err(_) if self.is_over => all_of(before),
            done => done,
        }
    }
}
