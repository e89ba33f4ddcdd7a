//! Z-Journal: Kim, Kim, Hwang, Park and Lee, USENIX ATC 2021. The same work by more and more
//! threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use stetfs::low::{BlockDevice, Composition, Fs, FsOptions, MemDevice};
use stetfs_flash::{Model, Timed};
use stetfs_flashlab::figure::{Panel, Series};
use stetfs_testkit::{Image, Mkfs};

use super::ldj::peer;
use super::{Device, Figure, FigureArgs, Part, QUICK, Spec};
use crate::compare::{
    Below, Beside, KernelFs, LogCounters, Measured, Outcome, PeerSpec, Place, Points, Report, Run,
    Sizes, Work, Workload, drive,
};

pub(super) const PAPER: &str = "\
figures 6, 9, 10 and 11 (80 cores, NVMe, data journaling): at 80 cores overwriting by 41 times, appending by 3.3 times as fast as \
ext4, fsync 70 % in the mean, creating, renaming and unlinking 24 to 42 %; fileserver by 315 %, varmail by 58 %. Here there are \
fewer processors than threads: what is seen is whether lanes cost anything, and what syncs at the same time share.";

/// MiB.
const JOURNAL: u32 = 128;
const THREADS: &[u32] = &[1, 2, 4, 8, 16];
const FEW_THREADS: &[u32] = &[1, 2, 4];
/// Seconds of each number of threads.
const SECONDS: u32 = 2;
const IMAGE_MIB: u64 = 1024;

/// StetFS's columns: `journal=`.
const ORDERED: &str = "ordered";
const DATA: &str = "data";
const ONE_LANE: &str = "zjournal,lanes=1";
const LANES: &str = "zjournal";
const LANES_DATA: &str = "zjournal,data=journal";
const COLUMNS: [&str; 5] = [ORDERED, DATA, ONE_LANE, LANES, LANES_DATA];

/// What lanes must not cost one client, and what they are to bring a few beside the kernel's ext4.
const ALONE: f64 = 0.97;
const TOGETHER: f64 = 1.5;

fn spec(quick: bool) -> Spec {
    let column = |name: &&str| peer(name, &format!("journal={name},io_uring=on"), JOURNAL);
    Spec {
        kernel: vec![PeerSpec {
            journal_mib: Some(JOURNAL),
            ..KernelFs::Ordered.into()
        }],
        stetfs: COLUMNS.iter().map(column).collect(),
        workloads: vec![
            Workload::CreateThreads,
            Workload::FsyncThreads,
            Workload::OverwriteThreads,
            Workload::VarmailThreads,
        ],
        beside: vec![Beside::ALONE],
        image_mib: IMAGE_MIB,
        profile_seconds: Some(SECONDS),
        threads: Some(if quick { FEW_THREADS } else { THREADS }),
        flash: false,
    }
}

pub(super) fn measure(args: &FigureArgs, stetfs: &Path) -> Result<Vec<Part>> {
    let spec = spec(args.quick);
    let devices = match args.devices.as_slice() {
        [] => {
            let simulated = Model::ALL.into_iter().filter(|m| m.name == "nvme-ssd");
            let simulated = simulated.map(Device::Simulated);
            simulated.chain([Device::Memory, Device::File]).collect()
        }
        named => named.to_vec(),
    };
    let part = |device| match device {
        Device::File => args.part(stetfs, device, &spec),
        Device::Memory => library(args, device, None, &spec),
        Device::Simulated(model) => library(args, device, Some(model), &spec),
    };
    devices.into_iter().map(part).collect()
}

/// All columns in this process.
fn library(args: &FigureArgs, device: Device, model: Option<Model>, spec: &Spec) -> Result<Part> {
    let image = Image::sparse(spec.image_mib << 20)?;
    image.mkfs(&Mkfs::new().journal_mib(JOURNAL))?;
    let fresh = MemDevice::load(image.path())?;
    let sizes = args.sizes(spec);
    let points = Points::open(args.points(device).as_deref(), &sizes)?;
    let rounds = args.rounds.max(1);
    let mut report = Report::new(&COLUMNS.map(str::to_owned), rounds);
    let steps = Work::ALL.len() * COLUMNS.len() * rounds as usize;
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {elapsed} {msg}",
    )?);
    for work in Work::ALL {
        let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
        for round in 0..rounds {
            for step in 0..COLUMNS.len() {
                crate::interrupt::check()?;
                let column = (round as usize + step) % COLUMNS.len();
                let journal = COLUMNS[column];
                bar.set_message(format!("{} with {journal}", work.title()));
                let run = Run {
                    workload: work.title().to_owned(),
                    target: journal.to_owned(),
                    round,
                };
                let outcome = points
                    .of(run, || by_threads(work, &fresh, model, journal, &sizes))
                    .with_context(|| format!("{} with {journal}", work.title()))?;
                outcomes.entry(column).or_default().push(outcome);
                bar.inc(1);
            }
        }
        report.add(work.title(), &outcomes);
    }
    bar.finish_and_clear();
    Ok(Part {
        title: format!("library on {}", device.name()),
        report,
        threads: spec.threads,
    })
}

/// A run in a fresh volume by each number of threads.
fn by_threads(
    work: Work,
    fresh: &MemDevice,
    model: Option<Model>,
    journal: &str,
    sizes: &Sizes,
) -> Result<Outcome> {
    let each = |&threads: &u32| {
        let device: Arc<dyn BlockDevice> = match model {
            Some(model) => Arc::new(Timed::new(fresh.fork(), model)),
            None => Arc::new(fresh.fork()),
        };
        one(work, device, journal, threads, sizes)
    };
    sizes.threads.iter().map(each).collect()
}

fn one(
    work: Work,
    device: Arc<dyn BlockDevice>,
    journal: &str,
    threads: u32,
    sizes: &Sizes,
) -> Result<Measured> {
    let (preset, options) = journal.split_once(',').unwrap_or((journal, ""));
    let options = options.split(',').filter_map(|o| o.split_once('='));
    let options = FsOptions {
        journal: Composition::new(preset.parse()?, options)?,
        ..FsOptions::default()
    };
    let fs = Fs::open(device, options)?;
    let place = Place::Library(&fs);
    let hands = work.hands(&place, threads, sizes)?;
    let before = LogCounters::of(&fs);
    let done = drive(&place, hands, sizes.profile_seconds)?;
    let after = LogCounters::of(&fs);
    let below = Below {
        log: after.since(before),
        waits: after.waits_since(before, done.0),
        ..Below::default()
    };
    fs.unmount()?;
    Ok(work.measured(threads, done, below))
}

/// The median of a work by so many threads in a column, if it was measured.
fn median(part: &Part, work: Work, threads: u32, column: &str) -> Option<f64> {
    let title = work.measured(threads, (0.0, 1.0), Below::default()).title;
    let metric = part.report.metrics.iter().find(|m| m.title == title)?;
    let column = part.report.targets.iter().position(|t| t == column)?;
    metric.values.get(column).map(|v| v.median)
}

/// What is claimed of lanes, the goal, and ours.
pub(super) fn claims(parts: &[Part]) -> Vec<[String; 3]> {
    let mut claims = Vec::new();
    let mut claim = |part: &Part, work: Work, threads, [ours, other]: [&str; 2], goal: f64| {
        let of = |column| median(part, work, threads, column);
        if let (Some(ours), Some(base)) = (of(ours), of(other)) {
            let ratio = if base > 0.0 { ours / base } else { 0.0 };
            let title = work.measured(threads, (0.0, 1.0), Below::default()).title;
            let said = if ratio >= goal { "" } else { ", missed" };
            claims.push([
                format!("{}: {title}, to {other}", part.title),
                format!("≥ ×{goal:.2}"),
                format!("×{ratio:.2}{said}"),
            ]);
        }
    };
    for part in parts {
        for work in Work::ALL {
            claim(part, work, 1, [LANES, ORDERED], ALONE);
            claim(part, work, 1, [LANES_DATA, DATA], ALONE);
        }
        for threads in [2, 4] {
            claim(
                part,
                Work::Append,
                threads,
                [LANES, "ext4 ordered"],
                TOGETHER,
            );
        }
    }
    claims
}

/// The curves of a part: a panel for each work, a curve for each column.
pub(super) fn curves(figure: &Figure, part: &Part, threads: &[u32]) -> Result<String> {
    let mut title = vec![format!(
        "Figure {} on {}: {}, medians of {} rounds",
        figure.name, part.title, part.report.machine, part.report.rounds
    )];
    if figure.quick {
        title.push(QUICK.to_owned());
    }
    let metrics = &part.report.metrics;
    let panels: Vec<Panel> = metrics
        .chunk_by(|a, b| a.workload == b.workload)
        .map(|of_one| Panel {
            title: of_one.first().map_or_else(String::new, |m| {
                let what = m.title.rsplit_once(',').map_or(&*m.title, |(what, _)| what);
                format!("{what}, {}", m.unit)
            }),
            axes: ["threads".into(), "a second".into()],
            series: part
                .report
                .targets
                .iter()
                .enumerate()
                .map(|(i, name)| Series {
                    name: name.clone(),
                    points: threads
                        .iter()
                        .zip(of_one)
                        .filter_map(|(n, m)| Some((f64::from(*n), m.values.get(i)?.median)))
                        .collect(),
                })
                .collect(),
            joined: true,
            logarithmic: true,
        })
        .collect();
    crate::flash::draw::panels(title, figure.paper, &panels)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_made_in_the_library_give_curves_and_claims() {
        let image = Image::make(64 << 20, &Mkfs::new().journal_mib(16)).unwrap();
        let fresh = MemDevice::load(image.path()).unwrap();
        let sizes = Sizes {
            threads: &[1, 2],
            names: 5,
            profile_seconds: 60,
            ..Sizes::quick()
        };
        let mut outcomes = BTreeMap::new();
        for (i, journal) in COLUMNS.into_iter().enumerate() {
            let outcome = by_threads(Work::Create, &fresh, None, journal, &sizes).unwrap();
            assert_eq!(outcome.len(), 2, "{journal}");
            assert_eq!(outcome[1].title, "create, 2 threads");
            assert!(
                outcome
                    .iter()
                    .all(|m| m.value > 0.0 && m.below.waits.is_some())
            );
            outcomes.insert(i, vec![outcome]);
        }
        let mut report = Report::new(&COLUMNS.map(str::to_owned), 1);
        report.add(Work::Create.title(), &outcomes);
        let part = Part {
            title: "library on memory".into(),
            report,
            threads: Some(&[1, 2]),
        };
        let claims = claims(std::slice::from_ref(&part));
        assert_eq!(claims.len(), 2, "{claims:?}");
        assert_eq!(
            claims[0][0],
            "library on memory: create, 1 thread, to ordered"
        );
        let figure = Figure {
            name: "zjournal".into(),
            paper: PAPER,
            quick: true,
            claims,
            parts: vec![part],
        };
        let curves = curves(&figure, &figure.parts[0], &[1, 2]).unwrap();
        for said in ["create, /s", LANES_DATA, "does not count"] {
            assert!(curves.contains(said), "{said}");
        }
        let text = figure.text();
        assert!(
            text.contains("≥ ×0.97") && text.contains("does not count"),
            "{text}"
        );
    }
}
