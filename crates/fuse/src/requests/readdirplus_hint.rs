//! Decides which threads get attributes with their directory listings.
//!
//! A listing can include the attributes of its entries (READDIRPLUS), which saves a LOOKUP for
//! each. They cost an inode each here and in the kernel, so they are for programs that use them:
//! `find`, `ls -l`, `rm -r`. These read a directory to its end before they look at the first entry,
//! when it is too late for the kernel's own rule (`FUSE_READDIRPLUS_AUTO`), which watches the
//! directory being read. So a thread's use of one directory decides about its next
//! (decisions/0037).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use stetfs::low::Ino;

/// Number of threads that are tracked.
const SLOTS: usize = 64;
/// Directories of a thread whose lookups count: it may list others before it is done with one.
const DIRS: usize = 4;
/// Minimum number of names listed without attributes before the lookups among them count.
const FEW: u32 = 16;
/// Above this number of names the counts are halved.
const MANY: u32 = 4096;
/// Number of answers with attributes after which names are listed without them, to see whether
/// lookups follow.
const TERM: u32 = 128;

/// The recent behaviour of a thread. A wrong number costs only requests, so threads that share a
/// slot do not synchronise.
#[derive(Default)]
struct Slot {
    pid: AtomicU32,
    dirs: [AtomicU64; DIRS],
    /// Names listed without attributes, and the lookups among them.
    listed: AtomicU32,
    looked: AtomicU32,
    /// Whether the thread looks up the names that it lists.
    walks: AtomicBool,
    /// Answers with attributes since that was determined.
    answers: AtomicU32,
}

/// The tracked threads.
pub(crate) struct ReaddirplusHint([Slot; SLOTS]);

impl Default for ReaddirplusHint {
    fn default() -> ReaddirplusHint {
        ReaddirplusHint(std::array::from_fn(|_| Slot::default()))
    }
}

impl ReaddirplusHint {
    fn slot(&self, pid: u32) -> &Slot {
        // Within bounds by the remainder.
        &self.0[pid as usize % SLOTS]
    }

    /// Whether thread `pid` gets attributes with the names of `dir` from `cookie` on.
    pub(crate) fn look(&self, pid: u32, dir: Ino, cookie: u64) -> bool {
        let slot = self.slot(pid);
        if slot.pid.swap(pid, Relaxed) != pid {
            slot.walks.store(false, Relaxed);
            slot.forget();
        }
        if cookie == 0 {
            slot.begin(dir);
            // The first answer always has them: many directories fit in it.
            return true;
        }
        slot.walks.load(Relaxed) && slot.answers.load(Relaxed) < TERM
    }

    /// Records that `n` names behind the first answer were listed, with attributes or without.
    pub(crate) fn listed(&self, pid: u32, n: u32, attributes: bool) {
        let slot = self.slot(pid);
        match attributes {
            true => slot.answers.fetch_add(n.min(1), Relaxed),
            false => slot.listed.fetch_add(n, Relaxed),
        };
    }

    /// Records the lookup of a name in `dir`.
    pub(crate) fn looked(&self, pid: u32, dir: Ino) {
        let slot = self.slot(pid);
        let is_it = |known: &AtomicU64| known.load(Relaxed) == u64::from(dir);
        if slot.pid.load(Relaxed) == pid && slot.dirs.iter().any(is_it) {
            slot.looked.fetch_add(1, Relaxed);
        }
    }
}

impl Slot {
    /// Begins a directory: evaluates the counts of the earlier ones.
    fn begin(&self, dir: Ino) {
        let (listed, looked) = (self.listed.load(Relaxed), self.looked.load(Relaxed));
        if listed >= FEW {
            let walks = looked >= listed / 2;
            self.walks.store(walks, Relaxed);
            if walks {
                self.forget();
            } else if listed > MANY {
                self.listed.store(listed / 2, Relaxed);
                self.looked.store(looked / 2, Relaxed);
            }
        }
        let mut newer = u64::from(dir);
        for known in &self.dirs {
            newer = known.swap(newer, Relaxed);
        }
    }

    /// Clears the counts.
    fn forget(&self) {
        self.listed.store(0, Relaxed);
        self.looked.store(0, Relaxed);
        self.answers.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists a directory of 400 names in four answers, and then looks up every `each`th; returns
    /// the number of answers with attributes.
    fn walk(hint: &ReaddirplusHint, pid: u32, dir: Ino, each: Option<usize>) -> usize {
        let answers: Vec<bool> = (0..4)
            .map(|i| {
                let attrs = hint.look(pid, dir, i * 100);
                if i > 0 {
                    hint.listed(pid, 100, attrs);
                }
                attrs
            })
            .collect();
        let without = 100 * answers.iter().filter(|attrs| !**attrs).count();
        let looked = each.map_or(0, |each| without / each);
        (0..looked).for_each(|_| hint.looked(pid, dir));
        4 - without / 100
    }

    #[test]
    fn who_looked_at_the_last_directory_gets_attributes_of_the_next() {
        let hint = ReaddirplusHint::default();
        assert_eq!(walk(&hint, 7, 12, Some(1)), 1);
        assert_eq!(walk(&hint, 7, 13, Some(1)), 4);
        assert_eq!(walk(&hint, 7, 14, Some(1)), 4);
        // Another thread is not affected, even one in the same slot.
        assert_eq!(walk(&hint, 8, 15, None), 1);
        assert_eq!(walk(&hint, 8, 16, None), 1);
        assert_eq!(walk(&hint, 7 + SLOTS as u32, 17, None), 1);
        assert_eq!(walk(&hint, 7, 18, Some(1)), 1);
    }

    #[test]
    fn who_looks_at_few_gets_names_alone() {
        let hint = ReaddirplusHint::default();
        for dir in 12..100 {
            assert_eq!(walk(&hint, 7, dir, Some(10)), 1, "{dir}");
        }
        // Lookups in other directories do not count.
        hint.look(7, 12, 0);
        hint.listed(7, 100, false);
        (0..100).for_each(|_| hint.looked(7, 13));
        assert_eq!(walk(&hint, 7, 14, None), 1);
    }

    #[test]
    fn who_looks_no_more_is_noticed() {
        let hint = ReaddirplusHint::default();
        walk(&hint, 7, 12, Some(1));
        let all: u32 = (0..TERM)
            .map(|dir| walk(&hint, 7, 100 + dir, None) as u32 - 1)
            .sum();
        assert!((TERM..TERM + 3).contains(&all), "{all}");
        assert_eq!(walk(&hint, 7, 13, None), 1);
    }

    #[test]
    fn directories_of_one_answer_say_nothing() {
        let hint = ReaddirplusHint::default();
        walk(&hint, 7, 12, Some(1));
        for dir in 0..2 * TERM {
            assert!(hint.look(7, 100 + dir, 0));
            hint.look(7, 100 + dir, 10);
            hint.listed(7, 0, true);
        }
        assert_eq!(walk(&hint, 7, 13, Some(1)), 4);
    }

    #[test]
    fn who_lists_within_a_directory_before_it_has_looked_at_all_of_it_walks_too() {
        let hint = ReaddirplusHint::default();
        hint.look(7, 12, 0);
        hint.listed(7, 300, false);
        hint.looked(7, 12);
        // First a directory within it, whose names are looked up; then the others of the first.
        assert_eq!(walk(&hint, 7, 13, Some(1)), 1);
        (0..200).for_each(|_| hint.looked(7, 12));
        assert_eq!(walk(&hint, 7, 14, Some(1)), 4);
    }
}
