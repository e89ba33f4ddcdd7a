//! The durability promised to callers that synced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lowest version that each block must have after a cut.
pub type Promise = BTreeMap<u64, u8>;

/// The promises, noted as they are given. Noting is no step of a model.
#[derive(Clone, Default)]
pub struct Acks(Arc<Mutex<Promise>>);

impl Acks {
    fn lock(&self) -> MutexGuard<'_, Promise> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a block is durable in this version, or a later one.
    pub fn give(&self, nr: u64, version: u8) {
        let mut all = self.lock();
        let known = all.entry(nr).or_default();
        *known = (*known).max(version);
    }

    /// All promises so far.
    pub fn now(&self) -> Promise {
        self.lock().clone()
    }
}
