//! Scripts: operations, with the state of the model after each.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stetfs::low::DataMode;

use super::model::{Links, State};
use super::op::Op;
use super::random::Generator;

/// A script with the state after each of its operations.
#[derive(Clone, Debug)]
pub struct Script {
    /// The operations.
    pub ops: Vec<Op>,
    /// The states: the one before the first operation, then one after each.
    pub states: Vec<State>,
    /// The names of each file in each state: directory and name.
    pub links: Vec<Links>,
    /// The device failure that the script met.
    pub failure: Option<DeviceFailure>,
}

/// The failure of a device while a script ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFailure {
    /// Number of operations that had returned before.
    pub since: usize,
    /// Whether writes failed and file data is written back by itself: a loss is then reported to
    /// the next sync of the file, once, and a later sync does not write the lost data (decision
    /// 15).
    pub loses: bool,
    /// Numbers of the syncs that failed, whether a retry succeeded or not.
    pub failed: BTreeSet<usize>,
}

impl Script {
    /// A script of `len` random operations and a sync of everything.
    pub fn random(seed: u64, len: usize, block: u64, data: DataMode) -> Script {
        let mut generator = Generator::new(seed);
        let mut script = Script::begin(block, data);
        for _ in 0..len {
            let op = generator.next(&script.states[script.states.len() - 1]);
            script.push(op);
        }
        script.push(Op::SyncAll);
        script
    }

    /// A script of `len` random operations, of the kinds that fast commits of Linux can hold, with
    /// many syncs of files.
    pub fn random_files(seed: u64, len: usize, block: u64, data: DataMode) -> Script {
        let mut generator = Generator::new(seed);
        let mut script = Script::begin(block, data);
        while script.ops.len() < len {
            let state = &script.states[script.states.len() - 1];
            let op = generator.next(state);
            let full = match &op {
                Op::SetXattr { .. } | Op::RemoveXattr { .. } => true,
                Op::Exchange { .. } | Op::SyncAll | Op::Tmpfile { .. } => true,
                Op::Chattr { .. } => true,
                Op::Rename { from, .. } => state.node(from).is_some_and(|n| n.is_dir()),
                Op::Fsync { path } => state.node(path).is_some_and(|n| n.is_dir()),
                _ => false,
            };
            if full {
                continue;
            }
            script.push(op);
            let synced = generator.synced(&script.states[script.states.len() - 1]);
            synced.into_iter().for_each(|op| script.push(op));
        }
        script.push(Op::SyncAll);
        script
    }

    /// A script of `len` random operations: files are created, grow, are renamed, deleted and
    /// synced.
    pub fn changing(seed: u64, len: usize, block: u64, data: DataMode) -> Script {
        let mut generator = Generator::new(seed);
        let mut script = Script::begin(block, data);
        while script.ops.len() < len {
            let op = generator.next(&script.states[script.states.len() - 1]);
            let at = match &op {
                Op::Create { path, .. } | Op::Write { path, .. } => path.clone(),
                Op::Rename { to, .. } => to.clone(),
                Op::Mkdir { .. } | Op::Rmdir { .. } | Op::Unlink { .. } => String::new(),
                _ => continue,
            };
            script.push(op);
            script.push(generator.sync_of(at));
        }
        script
    }

    /// A script of `len` random operations with freezes and thaws in between; some thaws follow at
    /// once, others after syncs on the frozen volume.
    pub fn freezing(seed: u64, len: usize, block: u64, data: DataMode) -> Script {
        let mut generator = Generator::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut script = Script::begin(block, data);
        while script.ops.len() < len {
            for _ in 0..rng.usize(0..20) {
                let op = generator.next(&script.states[script.states.len() - 1]);
                script.push(op);
            }
            script.push(Op::Freeze);
            match rng.u8(0..4) {
                0 => script.push(Op::SyncAll),
                1 => script.push(generator.sync_of(String::new())),
                _ => {}
            }
            script.push(Op::Thaw);
        }
        script
    }

    /// A script of these operations.
    pub fn of(ops: impl IntoIterator<Item = Op>, block: u64, data: DataMode) -> Script {
        let mut script = Script::begin(block, data);
        ops.into_iter().for_each(|op| script.push(op));
        script
    }

    /// Adds the remount after an unmount, which makes all changes durable.
    pub fn remounted(&mut self, data: DataMode) {
        self.push(Op::Remount);
        if let Some(state) = self.states.last_mut() {
            state.set_data(data);
        }
    }

    /// The state after the last operation.
    ///
    /// # Panics
    /// Never, because there is one more state than operations.
    pub fn last(&self) -> &State {
        &self.states[self.ops.len()]
    }

    /// An empty script.
    pub fn begin(block: u64, data: DataMode) -> Script {
        Script {
            ops: Vec::new(),
            states: vec![State::new(block, data.keeps_whole())],
            links: vec![Links::new()],
            failure: None,
        }
    }

    /// Adds an operation.
    ///
    /// # Panics
    /// The operation cannot succeed ([`State::allows`]).
    pub fn push(&mut self, op: Op) {
        let mut state = self.states[self.ops.len()].clone();
        self.ops.push(op);
        state.apply(&self.ops[self.ops.len() - 1], self.ops.len());
        self.links.push(state.links());
        self.states.push(state);
    }
}

/// The progress of a script at a crash, as numbers of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Operations begun.
    pub begun: usize,
    /// Operations that returned with success.
    pub acked: usize,
}
