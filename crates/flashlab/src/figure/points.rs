//! The points of a matrix of traces, policies and cache sizes; each is saved in a file as soon as
//! it is computed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use stetfs_cache::PolicyKind;

use super::card::{Runner, Target};
use super::parallel::parallel;
use super::scale::Scale;
use crate::command::bar;
use crate::device::Device;
use crate::generate::Workload;
use crate::run::{Outcome, run_cut, steady};
use crate::saved::Saved;
use crate::trace::Trace;

/// The source of a trace.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Made(Workload),
    /// A recorded trace with the name of its file; the same for all seeds.
    Recorded(String, Arc<Trace>),
}

impl Source {
    pub(super) fn made(workloads: &[Workload]) -> Vec<Source> {
        workloads.iter().copied().map(Source::Made).collect()
    }

    /// The traces in a directory, named by their files with the extension. So saved points of
    /// `mail.trace` are not taken for those of the generated `mail`.
    ///
    /// # Errors
    /// The directory cannot be read, or a file is no trace.
    pub(super) fn recorded(dir: &Path) -> Result<Vec<Source>> {
        let told = || dir.display().to_string();
        let entries = std::fs::read_dir(dir).with_context(told)?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.with_context(told)?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|e| e == "trace"));
        paths.sort();
        let load = |path: &PathBuf| {
            let trace = Trace::load(path, None).with_context(|| path.display().to_string())?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok(Source::Recorded(name.into_owned(), Arc::new(trace)))
        };
        paths.iter().map(load).collect()
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        match self {
            Source::Made(workload) => workload.name(),
            Source::Recorded(name, _) => name,
        }
    }

    /// The part of the paper's length to run.
    fn part(&self, quick: bool) -> f64 {
        match self {
            Source::Made(workload) if quick => part(*workload),
            _ => 1.0,
        }
    }

    fn trace(&self, seed: u64, part: f64) -> Arc<Trace> {
        match self {
            Source::Made(workload) => Arc::new(workload.generate(seed, part)),
            Source::Recorded(_, trace) => Arc::clone(trace),
        }
    }
}

/// The conditions of a comparison: trace, cache and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The device, and its layer if it is not the usual one.
    card: String,
    pub(super) workload: String,
    pub(super) seed: u64,
    /// The length of the whole trace, in thousandths of the paper's length.
    part: u64,
    /// Whether the device was brought into a steady state first.
    steady: bool,
    /// The part of the trace that was run, in thousandths.
    pub(super) cut: u64,
    /// Size of the cache in MiB.
    pub(super) cache: u64,
}

impl Place {
    /// Whether the trace was run to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.cut == WHOLE
    }
}

/// The result of a policy at a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    #[serde(flatten)]
    pub(super) place: Place,
    /// The name of the policy, or of a runner of it.
    pub(super) policy: String,
    pub(super) hit_ratio: f64,
    /// Pages read and written.
    pub(super) read: u64,
    pub(super) written: u64,
    /// Simulated time in seconds.
    pub(super) elapsed: f64,
    pub(super) erases: u64,
}

impl Point {
    fn new(place: Place, runner: Runner, outcome: &Outcome) -> Point {
        Point {
            place,
            policy: runner.name(),
            hit_ratio: outcome.hit_ratio,
            read: outcome.cache.reads,
            written: outcome.cache.writes,
            elapsed: outcome.device.elapsed as f64 / 1e9,
            erases: outcome.device.flash.erases,
        }
    }
}

/// A whole trace, in thousandths.
const WHOLE: u64 = 1000;

fn thousandths(part: f64) -> u64 {
    (part.clamp(0.0, 1.0) * WHOLE as f64).round() as u64
}

/// The saved points of a directory.
fn saved(dir: Option<&Path>) -> Result<Saved<Point>> {
    Saved::open(dir.map(|dir| dir.join("flash-points.jsonl")).as_deref())
}

fn find(saved: &Saved<Point>, place: &Place, policy: &str) -> Option<Point> {
    saved
        .find(|p| p.place == *place && p.policy == policy)
        .cloned()
}

/// The part of the paper's length that a quick run uses.
fn part(workload: Workload) -> f64 {
    match workload {
        Workload::Video | Workload::Mixed | Workload::VideoB | Workload::MixedB => 0.5,
        Workload::Dbench => 0.05,
        Workload::Tpcc
        | Workload::DbenchB
        | Workload::TpccB
        | Workload::Mail
        | Workload::Build
        | Workload::Wal => 0.1,
    }
}

/// Runs all policies on all of `workloads`, with each cache size, seed and cut of `scale`.
pub(super) fn points(card: Target, workloads: &[Workload], scale: &Scale) -> Result<Vec<Point>> {
    let sizes = scale.sizes(card);
    let sources = Source::made(workloads);
    runs(card, &sources, &Runner::all(), &sizes, scale)
}

/// Runs these runners on these sources, with these cache sizes in MiB.
pub(super) fn runs(
    card: Target,
    sources: &[Source],
    runners: &[Runner],
    sizes: &[u64],
    scale: &Scale,
) -> Result<Vec<Point>> {
    let saved = saved(scale.save.as_deref())?;
    let runner = Runner {
        policy: PolicyKind::default(),
        costs: None,
    };
    let aged = card.setup(runner, 0).device()?;
    let jobs = sizes.iter().flat_map(|cache| {
        let runners = runners.iter().copied();
        runners.map(move |runner| (runner, *cache))
    });
    let jobs: Vec<(Runner, u64)> = jobs.collect();
    let mut all = Vec::new();
    for seed in scale.seed..scale.seed + scale.seeds.max(1) {
        for source in sources {
            let part = source.part(scale.quick);
            let place = Place {
                card: card.name(),
                workload: source.name().to_owned(),
                seed,
                part: thousandths(part),
                steady: scale.steady,
                cut: WHOLE,
                cache: 0,
            };
            let trace = || source.trace(seed, part);
            all.extend(of_trace(card, &place, &trace, &jobs, scale, &aged, &saved)?);
        }
    }
    Ok(all)
}

fn of_trace(
    card: Target,
    place: &Place,
    trace: &dyn Fn() -> Arc<Trace>,
    all: &[(Runner, u64)],
    scale: &Scale,
    aged: &Device,
    saved: &Saved<Point>,
) -> Result<Vec<Point>> {
    let mut cuts: Vec<u64> = scale.cuts.iter().map(|cut| thousandths(*cut)).collect();
    cuts.retain(|cut| (1..WHOLE).contains(cut));
    cuts.sort_unstable();
    cuts.dedup();
    let places = |cache: u64| {
        let ends = cuts.iter().copied().chain([WHOLE]);
        ends.map(move |cut| Place {
            cut,
            cache,
            ..place.clone()
        })
    };
    let mut found = Vec::new();
    let mut jobs = Vec::new();
    for (runner, cache) in all {
        let name = runner.name();
        let done: Option<Vec<_>> = places(*cache).map(|p| find(saved, &p, &name)).collect();
        match done {
            Some(points) => found.extend(points),
            None => jobs.push((*runner, *cache)),
        }
    }
    if jobs.is_empty() {
        return Ok(found);
    }
    let trace = trace();
    let pages = trace.pages();
    let ends: Vec<u64> = cuts
        .iter()
        .map(|cut| (pages * cut / WHOLE).max(1))
        .collect();
    let what = format!("{} seed {}", place.workload, place.seed);
    let bar = bar(pages * jobs.len() as u64, &what);
    let new = parallel(&jobs, |(runner, cache)| {
        let setup = card.setup(*runner, cache << 20);
        let mut device = aged.duplicate();
        if scale.steady {
            device = steady(&trace, &setup, device)?;
        }
        let mut outcomes = Vec::new();
        let whole = run_cut(
            &trace,
            &setup,
            &mut device,
            &ends,
            &mut |outcome| outcomes.push(outcome),
            &mut |n| bar.inc(n),
        )?;
        outcomes.push(whole);
        let points = places(*cache).zip(&outcomes);
        let points: Vec<Point> = points.map(|(p, o)| Point::new(p, *runner, o)).collect();
        saved.add(&points)?;
        Ok(points)
    })?;
    bar.finish_and_clear();
    found.extend(new.into_iter().flatten());
    Ok(found)
}

/// A point with this time for a whole trace, for tests.
#[cfg(test)]
pub(super) fn timed(workload: &str, cache: u64, policy: String, elapsed: f64) -> Point {
    Point {
        place: Place {
            card: "ssd".into(),
            workload: workload.into(),
            seed: 1,
            part: WHOLE,
            steady: false,
            cut: WHOLE,
            cache,
        },
        policy,
        hit_ratio: 0.1,
        read: 2,
        written: 3,
        elapsed,
        erases: 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded trace may have the name of a generated one; their points are kept apart.
    #[test]
    fn recorded_traces_have_names_of_their_own() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let trace = Workload::Mail.generate(1, 0.001);
        let file = dir.path().join(format!("{}.trace", Workload::Mail.name()));
        std::fs::write(file, crate::trace::write(&trace))?;
        let sources = Source::recorded(dir.path())?;
        let names: Vec<&str> = sources.iter().map(Source::name).collect();
        assert_eq!(names, ["mail.trace"]);
        let all = Workload::ALL.iter().chain(&Workload::HELD_OUT);
        assert!(all.map(|w| w.name()).all(|name| name != names[0]));
        Ok(())
    }

    /// Points of an interrupted run are found by the next one; lines that were cut off, or that
    /// another program wrote, are not.
    #[test]
    fn points_are_kept() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("flash-points.jsonl");
        let point = |cache| timed("video", cache, "lru".into(), 0.3);
        let place = |cache| point(cache).place;
        saved(Some(dir.path()))?.add(&[point(4), point(8)])?;
        let text = std::fs::read_to_string(&path)?;
        let other = text
            .replace(&crate::saved::program()?, "other")
            .replace(":8", ":16");
        std::fs::write(&path, text.clone() + &other + &text[..20])?;
        let saved = saved(Some(dir.path()))?;
        assert_eq!(find(&saved, &place(4), "lru"), Some(point(4)));
        assert_eq!(find(&saved, &place(8), "lru"), Some(point(8)));
        assert_eq!(find(&saved, &place(16), "lru"), None);
        assert_eq!(find(&saved, &place(4), "fab"), None);
        Ok(())
    }
}
