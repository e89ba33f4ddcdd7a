//! Who looks at what it lists.
//!
//! A listing can bring the attributes of what it names, which spares a LOOKUP for each. They cost
//! an inode each here and in the kernel, so they are for those who look: `find`, `ls -l`, `rm -r`.
//! These read a directory to its end before they look at the first entry, when it is too late for
//! it (the kernel's own rule, `FUSE_READDIRPLUS_AUTO`, looks at the directory that is read). So
//! what a thread did with one directory decides about its next (decisions/0037).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use stetfs::low::Ino;

/// Threads that are known at a time.
const SLOTS: usize = 64;
/// Directories of a thread whose lookups count: it may list others before it is done with one.
const DIRS: usize = 4;
/// Names that have to be listed without attributes before it counts who looked at them.
const FEW: u32 = 16;
/// Of more than so many the half is forgotten.
const MANY: u32 = 4096;
/// After so many answers with attributes names come without, to see whether they are missed.
const TERM: u32 = 128;

/// What a thread did last. A wrong number costs requests and nothing else, so threads that meet in
/// one slot do not wait for each other.
#[derive(Default)]
struct Slot {
    pid: AtomicU32,
    dirs: [AtomicU64; DIRS],
    /// Names listed without attributes, and how many of them were looked up.
    listed: AtomicU32,
    looked: AtomicU32,
    /// It looks at what it lists, …
    walks: AtomicBool,
    /// … and has had so many answers with attributes since that was seen.
    answers: AtomicU32,
}

/// All threads that list directories.
pub(crate) struct Walkers([Slot; SLOTS]);

impl Default for Walkers {
    fn default() -> Walkers {
        Walkers(std::array::from_fn(|_| Slot::default()))
    }
}

impl Walkers {
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
            // The first names always have them: many directories have no more.
            return true;
        }
        slot.walks.load(Relaxed) && slot.answers.load(Relaxed) < TERM
    }

    /// `n` names behind the first answer's were listed, with attributes or without.
    pub(crate) fn listed(&self, pid: u32, n: u32, attributes: bool) {
        let slot = self.slot(pid);
        match attributes {
            true => slot.answers.fetch_add(n.min(1), Relaxed),
            false => slot.listed.fetch_add(n, Relaxed),
        };
    }

    /// A name of `dir` was looked up.
    pub(crate) fn looked(&self, pid: u32, dir: Ino) {
        let slot = self.slot(pid);
        let is_it = |known: &AtomicU64| known.load(Relaxed) == u64::from(dir);
        if slot.pid.load(Relaxed) == pid && slot.dirs.iter().any(is_it) {
            slot.looked.fetch_add(1, Relaxed);
        }
    }
}

impl Slot {
    /// A directory is listed: what was seen of those before it decides.
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

    /// Nothing was seen yet.
    fn forget(&self) {
        self.listed.store(0, Relaxed);
        self.looked.store(0, Relaxed);
        self.answers.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists a directory of 400 names in four answers, and then looks up `each`th: the answers with
    /// attributes.
    fn walk(walkers: &Walkers, pid: u32, dir: Ino, each: Option<usize>) -> usize {
        let answers: Vec<bool> = (0..4)
            .map(|i| {
                let attrs = walkers.look(pid, dir, i * 100);
                if i > 0 {
                    walkers.listed(pid, 100, attrs);
                }
                attrs
            })
            .collect();
        let without = 100 * answers.iter().filter(|attrs| !**attrs).count();
        let looked = each.map_or(0, |each| without / each);
        (0..looked).for_each(|_| walkers.looked(pid, dir));
        4 - without / 100
    }

    #[test]
    fn who_looked_at_the_last_directory_gets_attributes_of_the_next() {
        let walkers = Walkers::default();
        assert_eq!(walk(&walkers, 7, 12, Some(1)), 1);
        assert_eq!(walk(&walkers, 7, 13, Some(1)), 4);
        assert_eq!(walk(&walkers, 7, 14, Some(1)), 4);
        // Another thread, also one of the same slot, is not meant.
        assert_eq!(walk(&walkers, 8, 15, None), 1);
        assert_eq!(walk(&walkers, 8, 16, None), 1);
        assert_eq!(walk(&walkers, 7 + SLOTS as u32, 17, None), 1);
        assert_eq!(walk(&walkers, 7, 18, Some(1)), 1);
    }

    #[test]
    fn who_looks_at_few_gets_names_alone() {
        let walkers = Walkers::default();
        for dir in 12..100 {
            assert_eq!(walk(&walkers, 7, dir, Some(10)), 1, "{dir}");
        }
        // Names of other directories are none of these.
        walkers.look(7, 12, 0);
        walkers.listed(7, 100, false);
        (0..100).for_each(|_| walkers.looked(7, 13));
        assert_eq!(walk(&walkers, 7, 14, None), 1);
    }

    #[test]
    fn who_looks_no_more_is_noticed() {
        let walkers = Walkers::default();
        walk(&walkers, 7, 12, Some(1));
        let all: u32 = (0..TERM)
            .map(|dir| walk(&walkers, 7, 100 + dir, None) as u32 - 1)
            .sum();
        assert!((TERM..TERM + 3).contains(&all), "{all}");
        assert_eq!(walk(&walkers, 7, 13, None), 1);
    }

    #[test]
    fn directories_of_one_answer_say_nothing() {
        let walkers = Walkers::default();
        walk(&walkers, 7, 12, Some(1));
        for dir in 0..2 * TERM {
            assert!(walkers.look(7, 100 + dir, 0));
            walkers.look(7, 100 + dir, 10);
            walkers.listed(7, 0, true);
        }
        assert_eq!(walk(&walkers, 7, 13, Some(1)), 4);
    }

    #[test]
    fn who_lists_within_a_directory_before_it_has_looked_at_all_of_it_walks_too() {
        let walkers = Walkers::default();
        walkers.look(7, 12, 0);
        walkers.listed(7, 300, false);
        walkers.looked(7, 12);
        // One within it, whose names are looked at; then the others of the first.
        assert_eq!(walk(&walkers, 7, 13, Some(1)), 1);
        (0..200).for_each(|_| walkers.looked(7, 12));
        assert_eq!(walk(&walkers, 7, 14, Some(1)), 4);
    }
}
