//! Power cuts at every point: synced changes are there, and nothing is there that never existed.
//!
//! A failure prints how to repeat it alone: `STETFS_PRESET`, `STETFS_BLOCK` (bytes), `STETFS_SEED`,
//! `STETFS_CUT` (writes, or events of a recording) and `STETFS_TORN` (the variant that decides
//! which unflushed sectors arrived). `STETFS_LONG=1` tries far more of everything;
//! `STETFS_KEEP=DIR` keeps the image of a failure.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{long, number, watchdog};
use stetfs::low::{FsOptions, MemDevice, Preset, preset};
use stetfs_block::{Event, Log, PendingSector, Replay};
use stetfs_crash::judge::{Checks, record_recovery};
use stetfs_crash::machine::Crashed;
use stetfs_crash::volume::{base, base_with, options};
use stetfs_crash::work::{Progresses, Work};
use stetfs_crash::workload::{Op, Script};

const BLOCKS: [u32; 2] = [1024, 4096];

/// Time limit of a case, far above the usual time.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A crash.
#[derive(Clone, Copy, Debug)]
struct Case {
    preset: Preset,
    block: u32,
    seed: u64,
    cut: u64,
    torn: Option<u64>,
}

impl Case {
    fn new(preset: Preset, block: u32, seed: u64) -> Case {
        Case {
            preset,
            block,
            seed,
            cut: 0,
            torn: None,
        }
    }

    /// Whether the environment selects this case, or none.
    fn wanted(&self) -> bool {
        let preset = std::env::var("STETFS_PRESET").ok();
        preset.is_none_or(|p| p == self.preset.name())
            && number("STETFS_BLOCK").is_none_or(|b| b == u64::from(self.block))
            && number("STETFS_SEED").is_none_or(|s| s == self.seed)
    }

    /// Fails unless `result` is good.
    fn expect<T>(&self, test: &str, crashed: &MemDevice, result: Result<T, String>) -> T {
        result.unwrap_or_else(|why| {
            if let Some(dir) = std::env::var_os("STETFS_KEEP") {
                let name = format!("{test}-{}-{}-{}-{}.img", self.preset, self.block, self.seed, self.cut);
                crashed.save(std::path::Path::new(&dir).join(name)).unwrap();
            }
            let torn = self.torn.map_or(String::new(), |t| format!(" STETFS_TORN={t}"));
            panic!(
                "{why}\nrepeat with: STETFS_PRESET={} STETFS_BLOCK={} STETFS_SEED={} STETFS_CUT={}{torn} \
                 cargo test -p stetfs --test reentrant {test}",
                self.preset, self.block, self.seed, self.cut
            )
        })
    }
}

fn work(case: Case, scripts: Vec<Script>) -> Work {
    Work {
        base: base(case.block).unwrap(),
        region: None,
        options: options(case.preset),
        before: vec![0; scripts.len()],
        scripts,
        promise: Default::default(),
        rest: Default::default(),
    }
}

fn check(
    work: &Work,
    crashed: &MemDevice,
    progress: &Progresses,
    thorough: bool,
) -> Result<(), String> {
    let checks = if thorough {
        Checks::OURS
    } else {
        Checks::default()
    };
    work.check(&Crashed::of(crashed.fork()), progress, checks)
        .map_err(|e| e.to_string())
}

/// Every kind of operation, each before and after syncs.
fn every_operation(block: u32, preset: Preset) -> Script {
    let p = |s: &str| s.to_owned();
    let write = |path: &str, offset: u64, len: usize, key: u64| Op::Write {
        path: path.into(),
        offset,
        len,
        key,
    };
    let fsync = |path: &str| Op::Fsync { path: path.into() };
    let create = |path: &str| Op::Create {
        path: path.into(),
        mode: 0o644,
    };
    let rename = |from: &str, to: &str| Op::Rename {
        from: from.into(),
        to: to.into(),
    };
    let long = format!("d/{}", "long".repeat(60));
    let ops = vec![
        create("a"),
        write("a", 0, 9000, 1),
        fsync("a"),
        write("a", 9000, 700, 2),
        write("a", 2000, 3000, 3),
        Op::Fdatasync { path: p("a") },
        Op::Mkdir {
            path: p("d"),
            mode: 0o755,
        },
        create("d/b"),
        write("d/b", 5000, 100, 4),
        create(&long),
        fsync("d"),
        Op::Truncate {
            path: p("a"),
            size: 3333,
        },
        Op::Link {
            from: p("a"),
            to: p("d/a2"),
        },
        Op::Symlink {
            path: p("s"),
            target: p("d/b"),
        },
        Op::Symlink {
            path: p("slow"),
            target: "x/".repeat(100),
        },
        Op::SetXattr {
            path: p("a"),
            name: p("user.small"),
            key: 5,
            len: 20,
        },
        Op::SetXattr {
            path: p("d/b"),
            name: p("user.large"),
            key: 6,
            len: 700,
        },
        fsync("d/b"),
        create("tmp"),
        write("tmp", 0, 6000, 7),
        fsync("tmp"),
        rename("tmp", "a"),
        fsync(""),
        Op::Exchange {
            a: p("a"),
            b: p("d/b"),
        },
        Op::Chmod {
            path: p("a"),
            mode: 0o600,
        },
        Op::Chown {
            path: p("a"),
            uid: 1000,
            gid: 70_000,
        },
        fsync("a"),
        Op::Allocate {
            path: p("d/b"),
            offset: 8000,
            len: 20_000,
            keep: false,
        },
        write("d/b", 12_000, 5000, 8),
        Op::Punch {
            path: p("d/b"),
            offset: 1000,
            len: 4000,
        },
        Op::Fdatasync { path: p("d/b") },
        Op::Zero {
            path: p("d/b"),
            offset: 11_000,
            len: 7000,
            keep: false,
        },
        Op::RemoveXattr {
            path: p("a"),
            name: p("user.large"),
        },
        rename("d", "e"),
        Op::Unlink {
            path: format!("e{}", &long[1..]),
        },
        Op::SyncAll,
        Op::HoldUnlink {
            path: p("e/b"),
            held: 1,
        },
        Op::Unlink { path: p("e/a2") },
        Op::Rmdir { path: p("e") },
        write("a", 0, 700, 9),
        fsync("a"),
        Op::Truncate {
            path: p("a"),
            size: 0,
        },
        write("a", 0, 500, 10),
        Op::Unlink { path: p("slow") },
        fsync(""),
    ];
    Script::of(ops, block.into(), preset.data_mode())
}

/// Cuts the power after 0, 1, 2 … writes, in steps of `step`, until the work completes without a
/// cut. Returns the number of cuts.
fn cut_everywhere(test: &str, mut case: Case, work: &Work, step: u64, thorough: u64) -> u64 {
    let mut tried = 0;
    case.cut = number("STETFS_CUT").unwrap_or(0);
    loop {
        let _watched = watchdog::watch(format!("{case:?}"), TIMEOUT);
        let (crashed, progress, finished) = work.cut_after(case.cut).unwrap();
        let checked = check(work, &crashed, &progress, tried % thorough == 0 || long());
        case.expect(test, &crashed, checked);
        tried += 1;
        if finished || number("STETFS_CUT").is_some() {
            return tried;
        }
        case.cut += step;
    }
}

fn power_cut_after_every_write(preset: Preset) {
    for block in BLOCKS {
        let case = Case::new(preset, block, 0);
        if !case.wanted() {
            continue;
        }
        let cuts = cut_everywhere(
            "power_cut",
            case,
            &work(case, vec![every_operation(block, preset)]),
            1,
            10,
        );
        println!("{preset}, blocks of {block} bytes: {cuts} cuts");
        assert!(
            cuts > 20 || number("STETFS_CUT").is_some(),
            "the workload hardly writes"
        );
    }
}

fn power_cut_in_long_work(preset: Preset) {
    let seeds = if long() { 1..=40 } else { 1..=2 };
    for (block, seed) in BLOCKS
        .into_iter()
        .flat_map(|b| seeds.clone().map(move |s| (b, s)))
    {
        let case = Case::new(preset, block, seed);
        if !case.wanted() {
            continue;
        }
        // Enough to go round the log more than once.
        let script = Script::random(seed, 1500, block.into(), preset.data_mode());
        let step = if long() { 3 } else { 29 };
        let cuts = cut_everywhere("power_cut", case, &work(case, vec![script]), step, 5);
        println!("{preset}, blocks of {block} bytes, seed {seed}: {cuts} cuts");
    }
}

/// Decides which of the sectors that are uncertain at `cut` arrive, in variant `torn`.
fn arrivals(cut: usize, torn: u64) -> impl FnMut(&PendingSector) -> bool {
    let mut rng = fastrand::Rng::with_seed(torn << 32 | cut as u64);
    let salt = rng.u64(..);
    let of = move |id: u64| {
        fastrand::Rng::with_seed(salt ^ id.wrapping_mul(0x9E37_79B9_7F4A_7C15)).u8(..)
    };
    move |sector| match torn % 6 {
        0 => false,
        1 => true,
        // Whole writes: half of them, or most of them.
        2 => of(sector.id) < 128,
        3 => of(sector.id) < 230,
        // Single sectors: half of them, or nearly all.
        4 => rng.bool(),
        _ => rng.u8(..) > 12,
    }
}

/// Points of a recording to crash at: after acknowledged operations, before flushes are done, and
/// anywhere.
fn crash_points(log: &Log, count: usize, seed: u64) -> Vec<usize> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let flushes: BTreeSet<u64> = log
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Flush { id } | Event::Write { id, fua: true, .. } => Some(*id),
            _ => None,
        })
        .collect();
    let flushed = |e: &Event| matches!(e, Event::Done { id, .. } if flushes.contains(id));
    let acked = |e: &Event| matches!(e, Event::Mark { label, .. } if label == "acked");
    let (mut promised, mut uncertain) = (Vec::new(), Vec::new());
    for (i, pair) in log.events.windows(2).enumerate() {
        if flushed(&pair[0]) && acked(&pair[1]) {
            promised.push(i + 2);
        }
        if flushed(&pair[1]) {
            uncertain.push(i + 1);
        }
    }
    let mut points = rng.choose_multiple(promised, count / 3);
    points.extend(rng.choose_multiple(uncertain, count / 3));
    while points.len() < count {
        points.push(rng.usize(1..=log.len()));
    }
    points.sort_unstable();
    points
}

/// Tries crashes of a recording with torn and lost writes; `found` gets each result.
fn tear(
    case: Case,
    work: &Work,
    points: usize,
    mut found: impl FnMut(Case, &MemDevice, Result<(), String>),
) {
    let (log, _) = work.record(None).unwrap();
    let mut replay = Replay::new(&work.base.image, &log);
    let points = match number("STETFS_CUT") {
        Some(cut) => vec![cut as usize],
        None => crash_points(&log, points, case.seed),
    };
    for (i, point) in points.into_iter().enumerate() {
        replay.advance_to(point);
        let progress: Progresses = work.progress_at(&log, point);
        let variants = match number("STETFS_TORN") {
            Some(torn) => vec![torn],
            None => (0..3).map(|v| i as u64 * 3 + v).collect(),
        };
        for torn in variants {
            let case = Case {
                cut: point as u64,
                torn: Some(torn),
                ..case
            };
            let _watched = watchdog::watch(format!("{case:?}"), TIMEOUT);
            let crashed = replay.crash(arrivals(point, torn));
            let thorough = torn % 20 == 0 || long();
            found(case, &crashed, check(work, &crashed, &progress, thorough));
        }
    }
}

fn torn_writes(preset: Preset, threads: u64, async_commit: bool, test: &str) {
    let seeds = if long() { 1..=100 } else { 1..=2 };
    for (block, seed) in BLOCKS
        .into_iter()
        .flat_map(|b| seeds.clone().map(move |s| (b, s)))
    {
        let case = Case::new(preset, block, seed);
        if !case.wanted() {
            continue;
        }
        let len = 300 / threads as usize;
        let scripts = (0..threads)
            .map(|t| Script::random(seed * 16 + t, len, block.into(), preset.data_mode()))
            .collect();
        let mut work = work(case, scripts);
        work.options.async_commit = async_commit;
        let mut crashes = 0;
        tear(
            case,
            &work,
            if long() { 200 } else { 30 },
            |case, crashed, result| {
                crashes += 1;
                case.expect(test, crashed, result);
            },
        );
        println!(
            "{preset}, blocks of {block} bytes, {threads} threads, seed {seed}: {crashes} crashes"
        );
    }
}

/// Crashes inside recoveries of volumes with a journal and orphans to process.
fn recovery_cut(preset: Preset) {
    for block in BLOCKS {
        let mut case = Case::new(preset, block, 3);
        if !case.wanted() {
            continue;
        }
        let mut ops = Script::random(3, 60, block.into(), preset.data_mode()).ops;
        let tail = [("o1", 101), ("o2", 102)]
            .into_iter()
            .flat_map(|(name, held)| {
                let path = name.to_owned();
                [
                    Op::Create {
                        path: path.clone(),
                        mode: 0o600,
                    },
                    Op::Write {
                        path: path.clone(),
                        offset: 0,
                        len: 30_000,
                        key: 77,
                    },
                    Op::HoldUnlink { path, held },
                    Op::SyncAll,
                ]
            });
        ops.extend(tail);
        let work = work(
            case,
            vec![Script::of(ops, block.into(), preset.data_mode())],
        );
        let (log, _) = work.record(None).unwrap();
        let mut replay = Replay::new(&work.base.image, &log);
        let done = 1 + log
            .events
            .iter()
            .rposition(|e| matches!(e, Event::Mark { .. }))
            .unwrap_or(0);
        let points = if long() {
            crash_points(&log, 40, 3)
        } else {
            vec![done / 2, done]
        };
        for point in points {
            case.cut = point as u64;
            let _watched = watchdog::watch(format!("recovery of {case:?}"), 4 * TIMEOUT);
            replay.advance_to(point);
            let crashed = replay.only_durable();
            let progress = work.progress_at(&log, point);
            let result = work
                .check_cut_recovery(&Crashed::of(crashed.fork()), &progress)
                .map_err(|e| e.to_string());
            let cuts = case.expect("recovery_cut", &crashed, result);
            let result = torn_recovery(&work, &crashed, &progress);
            let torn = case.expect("recovery_cut", &crashed, result);
            println!("{preset}, blocks of {block} bytes, event {point}: {cuts:?}, {torn} torn");
            assert!(cuts.first > 4 || long(), "hardly anything to recover");
        }
    }
}

/// Crashes with torn writes at every event of a recovery: the next recovery has the same result.
fn torn_recovery(work: &Work, crashed: &MemDevice, progress: &Progresses) -> Result<u64, String> {
    let recovery = record_recovery(&Crashed::of(crashed.fork()), &work.options);
    let (log, _) = recovery.map_err(|e| e.to_string())?;
    let mut replay = Replay::new(crashed, &log);
    let mut tried = 0;
    for point in 0..=log.len() {
        replay.advance_to(point);
        for torn in [0, 3, 4, 5] {
            let again = replay.crash(arrivals(point, torn));
            check(work, &again, progress, long()).map_err(|e| {
                format!(
                    "a recovery torn at event {point} of {}, variant {torn}: {e}",
                    log.len()
                )
            })?;
            tried += 1;
        }
    }
    Ok(tried)
}

/// One write call of 1 MiB is one transaction if the journal is not tiny: it is whole or absent.
#[test]
fn large_writes_are_whole_or_absent() {
    large_writes("data");
}

/// Also in lanes that are too small for it: one of them is large enough.
#[test]
fn large_writes_are_whole_or_absent_in_many_lanes() {
    large_writes("zjournal,data=journal,lanes=8");
}

fn large_writes(journal: &str) {
    let preset = preset::DATA;
    let case = Case::new(preset, 4096, 0);
    let path = || String::from("large");
    let write = |offset, key| Op::Write {
        path: path(),
        offset,
        len: 1 << 20,
        key,
    };
    let ops = [
        Op::Create {
            path: path(),
            mode: 0o644,
        },
        write(0, 1),
        Op::Fsync { path: path() },
        write(0, 2),
        write(1 << 20, 3),
        write(700_001, 4),
        Op::SyncAll,
        Op::Truncate {
            path: path(),
            size: 1000,
        },
        write(5, 5),
        Op::SyncAll,
    ];
    let mut work = work(case, vec![Script::of(ops, 4096, preset.data_mode())]);
    work.base = base_with(4096, 4096).unwrap();
    work.options.journal = journal.parse().unwrap();
    cut_everywhere("large_writes", case, &work, 1, 10);
    tear(
        case,
        &work,
        if long() { 200 } else { 20 },
        |case, crashed, result| {
            case.expect("large_writes", crashed, result);
        },
    );
}

macro_rules! for_each_preset {
    ($($name:ident: $preset:expr;)*) => {$(
        mod $name {
            use super::*;

            const PRESET: Preset = $preset;

            #[test]
            fn power_cut_after_every_write() {
                super::power_cut_after_every_write(PRESET);
            }

            #[test]
            fn power_cut_in_long_work() {
                super::power_cut_in_long_work(PRESET);
            }

            #[test]
            fn torn_writes() {
                super::torn_writes(PRESET, 1, false, "torn_writes");
            }

            #[test]
            fn parallel_torn_writes() {
                super::torn_writes(PRESET, 3, false, "parallel_torn_writes");
            }

            #[test]
            fn async_commit_torn_writes() {
                super::torn_writes(PRESET, 1, true, "async_commit_torn_writes");
            }

            #[test]
            fn recovery_cut() {
                super::recovery_cut(PRESET);
            }
        }
    )*};
}

for_each_preset! {
    ordered: preset::ORDERED;
    data: preset::DATA;
    writeback: preset::WRITEBACK;
    ldj: preset::LDJ;
}

/// The suite must find the deliberate fault that `work` contains. Failures that also appear without
/// the fault do not count, if it is a fault of reading.
fn canary(name: &str, work: &Work, case: Case, points: usize) {
    let silent = Work {
        options: FsOptions {
            canary: Default::default(),
            ..work.options.clone()
        },
        base: work.base.clone(),
        region: None,
        scripts: Vec::new(),
        before: Vec::new(),
        promise: work.promise,
        rest: Default::default(),
    };
    let mut caught = Vec::new();
    let mut crashes = 0;
    tear(case, work, points, |case, crashed, result| {
        crashes += 1;
        if let Err(why) = result
            && (work.options.canary.no_barrier || silent.opens(&Crashed::of(crashed.fork())))
        {
            caught.push((case, why));
        }
    });
    let Some((case, why)) = caught.first() else {
        panic!("the canary {name} survives {crashes} crashes");
    };
    println!(
        "{name}: {} of {crashes} crashes show it, e.g. {case:?}: {why}",
        caught.len()
    );
}

#[test]
fn canary_no_barrier_is_caught() {
    for preset in Preset::on_a_device() {
        let case = Case::new(preset, 1024, 5);
        let mut work = work(case, vec![Script::random(5, 100, 1024, preset.data_mode())]);
        work.options.canary.no_barrier = true;
        canary("no_barrier", &work, case, 20);
    }
}

/// With `async_commit` only the checksums detect a torn transaction.
#[test]
fn canary_skip_checksums_is_caught() {
    for preset in Preset::on_a_device() {
        let case = Case::new(preset, 1024, 6);
        let mut work = work(case, vec![Script::random(6, 100, 1024, preset.data_mode())]);
        work.options.async_commit = true;
        work.options.canary.skip_checksums = true;
        canary("skip_checksums", &work, case, 120);
    }
}

/// Directory blocks that are journaled, freed, and reused for data: a replay without the revoke
/// records overwrites the data with them.
fn reuse(block: u32, preset: Preset) -> Script {
    let mut ops = Vec::new();
    let dir = |d: u64| format!("d{d}");
    for d in 0..4 {
        ops.push(Op::Mkdir {
            path: dir(d),
            mode: 0o755,
        });
        for i in 0..30 {
            ops.push(Op::Create {
                path: format!("{}/{i:03}{}", dir(d), "x".repeat(150)),
                mode: 0o644,
            });
        }
    }
    ops.push(Op::SyncAll);
    for d in 0..4 {
        for i in 0..30 {
            ops.push(Op::Unlink {
                path: format!("{}/{i:03}{}", dir(d), "x".repeat(150)),
            });
        }
        ops.push(Op::Rmdir { path: dir(d) });
    }
    ops.push(Op::SyncAll);
    for f in 0..60 {
        let path = format!("f{f}");
        ops.push(Op::Create {
            path: path.clone(),
            mode: 0o644,
        });
        ops.push(Op::Write {
            path: path.clone(),
            offset: 0,
            len: 100_000,
            key: f,
        });
        if f % 4 == 3 {
            ops.push(Op::SyncAll);
        }
    }
    Script::of(ops, block.into(), preset.data_mode())
}

#[test]
fn canary_ignore_revokes_is_caught() {
    for preset in [preset::ORDERED, preset::WRITEBACK] {
        let case = Case::new(preset, 1024, 7);
        let mut work = work(case, vec![reuse(1024, preset)]);
        // The work succeeds without the canary.
        tear(case, &work, 10, |case, crashed, result| {
            case.expect("canary_ignore_revokes", crashed, result)
        });
        work.options.canary.ignore_revokes = true;
        canary("ignore_revokes", &work, case, 20);
    }
}
