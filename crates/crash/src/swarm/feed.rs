//! The operations of one thread: drawn one by one, and compared with what the volume shows.

use std::sync::Arc;

use stetfs::low::FsError;

use super::plan::Plan;
use super::pulse::Pulse;
use super::refusal::Refusals;
use super::volume::write_max;
use crate::judge::promise::is_as_left;
use crate::workload::feed::Feed;
use crate::workload::model::{Kind, Node};
use crate::workload::{Bounds, Deed, Generator, Op, Script, Session, USER, Weights};

/// After one operation in so many a file is looked at.
const LOOK: u8 = 4;

/// A thread's operations.
pub struct Draws {
    /// The operations so far, in all mounts of the run.
    pub script: Script,
    generator: Generator,
    rng: fastrand::Rng,
    refusals: Refusals,
    /// Operations until the end of this mount.
    left: usize,
    /// It acts as another user than root.
    acts: bool,
    /// After one operation in so many what it changed is synced; 0: files are not.
    syncs: u8,
    /// The path that is synced next.
    changed: Option<String>,
    name: String,
    pulse: Arc<Pulse>,
}

/// How often each operation is drawn; the sum is at most 255.
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
        ..bounds
    }
}

impl Draws {
    /// The operations of thread number `thread`, which go on from a script.
    pub fn new(plan: &Plan, thread: usize, script: Script, pulse: &Arc<Pulse>) -> Draws {
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
        if let Some(path) = self.changed.take() {
            let op = self.generator.sync_of(path);
            if state.allows(&op).is_ok() {
                return Some(op);
            }
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.generator.allowed(state).unwrap_or(Op::SyncAll))
    }

    /// Looks at one file that is there.
    fn look(&mut self, session: &Session) -> Result<(), String> {
        let paths = self.script.last().paths();
        match self.rng.choice(&paths) {
            Some((path, _)) => self.compare(session, path),
            None => Ok(()),
        }
    }

    /// Compares what a path leads to with the model.
    fn compare(&self, session: &Session, path: &str) -> Result<(), String> {
        let state = self.script.last();
        let Some(node) = state.node(path) else {
            return Ok(());
        };
        let failed = |e: FsError| format!("{path:?} cannot be looked at: {e}");
        let wrong = |e: String| format!("without a crash, {path:?}: {e}");
        let seen = session.seen(path).map_err(failed)?;
        is_as_left(node, &seen).map_err(wrong)?;
        if let Kind::Dir(entries) = &node.kind {
            let names = session.names(path).map_err(failed)?;
            if !names.iter().eq(entries.keys()) {
                return Err(wrong(format!(
                    "the names {names:?}, not {:?}",
                    entries.keys()
                )));
            }
        }
        let theirs = session.grouped(path).map_err(failed)?;
        let ours = state.grouped(path).and_then(|node| Node::content(node));
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if *ours.data != theirs => {
                let mut both = ours.data.iter().zip(&theirs);
                let first = both.position(|(a, b)| a != b);
                Err(wrong(format!(
                    "its group has {} bytes, not {}, or others from {first:?} on",
                    theirs.len(),
                    ours.data.len()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The paths that an operation changes, the new one last.
fn paths(op: &Op) -> Vec<&str> {
    crate::workload::ace::touched(op)
}

impl Feed for Draws {
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
    ) -> Result<(), String> {
        match done {
            Ok(done) => self.script.push(done),
            Err(e) if self.refusals.allow(op, &e, self.script.last()) => {
                let op = Box::new(op.clone());
                self.script.push(Op::Refused { op });
            }
            Err(e) => return Err(format!("is refused: {e}")),
        }
        if let Some(Op::Refused { op }) = self.script.ops.last() {
            for path in paths(op) {
                self.compare(session, path)?;
            }
        }
        if self.syncs > 0 && !op.is_sync() && self.rng.u8(0..self.syncs) == 0 {
            let path = paths(op).last().map(|path| (*path).to_owned());
            self.changed = path.filter(|path| self.script.last().find(path).is_some());
        }
        match self.rng.u8(0..LOOK) {
            0 => self.look(session),
            _ => Ok(()),
        }
    }

    /// All files are what they should be.
    fn end(&mut self, session: &mut Session) -> Result<(), String> {
        let paths = self.script.last().paths();
        paths
            .iter()
            .try_for_each(|(path, _)| self.compare(session, path))
    }
}
