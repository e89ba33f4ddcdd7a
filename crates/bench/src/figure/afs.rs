//! The time of a recovery that shares, beside one that copies: the same full log, on the same
//! device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use stetfs::low::{BlockDevice, Composition, DeviceOptions, FileDevice, FsOptions, Preset};
use stetfs_flash::Model;
use stetfs_testkit::KernelMount;

use super::args::{Device, FigureArgs};
use super::full_log::{self, FullLog};
use super::part::Part;
use super::simulated::Watched;
use crate::compare::{Below, Better, Measured, Outcome, Report};

pub(super) const RECOVERY: &str = "\
section 3.4.5: \"it is quite obvious that AFS can recover much faster\", without a number; the aim here: ten times as fast as copying";

/// Size of the journal, MiB.
const JOURNAL: u32 = 1024;
/// With --quick.
const SMALL: u32 = 64;
/// Lengths of runs of blocks that are consecutive both in the log and in their home locations:
/// single pages, and 256 KiB.
const RUNS: [usize; 2] = [1, 64];
/// The methods of writing home locations; ratios are relative to the first.
const HOMES: [&str; 2] = ["copy", "share"];

pub(super) fn measure(args: &FigureArgs) -> Result<Vec<Part>> {
    let journal = if args.quick { SMALL } else { JOURNAL };
    let mut parts = Vec::new();
    for run in RUNS {
        let log = full_log::make(journal, run).context("filling a log")?;
        for device in args.devices() {
            for aged in [false, true] {
                match device.model()? {
                    // A disk has no flash.
                    Some(model) if model.seek.is_some() => continue,
                    None if aged => continue,
                    _ => {}
                }
                let mut title = format!("{}, {} KiB in a row", device.name(), run * 4);
                if device.model()?.is_some() {
                    title += if aged { ", aged" } else { ", new" };
                }
                if args.quick {
                    title += ", a small log: no claim";
                }
                let report = one(args, device, aged, &log).with_context(|| title.clone())?;
                parts.push(Part {
                    title,
                    report,
                    threads: None,
                });
            }
        }
    }
    Ok(parts)
}

fn one(args: &FigureArgs, device: Device, aged: bool, log: &FullLog) -> Result<Report> {
    // Simulated time is the same in each run.
    let model = device.model()?;
    let rounds = if model.is_some() {
        1
    } else {
        args.rounds.max(1)
    };
    let names = HOMES.map(|home| format!("{home}, {} blocks", log.images));
    let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
    for _ in 0..rounds {
        for (i, home) in HOMES.into_iter().enumerate() {
            crate::interrupt::check()?;
            let outcome = match model {
                Some(model) => simulated(log, model, aged, home),
                None => on_xfs(log, home),
            };
            outcomes
                .entry(i)
                .or_default()
                .push(outcome.with_context(|| home.to_owned())?);
        }
    }
    let mut report = Report::new(&names, rounds);
    report.add("recovery", &outcomes);
    Ok(report)
}

fn seconds(title: &str, value: f64) -> Measured {
    measured(title, "s", value)
}

fn measured(title: &str, unit: &'static str, value: f64) -> Measured {
    Measured {
        title: title.into(),
        unit: unit.into(),
        better: Better::Lower,
        value,
        below: Below::default(),
    }
}

/// Recovers; returns the number of shared blocks.
fn recover(device: Arc<dyn BlockDevice>, home: &str, log: &FullLog) -> Result<u64> {
    let options = FsOptions {
        journal: Composition::new(Preset::default(), [("home", home)])?,
        ..FsOptions::default()
    };
    let fs = stetfs::low::Fs::open(device, options)?;
    let report = fs.recovered().context("there was nothing to recover")?;
    ensure!(
        report.blocks == log.images,
        "{} of {} blocks went home",
        report.blocks,
        log.images
    );
    Ok(report.shared)
}

/// A recovery on a simulated SSD, in simulated time.
fn simulated(log: &FullLog, model: Model, aged: bool, home: &str) -> Result<Outcome> {
    let device = Arc::new(Watched::with(&log.volume, model, aged)?);
    let programmed = device.ssd().report().counters;
    let begin = device.ssd().now();
    let shared = recover(device.clone(), home, log)?;
    let whole = device.ssd().now() - begin;
    let spent = device.spent();
    let counters = device.ssd().report().counters;
    let s = |nanos: u64| nanos as f64 / 1e9;
    let pages = counters.programs - programmed.programs;
    Ok(vec![
        seconds("recovery", s(whole)),
        seconds("of it reads", s(spent.reads)),
        seconds("of it writes", s(spent.writes)),
        seconds("of it shares", s(spent.shares)),
        seconds("of it flushes", s(spent.flushes)),
        measured("pages programmed", "pages", pages as f64),
        measured(
            "blocks written home",
            "blocks",
            (log.images - shared) as f64,
        ),
    ])
}

/// A recovery in a file on a new XFS in a loop device, with empty caches.
fn on_xfs(log: &FullLog, home: &str) -> Result<Outcome> {
    let size = log.volume.size() + log.volume.size() / 4 + (512 << 20);
    let (disk, mount) = KernelMount::made("xfs", &["-q", "-m", "reflink=1"], size)?;
    let path = mount.path().join("image");
    log.volume.save(&path)?;
    std::fs::File::open(&path)?.sync_all()?;
    // Only root gets here.
    crate::cold::try_drop_caches();
    let device = FileDevice::open(&path, DeviceOptions::default())?;
    let start = Instant::now();
    let shared = recover(Arc::new(device), home, log)?;
    let whole = start.elapsed().as_secs_f64();
    mount.umount()?;
    drop(disk);
    Ok(vec![
        seconds("recovery", whole),
        measured(
            "blocks written home",
            "blocks",
            (log.images - shared) as f64,
        ),
    ])
}
