//! Scripts: operations with what the tree must look like after each.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stetfs::low::DataMode;

use super::model::{Links, State};
use super::op::Op;
use super::random::Generator;

/// A script with the state after each of its operations.
#[derive(Clone, Debug)]
pub struct Script {
    /// What is done.
    pub ops: Vec<Op>,
    /// One more than operations: first the state before.
    pub states: Vec<State>,
    /// The names of each file in each state: directory and name.
    pub links: Vec<Links>,
    /// The failure of the device that it met.
    pub failure: Option<DeviceFailure>,
}

/// A device that failed while a script ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFailure {
    /// Operations that had returned before.
    pub since: usize,
    /// It refused writes, and file data goes home: what a write-back lost is told to the next sync
    /// of the file, once, and is not written by a later one (decision 15).
    pub loses: bool,
    /// Syncs that failed before they succeeded, or failed for good, by number.
    pub failed: BTreeSet<usize>,
}

impl Script {
    /// `len` operations made from a seed, and a sync of all.
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

    /// `len` operations made from a seed, of those that Linux' fast commits can hold, and many
    /// syncs of files.
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

    /// `len` operations made from a seed: files are made, grow, get other names, go, and are
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

    /// `len` operations made from a seed, with freezes and thaws in between, some at once, some
    /// with syncs while it is frozen.
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

    /// These operations.
    pub fn of(ops: impl IntoIterator<Item = Op>, block: u64, data: DataMode) -> Script {
        let mut script = Script::begin(block, data);
        ops.into_iter().for_each(|op| script.push(op));
        script
    }

    /// The next mount, after the volume was closed: all that was done is durable.
    pub fn remounted(&mut self, data: DataMode) {
        self.push(Op::Remount);
        if let Some(state) = self.states.last_mut() {
            state.set_data(data);
        }
    }

    /// The state after the last operation.
    ///
    /// # Panics
    /// Never: there is one more state than operations.
    pub fn last(&self) -> &State {
        &self.states[self.ops.len()]
    }

    /// No operation yet.
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
    /// If it cannot succeed ([`State::allows`]).
    pub fn push(&mut self, op: Op) {
        let mut state = self.states[self.ops.len()].clone();
        self.ops.push(op);
        state.apply(&self.ops[self.ops.len() - 1], self.ops.len());
        self.links.push(state.links());
        self.states.push(state);
    }
}

/// How far a script had come when the power went: numbers of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Begun.
    pub begun: usize,
    /// Returned with success.
    pub acked: usize,
}
