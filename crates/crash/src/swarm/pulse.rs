//! The pulse of a run: the current task of each thread with its start time, which shows whether it
//! hangs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The pulse of a run.
#[derive(Debug, Default)]
pub struct Pulse {
    at: Mutex<BTreeMap<String, (String, Instant)>>,
}

impl Pulse {
    /// Notes that a thread begins a task.
    pub fn begins(&self, who: &str, what: impl ToString) {
        let now = (what.to_string(), Instant::now());
        self.at.lock().insert(who.to_owned(), now);
    }

    /// Notes that a thread is done.
    pub fn ends(&self, who: &str) {
        self.at.lock().remove(who);
    }

    /// The task that has taken longer than `bound`, if any.
    pub fn hanging(&self, bound: Duration) -> Option<String> {
        let at = self.at.lock();
        let mut all = at.iter();
        let (who, (what, _)) = all.find(|(_, (_, since))| since.elapsed() > bound)?;
        Some(format!("{who} takes longer than {bound:?}: {what}"))
    }
}
