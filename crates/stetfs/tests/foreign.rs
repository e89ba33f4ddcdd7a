//! The oracle of foreign journals: StetFS, the kernel and e2fsck recover journals that the kernel
//! or debugfs left. All must produce the same tree, or StetFS refuses and changes nothing.
//!
//! `STETFS_FOREIGN_SECS` sets the time (seconds, 15 by default; `./test --foreign SECONDS`),
//! `STETFS_SEED` the first seed. A failure prints the seed that repeats it.
//!
//! Needs root, loop devices and e2fsprogs.

mod debugfs;
mod judge;
mod kernel;
mod log;
mod memory;
mod mutate;
mod ours;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use self::judge::{Dirty, Verdict, alike};
use self::log::Log;
use self::mutate::mutate;
use crate::common::number;
use fastrand::Rng;

/// Checks that all recoveries of each journal agree, with at least the given number of
/// transactions.
fn all_alike(journals: impl Iterator<Item = (Dirty, u64)>) {
    none_fails(journals.map(|(dirty, least)| {
        let said = alike(&dirty, least);
        (dirty, said)
    }));
}

fn none_fails(judged: impl Iterator<Item = (Dirty, Result<(), String>)>) {
    let mut failures = Vec::new();
    let mut seen = 0;
    for (dirty, said) in judged {
        seen += 1;
        if let Err(why) = said {
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
    let makers = kernel::makers();
    let plain = makers.iter().filter(|maker| !maker.fast_commits());
    all_alike(plain.map(|maker| (maker.make(1), 1)));
}

#[test]
fn fast_commits_are_replayed_as_by_the_kernel() {
    let makers = kernel::makers();
    let fast = makers.iter().filter(|maker| maker.fast_commits());
    none_fails(fast.map(|maker| {
        let dirty = maker.make(1);
        let said = judge::alike_fast(&dirty);
        (dirty, said)
    }));
}

#[test]
fn what_stetfs_wrote_into_logs_of_others_is_replayed_alike() {
    let journals = ours::MAKERS.iter().map(|maker| (maker.make(1), 2));
    all_alike(journals);
}

/// Number of cases that share a journal, or a recording.
const EACH: u64 = 6;

/// The base of cases.
enum Base {
    Journal(Box<Dirty>),
    Recording(Box<kernel::Recording>),
}

impl Base {
    fn new(number: u64) -> Base {
        let mut rng = Rng::with_seed(number);
        match rng.u8(0..4) {
            0 => Base::Recording(Box::new(kernel::Recording::new(number))),
            1 => {
                let mut makers = kernel::makers();
                makers.retain(|maker| !maker.fast_commits());
                Base::Journal(Box::new(makers[rng.usize(..makers.len())].make(number)))
            }
            _ => {
                let maker = debugfs::Maker::random(&mut rng);
                let mut counts: Vec<usize> =
                    (0..rng.usize(1..5)).map(|_| rng.usize(1..20)).collect();
                // After a transaction of several descriptors debugfs leaves a gap before the next
                // one.
                counts.push(maker.full() + rng.usize(0..3));
                Base::Journal(Box::new(maker.make(&counts, rng.bool(), number)))
            }
        }
    }

    /// A case.
    fn case(&self, seed: u64) -> (Dirty, Result<Verdict, String>) {
        let mut rng = Rng::with_seed(seed);
        match self {
            Base::Recording(recording) => {
                let dirty = recording.cut(&mut rng);
                let verdict = judge::cut(&dirty);
                (dirty, verdict)
            }
            Base::Journal(base) => changed(base.fork(), &mut rng),
        }
    }
}

/// Rotates the journal in its ring, which changes nothing; or damages it.
fn changed(mut dirty: Dirty, rng: &mut Rng) -> (Dirty, Result<Verdict, String>) {
    let Some(mut log) = Log::find(&dirty) else {
        let verdict = alike(&dirty, 0).map(|()| Verdict::Alike);
        return (dirty, verdict);
    };
    if rng.u8(0..3) > 0 {
        let by = log.rotate(&dirty, rng);
        dirty.what += &format!(", moved by {by} blocks");
    }
    if rng.u8(0..5) == 0 {
        let verdict = alike(&dirty, 1).map(|()| Verdict::Alike);
        return (dirty, verdict);
    }
    for _ in 0..1 + rng.u8(0..8) / 6 {
        let done = mutate(&mut log, &dirty, rng);
        dirty.what += &format!(", {done}");
    }
    let verdict = judge::damaged(&dirty);
    (dirty, verdict)
}

#[test]
fn what_was_done_to_a_journal_is_judged_alike() {
    let seconds = number("STETFS_FOREIGN_SECS").unwrap_or(12);
    let end = Instant::now() + Duration::from_secs(seconds);
    let first = number("STETFS_SEED").unwrap_or(1);
    let mut verdicts: BTreeMap<String, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let mut made: Option<(u64, Base)> = None;
    for seed in first.. {
        let from = seed / EACH;
        if made.as_ref().is_none_or(|(nr, _)| *nr != from) {
            made = Some((from, Base::new(from)));
        }
        let (_, base) = made.as_ref().unwrap();
        let (dirty, verdict) = base.case(seed);
        match verdict {
            Ok(verdict) => *verdicts.entry(verdict.to_string()).or_default() += 1,
            Err(why) => {
                let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("foreign-{seed}"));
                dirty.volume.save(&kept).unwrap();
                failures.push(format!(
                    "{}:\n{why}\nThe volume is kept as {}. Repeat with: STETFS_SEED={seed} STETFS_FOREIGN_SECS=0 \
                     cargo test -p stetfs --test foreign done_to",
                    dirty.what,
                    kept.display()
                ));
            }
        }
        if Instant::now() >= end || failures.len() >= 10 {
            break;
        }
    }
    for (verdict, count) in &verdicts {
        println!("{count:6} {verdict}");
    }
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        failures.len() as u64 + verdicts.values().sum::<u64>(),
        failures.join("\n\n")
    );
}
