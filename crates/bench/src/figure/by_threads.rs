//! The same work with increasing numbers of threads, in the library: each column has a volume of
//! its own, on a simulated device or on memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use stetfs::low::{BlockDevice, Composition, Fs, FsOptions, MemDevice, RegionSource};
use stetfs_flash::{Model, Timed};
use stetfs_flashlab::figure::{Panel, Series};
use stetfs_nvm::MemRegion;
use stetfs_testkit::{Image, Mkfs};

use super::args::{Device, FigureArgs, Spec};
use super::part::{Figure, Part, QUICK};
use crate::compare::{
    Below, LogCounters, Measured, Outcome, Place, Points, Report, Run, Sizes, Work, drive,
};

/// Size of the region, for journals that have one, bytes; as the paper's memory.
const REGION: u64 = 256 << 20;

pub(super) fn named(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|name| (*name).to_owned()).collect()
}

/// The runs in the library.
pub(super) struct Library {
    /// The columns: values of `journal=`.
    pub columns: &'static [&'static str],
    pub works: &'static [Work],
    pub journal_mib: u32,
    /// The amount of work in the paper, unless the run is quick.
    pub whole: Option<Whole>,
}

/// The amount of work in a paper.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub image_mib: u64,
    /// Number of files of the mail server.
    pub mail_files: u64,
    /// Number of files that are created.
    pub made_files: u32,
    /// Longest time of a run, seconds.
    pub seconds: u32,
}

impl Whole {
    fn sizes(self, sizes: Sizes) -> Sizes {
        Sizes {
            mail_files: self.mail_files,
            made_files: Some(self.made_files),
            profile_seconds: self.seconds,
            ..sizes
        }
    }
}

/// Measures the figure on the requested devices; by default on a simulated NVMe SSD and on memory,
/// in the library, and mounted on a file.
pub(super) fn measure(
    args: &FigureArgs,
    stetfs: &Path,
    mut spec: Spec,
    what: &Library,
) -> Result<Vec<Part>> {
    // Needed until the end of the program, and allocated once.
    let wanted = |all| Ok::<_, anyhow::Error>(&*args.wanted_threads(all)?.leak());
    spec.threads = spec.threads.map(wanted).transpose()?;
    let spec = &spec;
    let devices = match args.devices.as_slice() {
        [] => {
            let simulated = Model::ALL.into_iter().filter(|m| m.name == "nvme-ssd");
            let simulated = simulated.map(Device::Simulated);
            simulated.chain([Device::Memory, Device::File]).collect()
        }
        named => named.to_vec(),
    };
    let part = |device| match device {
        Device::File | Device::Xfs => args.part(stetfs, device, spec),
        Device::Memory | Device::Simulated(_) => library(args, device, spec, what),
    };
    devices.into_iter().map(part).collect()
}

/// A claim about a work with so many threads, of one column relative to another: the words, the
/// goal, and the measured value; `None` if it was not measured. `of` names the other column in the
/// table.
pub(super) fn claim(
    part: &Part,
    work: Work,
    threads: u32,
    [ours, other]: [&str; 2],
    goal: f64,
    of: &str,
) -> Option<[String; 3]> {
    let ours = median(part, work, threads, ours)?;
    let base = median(part, work, threads, other)?;
    let ratio = if base > 0.0 { ours / base } else { 0.0 };
    let title = work.measured(threads, (0.0, 1.0), Below::default()).title;
    let said = if ratio >= goal { "" } else { ", missed" };
    Some([
        format!("{}: {title}, {of}", part.title),
        format!("≥ ×{goal:.2}"),
        format!("×{ratio:.2}{said}"),
    ])
}

/// Measures all columns in this process.
fn library(args: &FigureArgs, device: Device, spec: &Spec, what: &Library) -> Result<Part> {
    let model = match device {
        Device::Simulated(model) => Some(model),
        Device::File | Device::Xfs | Device::Memory => None,
    };
    let columns = what.columns;
    let whole = what.whole.filter(|_| !args.quick);
    let image = Image::sparse(whole.map_or(spec.image_mib, |whole| whole.image_mib) << 20)?;
    let mut mkfs = Mkfs::new().journal_mib(what.journal_mib);
    if whole.is_some() {
        // Each file takes a block, and an inode.
        mkfs.args.extend(["-i", "4096"].map(String::from));
    }
    image.mkfs(&mkfs)?;
    let fresh = MemDevice::load(image.path())?;
    let sizes = args.sizes(spec);
    let sizes = whole.map_or(sizes, |whole| whole.sizes(sizes));
    let points = Points::open(args.points(device).as_deref(), &sizes)?;
    let rounds = args.rounds.max(1);
    let mut report = Report::new(&named(columns), rounds);
    let steps = what.works.len() * columns.len() * rounds as usize;
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {elapsed} {msg}",
    )?);
    for &work in what.works {
        let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
        for round in 0..rounds {
            for step in 0..columns.len() {
                crate::interrupt::check()?;
                let column = (round as usize + step) % columns.len();
                let journal = columns[column];
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

/// Runs in a fresh volume with each number of threads.
pub(super) fn by_threads(
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
    let journal = Composition::new(preset.parse()?, options)?;
    let region = match journal.is_in_region() {
        true => RegionSource::Open(Arc::new(MemRegion::new(REGION))),
        false => RegionSource::None,
    };
    let options = FsOptions {
        journal,
        region,
        ..FsOptions::default()
    };
    let fs = Fs::open(device, options)?;
    let place = Place::Library(&fs);
    let hands = work.hands(&place, threads, sizes)?;
    let before = LogCounters::of(&fs);
    let done = drive(&place, hands, sizes.profile_time())?;
    let after = LogCounters::of(&fs);
    let below = Below {
        log: after.since(before),
        waits: after.waits_since(before, done.0),
        ..Below::default()
    };
    fs.unmount()?;
    Ok(work.measured(threads, done, below))
}

/// The median of a work with so many threads in a column, if it was measured.
fn median(part: &Part, work: Work, threads: u32, column: &str) -> Option<f64> {
    let title = work.measured(threads, (0.0, 1.0), Below::default()).title;
    let metric = part.report.metrics.iter().find(|m| m.title == title)?;
    let column = part.report.targets.iter().position(|t| t == column)?;
    metric.values.get(column).map(|v| v.median)
}

/// Draws the curves of a part: a panel for each work, a curve for each column.
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
