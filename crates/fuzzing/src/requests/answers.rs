//! The answers of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use stetfs_testkit::fuse::{long, word};

/// The answers so far, by the number of their request.
#[derive(Default)]
pub(super) struct Answers(Mutex<BTreeMap<u64, Vec<Vec<u8>>>>);

impl Answers {
    pub(super) fn put(&self, answer: &[u8]) {
        // Notifications have the number 0.
        if let Some(unique) = long(answer, 8).filter(|n| *n != 0) {
            let mut all = self.0.lock().unwrap();
            all.entry(unique).or_default().push(answer.to_vec());
        }
    }

    pub(super) fn last(&self, unique: u64) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(&unique)?.last().cloned()
    }

    pub(super) fn succeeded(&self) -> usize {
        let all = self.0.lock().unwrap();
        let whole = all.values().flatten().filter(|a| word(a, 4) == Some(0));
        whole.count()
    }

    pub(super) fn counts(&self) -> BTreeMap<u64, usize> {
        let all = self.0.lock().unwrap();
        all.iter()
            .map(|(unique, all)| (*unique, all.len()))
            .collect()
    }
}

/// The requests that got a wrong number of answers, in words.
pub(super) fn unlike(wanted: &BTreeMap<u64, usize>, got: &BTreeMap<u64, usize>) -> String {
    let all: BTreeSet<_> = wanted.keys().chain(got.keys()).copied().collect();
    let count = |of: &BTreeMap<u64, usize>, unique| of.get(&unique).copied().unwrap_or(0);
    let lines = all.into_iter().filter_map(|unique| {
        let (wanted, got) = (count(wanted, unique), count(got, unique));
        (wanted != got).then(|| format!("request {unique}: {got} answers instead of {wanted}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}
