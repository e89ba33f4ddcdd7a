//! The command line of `stetfs crash`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};

use crate::canary::command::CanariesArgs;
use crate::explore::{Config, Failure, Often, Outcome, Progress, Source, explore};
use crate::html;
use crate::judge::{Checks, Cuts, Finding, Oracle};
use crate::layers::{self, Layer};
use crate::machine::Crashed;
use crate::peers::cut_command::CutArgs;
use crate::peers::foreign::{Volume, foreign};
use crate::peers::{Binary, Limits, System, compare_one};
use crate::record::{Recording, failing};
use crate::report::Report;
use crate::setup::{JournalSpec, Shape};
use crate::shrink::shrink;
use crate::state::StateId;
use crate::stress::command::StressArgs;
use crate::volume::Batches;
use crate::workload::{Case, cases, named, text};

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum CrashCommand {
    /// Record a workload, try the crashes that could have been, judge what each leaves.
    Run(RunArgs),
    /// Only record: the writes, flushes, and what the workload was told.
    Record(RecordArgs),
    /// Try the crashes of a record.
    Explore(ExploreArgs),
    /// Judge one crash of a record again, by all oracles.
    Repeat(RepeatArgs),
    /// Describe a record.
    Report(ReportArgs),
    /// StetFS beside the kernel's file systems: what their crashes lose. Needs root.
    Compare(CompareArgs),
    /// Crashes of the kernel's ext4, recovered by StetFS, e2fsck and the kernel, side by side.
    /// Needs root.
    Foreign(ForeignArgs),
    /// Cut the power under a program of yours: what it does on a mount is recorded, and a command
    /// of yours judges what each crash leaves. Needs root.
    Cut(CutArgs),
    /// Let the device misbehave, and see that nothing is silently wrong that checksums cover.
    Faults(FaultsArgs),
    /// Many threads at work, then a kill, a failing device or a power cut: nothing acknowledged is
    /// lost.
    Stress(StressArgs),
    /// Put deliberate faults into the journal, and see that each is found.
    Canaries(CanariesArgs),
}

/// The volume and the work.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// The journal: a preset, and options.
    #[arg(long, value_name = "PRESET[,OPTION…]", default_value = "ordered", long_help = journal_help())]
    journal: JournalSpec,
    /// What is done: a workload's name, or a file with a script.
    #[arg(long, value_name = "NAME|FILE", default_value = "smoke", long_help = workload_help())]
    workload: String,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes in a block: 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    block: u32,
    /// Blocks of the journal.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    journal_blocks: u32,
    /// What a crash leaves of a batch that the device shares (`home=share`) and has not flushed.
    #[arg(long, value_enum, default_value_t)]
    share: Batches,
    /// The device has FUA: what goes out with it is durable at once.
    #[arg(long)]
    fua: bool,
    /// Records of files go to a region of persistent memory of so many bytes, such as 64K, and
    /// crashes cut it, too. The journal has to have such records (`ijournal`, `sync=file`).
    #[arg(long, value_name = "BYTES", value_parser = stetfs::low::size::bytes)]
    region: Option<u64>,
}

impl WorkArgs {
    fn shape(&self) -> Shape {
        Shape {
            block: self.block,
            journal_blocks: self.journal_blocks,
            batches: self.share,
            fua: self.fua,
            region: self.region,
        }
    }

    /// The only case of a workload, of another seed.
    fn case_of(&self, seed: u64) -> Result<Case> {
        cases(&self.workload, seed)?
            .pop()
            .context("a workload without a case")
    }

    /// The one case to record; `case` chooses of a family.
    fn case(&self, case: Option<usize>) -> Result<Case> {
        let mut all = cases(&self.workload, self.seed)?;
        let count = all.len();
        let i = match (case, count) {
            (Some(i), _) => i,
            (None, 1) => 0,
            (None, n) => {
                return Err(anyhow!(
                    "{} has {n} cases: choose one with --case 0 to {}, or try all with `stetfs crash run`",
                    self.workload,
                    n - 1
                ));
            }
        };
        ensure!(i < count, "{} has {count} cases", self.workload);
        Ok(all.swap_remove(i))
    }
}

/// How e2fsck is used.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FsckArg {
    /// Never.
    Never,
    /// On some images.
    Sample,
    /// On every image.
    Always,
}

/// How to search.
#[derive(Clone, Debug, Args)]
pub struct SearchArgs {
    /// How long to search.
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
    /// Stop after so many passes, even if there is time.
    #[arg(long, value_name = "N")]
    passes: Option<u64>,
    /// States that are judged at once (the cores).
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// When e2fsck looks at a recovered image.
    #[arg(long, value_enum, default_value = "sample")]
    fsck: FsckArg,
    /// Stop at so many failures.
    #[arg(long, value_name = "N", default_value_t = 10)]
    failures: usize,
    /// Go on where an earlier search stopped, and keep here how far this one is.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Where the records and reports of failures go [default: stetfs-crash, made when there is
    /// one].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not look for the shortest workload and the smallest loss.
    #[arg(long)]
    no_shrink: bool,
    /// With --json: the file for the JSON, instead of standard output.
    #[arg(value_name = "FILE")]
    json_file: Option<PathBuf>,
}

impl SearchArgs {
    fn config(&self, seed: u64) -> Result<Config> {
        ensure!(
            self.seconds.is_finite() && self.seconds > 0.0,
            "--seconds must be above 0"
        );
        let defaults = Config::default();
        Ok(Config {
            seed,
            threads: self.threads.unwrap_or(defaults.threads).clamp(1, 1024),
            seconds: Some(self.seconds),
            passes: self.passes,
            failures: self.failures.max(1),
            fsck: match self.fsck {
                FsckArg::Never => Often::Never,
                FsckArg::Sample => defaults.fsck,
                FsckArg::Always => Often::Always,
            },
            bar: true,
            ..defaults
        })
    }
}

/// Arguments of `crash run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Each flush of the device fails in turn, in a record of its own: what was written since the
    /// last good one may be lost, and nothing is acknowledged any more.
    #[arg(long)]
    fail_flushes: bool,
    /// With a translation layer of simulated flash below the volume, whose power is cut: page (a
    /// page-level SSD), fast (FAST, as on cards) or log (a log of segments on such an SSD).
    /// Blocks of a volume may be smaller than the flash's pages.
    #[arg(long, value_enum, value_name = "LAYER", conflicts_with_all = ["fail_flushes", "resume", "passes", "no_shrink", "region"])]
    device: Option<Layer>,
    #[command(flatten)]
    search: SearchArgs,
}

/// Arguments of `crash record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Which case, of a workload with several.
    #[arg(long, value_name = "N")]
    case: Option<usize>,
    /// The file to make.
    record: PathBuf,
}

/// Arguments of `crash explore`.
#[derive(Clone, Debug, Args)]
pub struct ExploreArgs {
    /// A file made by `crash record`.
    record: PathBuf,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    search: SearchArgs,
}

/// Arguments of `crash repeat`.
#[derive(Clone, Debug, Args)]
pub struct RepeatArgs {
    /// A file made by `crash record`, or kept of a failure.
    record: PathBuf,
    /// The crash, as a failure names it, e.g. 120:~7.
    #[arg(allow_hyphen_values = true)]
    state: StateId,
    /// Keep the image that the crash left, and beside it its region, if it has one, with the
    /// extension `region`.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Look for the shortest workload and the smallest loss, for so many seconds.
    #[arg(long, value_name = "SECONDS")]
    shrink: Option<f64>,
}

/// Arguments of `crash compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// stetfs:PRESET, ext4:MOUNT-OPTIONS, xfs or btrfs.
    #[arg(value_name = "SYSTEM", default_values = ["stetfs:ordered", "stetfs:data", "ext4:data=ordered", "ext4:data=journal"])]
    systems: Vec<System>,
    /// A workload with one case and one thread, or a program: sqlite-wal, sqlite-delete, git,
    /// maildir, tar.
    #[arg(short, long = "workload", value_name = "NAME|FILE", default_values = ["smoke"])]
    workloads: Vec<String>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    stetfs: Binary,
}

/// Arguments of `crash foreign`.
#[derive(Clone, Debug, Args)]
pub struct ForeignArgs {
    /// Features of the volume, as for mke2fs.
    #[arg(
        short = 'O',
        long,
        value_name = "FEATURE,…",
        default_value = "fast_commit"
    )]
    features: String,
    /// Mount options.
    #[arg(short, long, value_name = "OPTION,…", default_value = "")]
    options: String,
    /// Keep the images of examples in this directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Bytes in a block.
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096)]
    block: u32,
    /// A workload with one case and one thread, or a program: sqlite-wal, sqlite-delete, git,
    /// maildir, tar.
    #[arg(short, long = "workload", value_name = "NAME|FILE", default_values = ["random"])]
    workloads: Vec<String>,
    #[command(flatten)]
    limits: Limits,
}

/// Arguments of `crash faults`.
#[derive(Clone, Debug, Args)]
pub struct FaultsArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Volumes with each fault.
    #[arg(long, value_name = "N", default_value_t = 200)]
    each: u64,
}

/// Arguments of `crash report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// A file made by `crash record`, or kept of a failure.
    record: PathBuf,
    /// A crash of it to describe.
    #[arg(allow_hyphen_values = true, requires = "html")]
    state: Option<StateId>,
    /// With a crash: the page to write, with the log, what was lost, and the trees.
    #[arg(long, value_name = "FILE", requires = "state")]
    html: Option<PathBuf>,
}

fn journal_help() -> String {
    format!(
        "The journal: a preset, and options: {}",
        crate::setup::OPTIONS
    )
}

fn workload_help() -> String {
    let names = named::NAMES.map(|(n, what)| format!("  {n:10}  {what}"));
    format!(
        "What is done: one of\n{}\nor a file with a script, one operation a line:\n{}",
        names.join("\n"),
        text::SYNTAX
    )
}

/// What a command has to say.
#[derive(Debug)]
pub struct Answer {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
    /// Where the JSON goes, if not to standard output.
    pub json_file: Option<PathBuf>,
    /// Promises were broken.
    pub broken: bool,
}

impl Answer {
    pub(crate) fn new(text: impl fmt::Display, json: impl Serialize) -> Result<Answer> {
        Ok(Answer {
            text: text.to_string(),
            json: serde_json::to_value(json)?,
            json_file: None,
            broken: false,
        })
    }
}

impl CrashCommand {
    /// Does it.
    ///
    /// # Errors
    /// What is wrong with the arguments or the files, and what to do about it. Broken promises are
    /// no errors.
    pub fn run(&self) -> Result<Answer> {
        match self {
            CrashCommand::Run(args) => args.run(),
            CrashCommand::Record(args) => args.run(),
            CrashCommand::Explore(args) => args.run(),
            CrashCommand::Repeat(args) => args.run(),
            CrashCommand::Report(args) => args.run(),
            CrashCommand::Stress(args) => args.run(),
            CrashCommand::Canaries(args) => args.run(),
            CrashCommand::Faults(args) => args.run(),
            CrashCommand::Compare(args) => args.run(),
            CrashCommand::Foreign(args) => args.run(),
            CrashCommand::Cut(args) => args.run(),
        }
    }
}

impl RunArgs {
    fn run(&self) -> Result<Answer> {
        let work = &self.work;
        if let Some(layer) = self.device {
            return self.below(layer);
        }
        let cases = cases(&work.workload, work.seed)?;
        if self.fail_flushes {
            return self.failing(&cases);
        }
        if let ([_], None) = (cases.as_slice(), &self.search.resume) {
            let make = |seed| work.case_of(seed);
            let source = Source::Seeded {
                journal: &work.journal,
                shape: work.shape(),
                make: &make,
            };
            return search(&source, &self.search, work.seed, work);
        }
        if let ([case], Some(resume)) = (cases.as_slice(), &self.search.resume) {
            // A search of one record goes on only with that record.
            let path = resume.with_extension("record");
            let recording = if path.exists() {
                Recording::load(&path)?
            } else {
                let made = Recording::make(&work.journal, work.shape(), case, work.seed)?;
                made.save(&path)?;
                made
            };
            return search(&Source::Record(&recording), &self.search, work.seed, work);
        }
        self.all(&cases, work)
    }

    fn below(&self, layer: Layer) -> Result<Answer> {
        let (work, search) = (&self.work, &self.search);
        let config = search.config(work.seed)?;
        let how = layers::How {
            layer,
            seed: work.seed,
            seconds: search.seconds,
            threads: config.threads,
            failures: config.failures,
        };
        let make = |seed| cases(&work.workload, seed);
        let out = search.out.clone().unwrap_or_else(|| "stetfs-crash".into());
        let outcome = layers::explore(how, &work.journal, work.shape(), &make, &out)?;
        let mut answer = Answer::new(outcome.text(), &outcome)?;
        answer.broken = outcome.failures > 0;
        answer.json_file.clone_from(&search.json_file);
        Ok(answer)
    }

    fn failing(&self, cases: &[Case]) -> Result<Answer> {
        let mut work = self.work.clone();
        let cases = failing(&work.journal, work.shape(), cases, work.seed)?;
        ensure!(!cases.is_empty(), "the workload flushes nothing");
        work.workload.push_str(" with failing flushes");
        self.all(&cases, &work)
    }

    fn all(&self, cases: &[Case], work: &WorkArgs) -> Result<Answer> {
        let source = Source::Cases {
            journal: &work.journal,
            shape: work.shape(),
            cases,
        };
        search(&source, &self.search, work.seed, work)
    }
}

impl RecordArgs {
    fn run(&self) -> Result<Answer> {
        let case = self.work.case(self.case)?;
        let recording =
            Recording::make(&self.work.journal, self.work.shape(), &case, self.work.seed)?;
        recording.save(&self.record)?;
        describe(&recording, &self.record)
    }
}

impl CompareArgs {
    fn run(&self) -> Result<Answer> {
        let binary = self.stetfs.path()?;
        let mut rows = Vec::new();
        for workload in &self.workloads {
            for system in &self.systems {
                rows.push(compare_one(system, workload, self.limits, &binary)?);
            }
        }
        let mut text = String::from(
            "system              workload       images  no mount    lost   names  versions  e2fsck  seconds\n",
        );
        for r in &rows {
            text.push_str(&format!(
                "{:19} {:13} {:>7} {:>9} {:>7} {:>7} {:>9} {:>3}/{:<3} {:>8.1}\n",
                r.system,
                r.workload,
                r.distinct,
                r.unmountable,
                r.lost,
                r.names,
                r.versions,
                r.fscks.1,
                r.fscks.0,
                r.seconds
            ));
        }
        for r in &rows {
            for example in &r.examples {
                text.push_str(&format!("{}, {}: {example}\n", r.system, r.workload));
            }
        }
        let mut answer = Answer::new(text, &rows)?;
        answer.broken = rows
            .iter()
            .any(|r| r.system.starts_with("stetfs") && r.unmountable + r.lost + r.fscks.1 > 0);
        Ok(answer)
    }
}

impl ForeignArgs {
    fn run(&self) -> Result<Answer> {
        let volume = Volume {
            features: self.features.clone(),
            block: self.block,
            options: self.options.clone(),
            keep: self.keep.clone(),
        };
        let mut text = String::new();
        let mut rows = Vec::new();
        for workload in &self.workloads {
            let row = foreign(&volume, workload, self.limits)?;
            text.push_str(&format!(
                "{}, {}: {} images, {} with fast commits, {:.1} s\n",
                row.volume, row.workload, row.distinct, row.fast, row.seconds
            ));
            for (reader, r) in &row.readers {
                text.push_str(&format!(
                    "  {:8} cannot recover {:>4}, lost {:>4}, unsound afterwards {:>4}\n",
                    format!("{reader:?}").to_lowercase(),
                    r.refused,
                    r.lost,
                    r.unsound
                ));
            }
            text.push_str(&format!(
                "  StetFS does worse with {}; shows something else than e2fsck {} times, than the kernel {} times\n",
                row.worse, row.differ.0, row.differ.1
            ));
            text.push_str(&format!(
                "  recovered again after a cut: {} of {} recoveries of StetFS come to something else, {} of {} mounts of the kernel\n",
                row.cut.1, row.cut.0, row.kernel_cut.1, row.kernel_cut.0
            ));
            for example in &row.examples {
                text.push_str(&format!("  {example}\n"));
            }
            rows.push(row);
        }
        let mut answer = Answer::new(text, &rows)?;
        answer.broken = rows.iter().any(|r| r.worse > 0);
        Ok(answer)
    }
}

impl FaultsArgs {
    fn run(&self) -> Result<Answer> {
        ensure!(
            self.work.region.is_none(),
            "the faults are those of devices: leave --region out"
        );
        let case = self.work.case(None)?;
        let recording =
            Recording::make(&self.work.journal, self.work.shape(), &case, self.work.seed)?;
        let all = crate::faults::try_all(&recording, self.each, self.work.seed)?;
        let mut text = format!(
            "{:16} {:>6} {:>8} {:>7} {:>7}\n",
            "fault", "tried", "correct", "errors", "silent"
        );
        let mut told = String::new();
        for t in &all {
            let name = serde_json::to_value(t.fault)?;
            let name = name.as_str().unwrap_or_default();
            text.push_str(&format!(
                "{name:16} {:>6} {:>8} {:>7} {:>7}{}\n",
                t.tried,
                t.correct,
                t.errors,
                t.silent,
                if t.is_defect() { "  DEFECT" } else { "" }
            ));
            if let Some(error) = &t.error {
                told.push_str(&format!("{name}, an error: {error}\n"));
            }
            if let Some(example) = &t.example {
                told.push_str(&format!("{name}, silent: {example}\n"));
                if let Some(excuse) = t.excuse {
                    told.push_str(&format!("  not detectable: {excuse}\n"));
                }
            }
        }
        let mut answer = Answer::new(text + &told, &all)?;
        answer.broken = all.iter().any(|t| t.is_defect());
        Ok(answer)
    }
}

impl ReportArgs {
    fn run(&self) -> Result<Answer> {
        let recording = Recording::load(&self.record)?;
        let (Some(state), Some(html)) = (&self.state, &self.html) else {
            return describe(&recording, &self.record);
        };
        let finding = judged(&recording, state)?.1.err();
        let broken = finding.is_some();
        let finding = finding.unwrap_or(Finding {
            oracle: Oracle::Promise,
            detail: "nothing is broken".into(),
        });
        let mut failure = Failure::describe(&recording, state, finding);
        failure.record = Some(self.record.display().to_string());
        let report = Report {
            journal: recording.header.journal.clone(),
            workload: recording.header.workload.clone(),
            block: recording.header.block,
            seed: recording.header.seed,
            share: recording.header.batches,
            region: recording.header.region,
            states_per_second: 0.0,
            outcome: Outcome {
                states: 1,
                distinct: 1,
                failures: u64::from(broken),
                findings: vec![failure],
                ..Outcome::default()
            },
        };
        let name = self.record.display().to_string();
        let page = html::page(&report, &BTreeMap::from([(name, recording)]));
        std::fs::write(html, page).with_context(|| format!("writing {}", html.display()))?;
        Answer::new(
            format!("look at it: {}\n", html.display()),
            json!({ "html": html, "broken": broken }),
        )
    }
}

fn describe(recording: &Recording, path: &Path) -> Result<Answer> {
    use stetfs_block::Event;
    use stetfs_nvm::What;
    let events = &recording.log.events;
    let count = |f: fn(&Event) -> bool| events.iter().filter(|e| f(e)).count();
    let count_region = |f: fn(&What) -> bool| {
        let events = recording.region.events.iter();
        events.filter(|e| f(&e.what)).count()
    };
    let bytes: usize = events
        .iter()
        .map(|e| match e {
            Event::Write { data, .. } => data.len(),
            _ => 0,
        })
        .sum();
    let operations: usize = recording.work.scripts.iter().map(|s| s.ops.len()).sum();
    let value = json!({
        "record": path,
        "workload": recording.header.workload,
        "journal": recording.header.journal,
        "block": recording.header.block,
        "seed": recording.header.seed,
        "threads": recording.work.scripts.len(),
        "operations": operations,
        "events": events.len(),
        "writes": count(|e| matches!(e, Event::Write { .. })),
        "fua": count(|e| matches!(e, Event::Write { fua: true, .. })),
        "flushes": count(|e| matches!(e, Event::Flush { .. })),
        "discards": count(|e| matches!(e, Event::Discard { .. })),
        "shares": recording.shares(),
        "bytes": bytes,
        "region": recording.header.region,
        "region_stores": count_region(|what| matches!(what, What::Store { .. })),
        "region_fences": count_region(|what| matches!(what, What::Fence)),
    });
    let text = value.as_object().map_or(String::new(), |fields| {
        let line = |(name, value): (&String, &Value)| match value {
            Value::String(s) => format!("{name:11} {s}\n"),
            other => format!("{name:11} {other}\n"),
        };
        fields.iter().map(line).collect()
    });
    Answer::new(text, value)
}

impl ExploreArgs {
    fn run(&self) -> Result<Answer> {
        let recording = Recording::load(&self.record)?;
        let work = WorkArgs {
            journal: recording
                .header
                .journal
                .parse()
                .map_err(anyhow::Error::msg)?,
            workload: recording.header.workload.clone(),
            seed: recording.header.seed,
            block: recording.header.block,
            journal_blocks: recording.header.journal_blocks,
            share: recording.header.batches,
            fua: recording.header.fua,
            region: recording.header.region,
        };
        search(&Source::Record(&recording), &self.search, self.seed, &work)
    }
}

fn search(source: &Source<'_>, args: &SearchArgs, seed: u64, work: &WorkArgs) -> Result<Answer> {
    let config = args.config(seed)?;
    let what = format!(
        "{}, {}, blocks of {}, journal of {}, seed {seed}{}{}{}",
        work.journal,
        work.workload,
        work.block,
        work.journal_blocks,
        match work.share {
            Batches::Torn => "",
            Batches::Atomic => ", atomic shares",
        },
        if work.fua { ", FUA" } else { "" },
        work.region
            .map_or(String::new(), |bytes| format!(", region of {bytes}")),
    );
    let mut progress = match &args.resume {
        Some(path) => Progress::load(path, &what)?,
        None => Progress::default(),
    };
    progress.what = what;
    let save = |p: &Progress| match &args.resume {
        Some(path) => p.save(path),
        None => Ok(()),
    };
    let mut outcome = explore(source, &config, &mut progress, &save)?;
    let kept = match outcome.failures {
        0 => None,
        _ => Some(keep(args, &mut outcome)?),
    };
    let report = Report {
        journal: work.journal.to_string(),
        workload: work.workload.clone(),
        block: work.block,
        seed,
        share: work.share,
        region: work.region,
        states_per_second: outcome.states_per_second(),
        outcome,
    };
    let mut answer = Answer::new(report.text(), &report)?;
    if let Some((dir, recordings)) = kept {
        let path = dir.join("report.html");
        std::fs::write(&path, html::page(&report, &recordings))
            .with_context(|| format!("writing {}", path.display()))?;
        answer
            .text
            .push_str(&format!("\nlook at it: {}\n", path.display()));
    }
    answer.broken = report.outcome.failures > 0;
    answer.json_file.clone_from(&args.json_file);
    Ok(answer)
}

/// Failures that are shrunk.
const SHRUNK: usize = 2;
/// Time for each.
const SHRINK: Duration = Duration::from_secs(40);

/// Saves the records of failures, and shrinks the first of each kind.
fn keep(
    args: &SearchArgs,
    outcome: &mut Outcome,
) -> Result<(PathBuf, BTreeMap<String, Recording>)> {
    let dir = args.out.clone().unwrap_or_else(|| "stetfs-crash".into());
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mut records: HashMap<String, (Recording, String)> = HashMap::new();
    for (case, recording) in std::mem::take(&mut outcome.records) {
        let path = save(&dir, &case, &recording)?;
        records.insert(case, (recording, path));
    }
    let mut all: BTreeMap<String, Recording> =
        records.values().cloned().map(|(r, p)| (p, r)).collect();
    let mut shrunk = Vec::new();
    for failure in &mut outcome.findings {
        // Those of an earlier run, resumed, have theirs.
        let Some((recording, path)) = records.get(&failure.case) else {
            continue;
        };
        failure.record = Some(path.clone());
        let kind = failure.finding.oracle;
        if !args.no_shrink && shrunk.len() < SHRUNK && !shrunk.contains(&kind) {
            shrunk.push(kind);
            let (mut small, record) = shrink(recording, failure, Instant::now() + SHRINK)?;
            let path = save(&dir, &format!("{}-small", failure.case), &record)?;
            small.record = Some(path.clone());
            all.insert(path, record);
            failure.shrunk = Some(Box::new(small));
        }
    }
    Ok((dir, all))
}

fn save(dir: &Path, case: &str, recording: &Recording) -> Result<String> {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = case.chars().map(safe).collect();
    let preset: String = recording.header.journal.chars().map(safe).collect();
    let path = dir.join(format!("{preset}-{name}-{}.record", recording.header.seed));
    recording.save(&path)?;
    Ok(path.display().to_string())
}

/// The image that a crash leaves, and what all oracles say of it: the crashes inside its
/// recoveries, or what is broken.
fn judged(recording: &Recording, state: &StateId) -> Result<(Crashed, Result<Cuts, Finding>)> {
    let (log, work) = (&recording.log, &recording.work);
    ensure!(
        state.event <= log.len(),
        "the record has only {} events",
        log.len()
    );
    let most = recording.region.len();
    ensure!(
        state.region.is_none_or(|region| region.event <= most),
        "the record of the region has only {most} events"
    );
    let image = recording.crashed(state);
    let progress = work.progress_at(log, state.event);
    let result = work
        .check(&image, &progress, Checks::ALL)
        .and_then(|()| work.check_cut_recovery(&image, &progress));
    Ok((image, result))
}

impl RepeatArgs {
    fn run(&self) -> Result<Answer> {
        let recording = Recording::load(&self.record)?;
        let (image, result) = judged(&recording, &self.state)?;
        if let Some(path) = &self.keep {
            let written = || format!("writing {}", path.display());
            image.device.save(path).with_context(written)?;
            if let Some(region) = &image.region {
                let path = path.with_extension("region");
                std::fs::write(&path, region.to_vec())
                    .with_context(|| format!("writing {}", path.display()))?;
            }
        }
        let finding = match result {
            Ok(cuts) => {
                return Answer::new(
                    format!(
                        "no promise is broken, nor after any of {} crashes inside the recovery and {} inside the second\n",
                        cuts.first, cuts.second
                    ),
                    json!({
                        "broken": false,
                        "recovery_cuts": cuts.first,
                        "second_recovery_cuts": cuts.second,
                    }),
                );
            }
            Err(finding) => finding,
        };
        let mut failure = Failure::describe(&recording, &self.state, finding);
        failure.record = Some(self.record.display().to_string());
        if let Some(seconds) = self.shrink {
            let time = Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
            let (mut small, record) = shrink(&recording, &failure, Instant::now() + time)?;
            let path = self.record.with_extension("small.record");
            record.save(&path)?;
            small.record = Some(path.display().to_string());
            failure.shrunk = Some(Box::new(small));
        }
        let mut answer = Answer::new(
            failure.text(),
            json!({ "broken": true, "failure": failure }),
        )?;
        answer.broken = true;
        Ok(answer)
    }
}
