//! The journaling modes that AFS's figures compare, on an aged simulated SSD: the time of some
//! work, and its wear of the flash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use stetfs::low::{
    BlockDevice, Composition, Ctx, Fs, FsOptions, MemDevice, OpenRef, Preset, Wait, preset,
};
use stetfs_flash::Model;
use stetfs_testkit::{Image, Mkfs};

use super::args::FigureArgs;
use super::full_log::BLOCK;
use super::part::Part;
use super::simulated::Watched;
use crate::compare::{Below, Better, Mark, Measured, Metric, Outcome, Report};

/// A mode: its name in tables, the preset, and the method of checkpoints if it is not the preset's.
pub(super) struct Mode {
    pub name: &'static str,
    preset: Preset,
    home: Option<&'static str>,
}

/// The modes; ratios are relative to the first.
pub(super) const MODES: [Mode; 4] = [
    Mode {
        name: "ordered",
        preset: preset::ORDERED,
        home: None,
    },
    Mode {
        name: "data",
        preset: preset::DATA,
        home: None,
    },
    Mode {
        name: "afs",
        preset: preset::AFS,
        home: None,
    },
    Mode {
        name: "afs, home=copy",
        preset: preset::AFS,
        home: Some("copy"),
    },
];
/// Index in [`MODES`].
pub(super) const DATA: usize = 1;
/// Index in [`MODES`].
pub(super) const AFS: usize = 2;

/// Indexes of the numbers in an [`Outcome`] of [`Mode::run`].
pub(super) const RATE: usize = 0;
/// See [`RATE`].
pub(super) const BYTES: usize = 1;
/// See [`RATE`].
pub(super) const CHECKPOINTS: usize = 3;
/// See [`RATE`].
pub(super) const NUMBERS: usize = 7;

impl Mode {
    /// Does `work` on the volume, and closes it. `work` returns its number of operations. The rate
    /// is measured until `work` ends, everything else until all blocks are in their home locations.
    /// The titles begin with `title`.
    pub(super) fn run(
        &self,
        volume: &MemDevice,
        model: Model,
        cache: u64,
        (title, unit): (&str, &'static str),
        work: impl FnOnce(&Arc<Fs>) -> Result<u64>,
    ) -> Result<Outcome> {
        let device = Arc::new(Watched::with(volume, model, true)?);
        let options = FsOptions {
            journal: Composition::new(self.preset, self.home.map(|home| ("home", home)))?,
            cache_bytes: cache,
            // Commits by age follow the real clock, which is unrelated to simulated time: they are
            // off.
            commit_secs: 100_000,
            dirty_expire: Duration::from_secs(100_000),
            ..FsOptions::default()
        };
        let fs = Fs::open(device.clone(), options)?;
        let (flash, host) = (device.ssd().report().counters, device.ssd().stats());
        let (begin, spent) = (device.ssd().now(), device.spent());
        let operations = work(&fs)?;
        let worked = device.ssd().now();
        let checkpoints = device.spent().checkpoints - spent.checkpoints;
        fs.unmount()?;
        drop(fs);
        let closed = device.ssd().now();
        let flash_then = device.ssd().report().counters;
        let host_then = device.ssd().stats();
        ensure!(worked > begin && operations > 0, "the work takes no time");
        let s = |nanos: u64| nanos as f64 / 1e9;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let written = flash_then.host_writes - flash.host_writes;
        let programs = flash_then.programs - flash.programs;
        let number = |what: &str, unit: &str, value| Measured {
            title: format!("{title}: {what}"),
            unit: unit.to_owned(),
            better: Better::Lower,
            value,
            below: Below::default(),
        };
        let rate = Measured {
            better: Better::Higher,
            ..number("rate", unit, operations as f64 / s(worked - begin))
        };
        Ok(vec![
            rate,
            number(
                "to the device",
                "MiB",
                mib(host_then.bytes_written - host.bytes_written),
            ),
            number("flushes", "1", (host_then.flushes - host.flushes) as f64),
            // The end of the log is checkpointed when the volume is closed.
            number("checkpoints", "s", s(checkpoints + closed - worked)),
            number("until all is home", "s", s(closed - begin)),
            number("WAF", "1", programs as f64 / written.max(1) as f64),
            number("erases", "1", (flash_then.erases - flash.erases) as f64),
        ])
    }
}

/// A table of a figure: all modes at each point, on one device.
pub(super) struct Points<'a> {
    args: &'a FigureArgs,
    bar: ProgressBar,
    part: Part,
}

impl Points<'_> {
    pub(super) fn new(args: &FigureArgs, title: String, points: usize) -> Result<Points<'_>> {
        let bar = ProgressBar::new((points * MODES.len()) as u64 * u64::from(args.rounds.max(1)));
        bar.set_style(ProgressStyle::with_template(
            "{bar:30} {pos}/{len} {elapsed} {msg}",
        )?);
        let title = match args.quick {
            true => format!("{title}, quick: no claim"),
            false => title,
        };
        let names = MODES.map(|mode| mode.name.to_owned());
        Ok(Points {
            args,
            bar,
            part: Part {
                title,
                report: Report::new(&names, args.rounds.max(1)),
                threads: None,
            },
        })
    }

    /// Measures a point in all modes, and saves the results so far. `paper`: the paper's ratio of
    /// AFS's rate to ordered mode's, if it states one.
    pub(super) fn add(
        &mut self,
        workload: &str,
        title: &str,
        paper: Option<f64>,
        run: impl Fn(&Mode) -> Result<Outcome>,
    ) -> Result<()> {
        let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
        // The host's scheduling decides which syncs share a commit, so rounds differ.
        for _ in 0..self.part.report.rounds {
            for (i, mode) in MODES.iter().enumerate() {
                crate::interrupt::check()?;
                let what = format!("{title}, {}", mode.name);
                self.bar.set_message(what.clone());
                outcomes
                    .entry(i)
                    .or_default()
                    .push(run(mode).context(what)?);
                self.bar.inc(1);
            }
        }
        let report = &mut self.part.report;
        report.paper.extend(paper.map(|advantage| Mark {
            metric: report.metrics.len() + RATE,
            target: AFS,
            advantage,
        }));
        report.add(workload, &outcomes);
        self.part.report.notes = aims(&self.part.report);
        self.args.save(&self.part)
    }

    pub(super) fn finish(self) -> Part {
        self.bar.finish_and_clear();
        self.part
    }
}

/// A volume with space for so many bytes beside its journal, and the files that `fill` makes.
pub(super) fn volume(
    bytes: u64,
    journal_mib: u64,
    fill: impl FnOnce(&Fs) -> Result<()>,
) -> Result<MemDevice> {
    let used = bytes + (journal_mib << 20);
    let image = Image::sparse((used + used / 8 + (64 << 20)).next_multiple_of(4 << 20))?;
    image.mkfs(&Mkfs::blocks(BLOCK as u32).journal_mib(u32::try_from(journal_mib)?))?;
    let device = Arc::new(MemDevice::load(image.path())?);
    let fs = Fs::open(device.clone(), FsOptions::default())?;
    fill(&fs)?;
    fs.unmount()?;
    drop(fs);
    Ok(device.fork())
}

/// Syncs these files like threads that sync at the same time, and waits for all answers.
pub(super) fn sync_all<'f>(fs: &Fs, files: impl IntoIterator<Item = &'f OpenRef>) -> Result<()> {
    let (send, done) = std::sync::mpsc::channel();
    let mut waits = 0;
    for file in files {
        let send = send.clone();
        fs.fsync(
            file,
            false,
            Wait::Deferred,
            Box::new(move |r| drop(send.send(r))),
        );
        waits += 1;
    }
    for _ in 0..waits {
        done.recv().context("no answer to fsync")??;
    }
    Ok(())
}

/// The credentials of the work: root's.
pub(super) fn root() -> Ctx {
    Ctx::default()
}

/// The distance of a report of [`MODES`] from the goals, for people.
pub(super) fn aims(report: &Report) -> Vec<String> {
    // Ratios of `afs` to another mode, for a number at each point.
    let ratios = |number: usize, to: usize| {
        let points = report.metrics.iter().skip(number).step_by(NUMBERS);
        let ratio = move |m: &Metric| {
            let value = |mode: usize| m.values.get(mode).map_or(f64::NAN, |v| v.median);
            value(AFS) / value(to)
        };
        points.map(ratio).collect::<Vec<f64>>()
    };
    let span = |what: &str, ratios: &[f64]| {
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        format!("afs, {what}: {least:.2} to {most:.2} times")
    };
    vec![
        span("rate by ordered", &ratios(RATE, 0)),
        span("bytes by data (aim: at most .55)", &ratios(BYTES, DATA)),
        span(
            "time of checkpoints by data (aim: at most .20)",
            &ratios(CHECKPOINTS, DATA),
        ),
    ]
}
