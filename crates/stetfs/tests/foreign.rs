//! The oracle of foreign journals: what the kernel or debugfs left in a journal is recovered by StetFS, by the kernel and by
//! e2fsck. The same tree comes out, or a refusal that changes nothing.
//!
//! `STETFS_FOREIGN_SECS` says how long to look (seconds, 15 by default; `./test --foreign SECONDS`), `STETFS_SEED` where
//! to begin. A failure prints the seed that repeats it.
//!
//! Needs root, loop devices and e2fsprogs.

#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "the test program is the whole crate")]

mod common;
mod foreign {
    pub mod debugfs;
    pub mod judge;
    pub mod kernel;
    pub mod memory;

    /// Whether kernel mounts with `fast_commit` are among the makers.
    pub fn fast_commits() -> bool {
        const REPLAYED: bool = false;
        REPLAYED || crate::common::number("STETFS_FOREIGN_FAST_COMMIT").is_some_and(|n| n > 0)
    }
}

use foreign::judge::{Dirty, alike};
use foreign::{debugfs, kernel};

/// All of them must come out alike.
fn all_alike(journals: impl Iterator<Item = (Dirty, u64)>) {
    let mut failures = Vec::new();
    let mut seen = 0;
    for (dirty, least) in journals {
        seen += 1;
        if let Err(why) = alike(&dirty, least) {
            failures.push(format!("{}:\n{why}", dirty.what));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {seen}:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

#[test]
fn what_debugfs_wrote_is_replayed_alike() {
    all_alike(debugfs::Maker::all().into_iter().map(|maker| {
        let counts = [3, 5, maker.full() + 1];
        (maker.make(&counts, true, 1), 3)
    }));
}

#[test]
fn what_the_kernel_left_is_replayed_alike() {
    all_alike(kernel::makers().iter().map(|maker| (maker.make(1), 1)));
}
