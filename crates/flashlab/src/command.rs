//! The subcommands `stetfs flash run` and `stetfs flash trace`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use stetfs_cache::PolicyKind;
use stetfs_flash::ftl::{Ageing, FtlKind};

use crate::generate::Workload;
use crate::run::{Outcome, Setup, run};
use crate::trace::{self, Dialect, Summary, Trace};

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The rows of a table; the first is its header.
    pub table: Vec<Vec<String>>,
    /// The whole result as JSON.
    pub json: Value,
}

/// The source of a trace.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Trace to use: a file, or the name of a generated one (video, mixed, dbench or tpcc; held
    /// out: video-b, mixed-b, dbench-b, tpcc-b, mail, build or wal).
    trace: PathBuf,
    /// Format of the file: csv, msr, blkparse or fiu [default: a trace of StetFS, or csv].
    #[arg(long)]
    format: Option<Dialect>,
    /// Seed of a generated trace.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of a generated trace, as a part of the paper's length.
    #[arg(long, default_value_t = 1.0, value_name = "PART")]
    part: f64,
}

impl TraceArgs {
    /// Loads the file of that name if there is one, else generates the trace.
    fn load(&self) -> Result<Trace> {
        let generated = self.trace.to_str();
        let generated = generated.and_then(|name| Workload::from_str(name, false).ok());
        match generated {
            Some(workload) if !self.trace.exists() => Ok(workload.generate(self.seed, self.part)),
            _ => Trace::load(&self.trace, self.format)
                .with_context(|| self.trace.display().to_string()),
        }
    }
}

/// Arguments of `flash run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// Replacement policy to run: lru, clock, clock-68, linux2q, cflru, fab, lb-clock, sp-clock,
    /// ts-clock or gd-erase; or all.
    #[arg(long, value_name = "NAME", default_value = "all", value_delimiter = ',', value_parser = policies)]
    policy: Vec<Policies>,
    /// Translation layer: page, fast, or bast or bast,logs=N (N log blocks, 4 unless given).
    #[arg(long, value_name = "NAME", default_value = "fast")]
    ftl: FtlKind,
    /// Medium, which sets the times of the flash: microsd or ssd.
    #[arg(long, value_name = "NAME", default_value = "microsd")]
    medium: crate::Medium,
    /// Size of the cache.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size)]
    cache: u64,
    /// Size of an erase block.
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size)]
    erase_block: u64,
    /// Capacity of the device.
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = size)]
    capacity: u64,
    /// Spare erase blocks in percent.
    #[arg(long, default_value_t = 15)]
    spare: u32,
    /// Start with a new device, without any former writes.
    #[arg(long)]
    fresh: bool,
}

/// One policy, or all policies.
#[derive(Clone, Copy, Debug)]
enum Policies {
    One(PolicyKind),
    All,
}

fn policies(text: &str) -> Result<Policies, String> {
    match text {
        "all" => Ok(Policies::All),
        _ => match text.parse::<PolicyKind>() {
            Ok(kind) => Ok(Policies::One(kind)),
            Err(e) => Err(format!("{e}, and all")),
        },
    }
}

/// Parses a number of bytes, with an optional K, M, G or T.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err("must be a number with K, M, G or T".into()),
    };
    let n: u64 = digits
        .parse()
        .map_err(|_| "must be a number with K, M, G or T")?;
    n.checked_mul(1 << shift)
        .ok_or_else(|| "is too large".into())
}

/// A progress bar on the terminal.
pub(crate) fn bar(pages: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(pages);
    let style =
        ProgressStyle::with_template("{msg:22} [{wide_bar}] {percent}% {per_sec} left {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

impl RunArgs {
    /// Runs the trace with each policy.
    ///
    /// # Errors
    /// The trace cannot be loaded, or the device is impossible.
    pub fn run(&self) -> Result<Answer> {
        let trace = self.trace.load()?;
        let mut kinds = Vec::new();
        for policy in &self.policy {
            match policy {
                Policies::One(kind) => kinds.push(*kind),
                Policies::All => kinds.extend(PolicyKind::ALL),
            }
        }
        let mut setup = Setup {
            policy: PolicyKind::default(),
            cache: self.cache,
            ftl: self.ftl,
            medium: self.medium,
            capacity: self.capacity,
            erase_block: self.erase_block,
            spare: self.spare,
            ageing: (!self.fresh).then_some(Ageing::FULL),
            costs: crate::run::costs(self.ftl),
        };
        let aged = setup.device()?;
        let pages = trace.pages();
        let mut outcomes = Vec::new();
        for policy in kinds {
            setup.policy = policy;
            let bar = bar(pages, policy.name());
            let outcome = run(&trace, &setup, &mut aged.duplicate(), &mut |n| bar.inc(n))?;
            bar.finish_and_clear();
            outcomes.push(outcome);
        }
        Ok(Answer {
            table: table(&outcomes),
            json: json!({ "trace": trace.summary(), "outcomes": outcomes }),
        })
    }
}

fn table(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let head = [
        "policy",
        "hit %",
        "read MiB",
        "written MiB",
        "runs",
        "elapsed s",
        "WAF",
        "erases",
        "Mpages/s",
    ];
    let mib = |pages: u64| format!("{:.0}", pages as f64 / 256.0);
    let row = |o: &Outcome| {
        vec![
            o.policy.to_owned(),
            format!("{:.2}", 100.0 * o.hit_ratio),
            mib(o.cache.reads),
            mib(o.cache.writes),
            o.device.write_runs.to_string(),
            format!("{:.1}", o.device.elapsed as f64 / 1e9),
            format!("{:.2}", o.device.waf),
            o.device.flash.erases.to_string(),
            format!("{:.2}", o.pages as f64 / o.seconds / 1e6),
        ]
    };
    let head = head.map(str::to_owned).to_vec();
    [head].into_iter().chain(outcomes.iter().map(row)).collect()
}

/// The subcommand to run.
#[derive(Clone, Debug, Subcommand)]
pub enum TraceCommand {
    /// Show how much a trace reads and writes.
    Info(TraceArgs),
    /// Save a trace, from a file or generated, in StetFS's format.
    Convert(ConvertArgs),
}

/// Arguments of `flash trace convert`.
#[derive(Clone, Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// File to write.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

impl TraceCommand {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The trace cannot be loaded or saved.
    pub fn run(&self) -> Result<Answer> {
        let trace = match self {
            TraceCommand::Info(args) => args.load()?,
            TraceCommand::Convert(args) => {
                let trace = args.trace.load()?;
                save(&trace, &args.out)?;
                trace
            }
        };
        let summary = trace.summary();
        Ok(Answer {
            table: vec![summary_head(), summary_row(&summary)],
            json: json!(summary),
        })
    }
}

/// The header of a table of summaries.
pub fn summary_head() -> Vec<String> {
    let head = [
        "requests",
        "read MiB",
        "written MiB",
        "range MiB",
        "pages written once MiB",
    ];
    head.map(str::to_owned).to_vec()
}

/// A row of this table.
pub fn summary_row(summary: &Summary) -> Vec<String> {
    vec![
        summary.requests.to_string(),
        format!("{:.1}", summary.read_mib),
        format!("{:.1}", summary.written_mib),
        format!("{:.1}", summary.write_range_mib),
        format!("{:.1}", summary.write_footprint_mib),
    ]
}

fn save(trace: &Trace, out: &Path) -> Result<()> {
    if out.exists() {
        bail!("{} exists already", out.display());
    }
    std::fs::write(out, trace::write(trace)).with_context(|| out.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4M"), Ok(4 << 20));
        assert_eq!(size("512"), Ok(512));
        assert!(size("M").is_err() && size("4X").is_err() && size("99999999T").is_err());
    }
}
