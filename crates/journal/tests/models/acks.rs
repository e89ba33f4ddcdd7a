//! What was promised to those that synced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lowest version that each block must have.
pub type Promise = BTreeMap<u64, u8>;

/// Promises, noted as they are given. No step of a model.
#[derive(Clone, Default)]
pub struct Acks(Arc<Mutex<Promise>>);

impl Acks {
    fn lock(&self) -> MutexGuard<'_, Promise> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block is durable in this version, or a later one.
    pub fn give(&self, nr: u64, version: u8) {
        let mut all = self.lock();
        let known = all.entry(nr).or_default();
        *known = (*known).max(version);
    }

    /// All so far.
    pub fn now(&self) -> Promise {
        self.lock().clone()
    }
}
