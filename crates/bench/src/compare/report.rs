//! The report: the results, as text, Markdown, JSON and tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::stats::median;
use super::table::{self, Table};
use super::work::{Better, Outcome};
use super::{Counters, Packing, Waits, Worn};

/// The result of one metric on one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// The value of each round, in order.
    pub rounds: Vec<f64>,
    /// The median over the rounds.
    pub median: f64,
    /// The ratio of this median to that of the first target.
    pub ratio: f64,
    /// Requests to the block device per operation (median over the rounds), if there is one.
    pub device: Option<Counters>,
    /// Wear of its flash (median over the rounds), if it is simulated.
    #[serde(default)]
    pub worn: Option<Worn>,
    /// Activity of the journal (median over the rounds), for mounts of StetFS.
    #[serde(default)]
    pub log: Option<Packing>,
    /// Waits and copies of changes (median over the rounds), for StetFS.
    #[serde(default)]
    pub waits: Option<Waits>,
}

impl Value {
    /// The advantage over the first target: above 1 is better, whichever direction is good.
    pub fn advantage(&self, better: Better) -> f64 {
        match better {
            Better::Higher => self.ratio,
            Better::Lower if self.ratio > 0.0 => 1.0 / self.ratio,
            Better::Lower => 0.0,
        }
    }

    fn extremes(&self) -> (f64, f64) {
        self.rounds
            .iter()
            .fold((f64::INFINITY, 0.0), |(low, high), v| {
                (low.min(*v), v.max(high))
            })
    }
}

/// One metric, with the values of all targets in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Metric {
    /// The workload it is from.
    pub workload: String,
    /// The title.
    pub title: String,
    /// The unit of the values.
    pub unit: String,
    /// The direction that is good.
    pub better: Better,
    /// One value per target.
    pub values: Vec<Value>,
}

/// A paper's value for a metric.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// The index of the metric.
    pub metric: usize,
    /// The index of the target.
    pub target: usize,
    /// The advantage over the first target.
    pub advantage: f64,
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Names of the targets; ratios are relative to the first.
    pub targets: Vec<String>,
    /// Number of rounds per workload and target.
    pub rounds: u32,
    /// Kernel, processors and their idle driver, memory.
    pub machine: String,
    /// All metrics, in the order of the workloads.
    pub metrics: Vec<Metric>,
    /// Workloads that could not run, with the reason.
    pub skipped: Vec<String>,
    /// Differences between the targets other than the file system.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The paper's values, for figures.
    #[serde(default)]
    pub paper: Vec<Mark>,
}

impl Report {
    pub(crate) fn new(targets: &[String], rounds: u32) -> Self {
        Self {
            targets: targets.to_vec(),
            rounds,
            machine: machine(),
            metrics: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
            paper: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, workload: &str, outcomes: &BTreeMap<usize, Vec<Outcome>>) {
        let Some(first) = outcomes.get(&0).and_then(|runs| runs.first()) else {
            return;
        };
        for (i, sample) in first.iter().enumerate() {
            let mut values: Vec<Value> = outcomes
                .values()
                .map(|runs| {
                    let measured: Vec<_> = runs.iter().filter_map(|run| run.get(i)).collect();
                    let rounds: Vec<f64> = measured.iter().map(|m| m.value).collect();
                    let counters: Vec<Counters> =
                        measured.iter().filter_map(|m| m.below.device).collect();
                    let worn: Vec<Worn> = measured.iter().filter_map(|m| m.below.worn).collect();
                    let logs: Vec<Packing> = measured.iter().filter_map(|m| m.below.log).collect();
                    let waits: Vec<Waits> = measured.iter().filter_map(|m| m.below.waits).collect();
                    Value {
                        median: median(&rounds),
                        rounds,
                        ratio: 1.0,
                        device: median_counters(&counters),
                        worn: median_worn(&worn),
                        log: median_packing(&logs),
                        waits: median_waits(&waits),
                    }
                })
                .collect();
            let base = values.first().map_or(0.0, |v| v.median);
            for value in &mut values {
                value.ratio = if base > 0.0 { value.median / base } else { 0.0 };
            }
            self.metrics.push(Metric {
                workload: workload.to_owned(),
                title: sample.title.clone(),
                unit: sample.unit.clone(),
                better: sample.better,
                values,
            });
        }
    }

    /// The report as JSON.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// The report as tables for a terminal.
    pub fn text(&self) -> String {
        self.lay_out(table::text)
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        self.lay_out(table::markdown)
    }

    fn lay_out(&self, table: fn(&Table) -> String) -> String {
        let mut out = format!("{}\n{}", table(&self.speeds()), self.explained());
        if let Some(worn) = self.where_known(|v| v.worn.as_ref().map(worn)) {
            let _ = write!(
                out,
                "\n{}\nPages programmed for each that the host wrote (WAF), blocks erased for 1,000 operations, pages shared per operation.\n",
                table(&worn)
            );
        }
        if let Some(packing) = self.packing() {
            let _ = write!(
                out,
                "\n{}\nBytes logged by bytes of the images (processor time of packing per transaction).\n",
                table(&packing)
            );
        }
        if let Some(home) = self.homes() {
            let _ = write!(
                out,
                "\n{}\nBlocks that checkpoints shared home + wrote home in a round.\n",
                table(&home)
            );
        }
        if let Some(waits) = self.waits() {
            let _ = write!(
                out,
                "\n{}\nPer operation: microseconds that changes waited for a transaction's snapshot + for room in the log, and spent copying pages.\n",
                table(&waits)
            );
        }
        out
    }

    fn explained(&self) -> String {
        let mut out = format!(
            "Medians of {} rounds (× ratio to {}); (w, f, KiB): writes, flushes and KiB written at the block device per operation, without what a journal sends home later. Linux counts a flush that goes alone as a write, too: a write and a flush after it are (2, 1).\n{}\n",
            self.rounds,
            self.targets.first().map_or("", String::as_str),
            self.machine
        );
        for note in &self.notes {
            let _ = writeln!(out, "{note}");
        }
        for skipped in &self.skipped {
            let _ = writeln!(out, "Not run: {skipped}");
        }
        out
    }

    fn header(&self) -> Vec<String> {
        std::iter::once(String::new())
            .chain(self.targets.iter().cloned())
            .collect()
    }

    fn speeds(&self) -> Table {
        let rows = self.metrics.iter().map(|metric| {
            std::iter::once(format!("{} ({})", metric.title, metric.unit))
                .chain(
                    metric
                        .values
                        .iter()
                        .enumerate()
                        .map(|(i, v)| cell(v, i == 0)),
                )
                .collect()
        });
        std::iter::once(self.header()).chain(rows).collect()
    }

    /// The compression of each workload, if a target reports it.
    fn packing(&self) -> Option<Table> {
        self.where_known(|v| v.log.as_ref().map(packed))
    }

    /// The blocks written to home locations, for metrics in which a target shares.
    fn homes(&self) -> Option<Table> {
        let shares = |m: &Metric| {
            m.values
                .iter()
                .any(|v| v.log.is_some_and(|l| l.shared > 0.0))
        };
        let any = self.metrics.iter().any(shares);
        let home = |log: &Packing| format!("{:.0} + {:.0}", log.shared, log.copied);
        any.then(|| self.where_known(|v| v.log.as_ref().map(home)))?
    }

    /// The waits and copies of changes, for metrics that have any.
    fn waits(&self) -> Option<Table> {
        self.where_known(|v| v.waits.as_ref().filter(|w| w.any()).map(waited))
    }

    /// A table with a cell for each value, for metrics that have any.
    fn where_known(&self, cell: impl Fn(&Value) -> Option<String>) -> Option<Table> {
        let rows: Table = self
            .metrics
            .iter()
            .map(|metric| (metric, metric.values.iter().map(&cell).collect::<Vec<_>>()))
            .filter(|(_, cells)| cells.iter().any(Option::is_some))
            .map(|(metric, cells)| {
                let cells = cells.into_iter().map(|c| c.unwrap_or_else(|| "–".into()));
                std::iter::once(metric.title.clone()).chain(cells).collect()
            })
            .collect();
        (!rows.is_empty()).then(|| std::iter::once(self.header()).chain(rows).collect())
    }
}

fn cell(value: &Value, first: bool) -> String {
    let (low, high) = value.extremes();
    let mut out = number(value.median);
    if !first {
        let _ = write!(out, " ×{:.2}", value.ratio);
    }
    if value.rounds.len() > 1 {
        let _ = write!(out, " [{}–{}]", number(low), number(high));
    }
    if let Some(d) = value.device
        && d.writes + d.flushes > 0.0
    {
        let _ = write!(
            out,
            " ({}, {}, {})",
            number(d.writes),
            number(d.flushes),
            number(d.written_kib)
        );
    }
    out
}

/// The ratio and the time of compression.
fn packed(log: &Packing) -> String {
    format!("{} ({})", number(log.ratio), time(log.micros))
}

/// Write amplification, erasures, pages shared.
fn worn(w: &Worn) -> String {
    let [waf, erases, shares] = [w.waf, w.erases, w.shares].map(number);
    format!("{waf}, {erases}, {shares}")
}

/// Time of waits for a snapshot + for space, and of copies.
fn waited(w: &Waits) -> String {
    let [locked, room, copying] = [w.locked_micros, w.room_micros, w.copying_micros].map(number);
    format!("{locked} + {room}, {copying}")
}

fn time(micros: f64) -> String {
    match micros {
        v if v >= 1e6 => format!("{} s", number(v / 1e6)),
        v if v >= 1e3 => format!("{} ms", number(v / 1e3)),
        v => format!("{} µs", number(v)),
    }
}

impl Value {
    /// Activity of the block device and the journal, in short form for figures.
    pub(super) fn below(&self) -> String {
        let written = self
            .device
            .filter(|d| d.written_kib > 0.0)
            .map(|d| format!("{} KiB", number(d.written_kib)));
        let packed = self
            .log
            .filter(|log| log.micros > 0.0)
            .map(|log| format!("packed {}", packed(&log)));
        let both: Vec<String> = written.into_iter().chain(packed).collect();
        both.join(", ")
    }
}

/// The number with three significant digits, thousands as k.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 99_950.0 => format!("{:.0}k", value / 1e3),
        v if v >= 9_995.0 => format!("{:.1}k", value / 1e3),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v < 0.005 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

/// Builds a `T` from the medians of its fields; `None` for an empty slice.
fn medians<T>(all: &[T], build: impl FnOnce(&dyn Fn(fn(&T) -> f64) -> f64) -> T) -> Option<T> {
    let of = |field: fn(&T) -> f64| median(&all.iter().map(field).collect::<Vec<_>>());
    (!all.is_empty()).then(|| build(&of))
}

fn median_counters(all: &[Counters]) -> Option<Counters> {
    medians(all, |of| Counters {
        writes: of(|c| c.writes),
        flushes: of(|c| c.flushes),
        written_kib: of(|c| c.written_kib),
        read_kib: of(|c| c.read_kib),
    })
}

fn median_worn(all: &[Worn]) -> Option<Worn> {
    medians(all, |of| Worn {
        waf: of(|w| w.waf),
        erases: of(|w| w.erases),
        shares: of(|w| w.shares),
    })
}

fn median_waits(all: &[Waits]) -> Option<Waits> {
    medians(all, |of| Waits {
        locked: of(|w| w.locked),
        locked_micros: of(|w| w.locked_micros),
        room: of(|w| w.room),
        room_micros: of(|w| w.room_micros),
        copies: of(|w| w.copies),
        copying_micros: of(|w| w.copying_micros),
    })
}

fn median_packing(all: &[Packing]) -> Option<Packing> {
    medians(all, |of| Packing {
        commits: of(|p| p.commits),
        ratio: of(|p| p.ratio),
        micros: of(|p| p.micros),
        shared: of(|p| p.shared),
        copied: of(|p| p.copied),
    })
}

fn machine() -> String {
    let kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|t| {
            t.lines()
                .next()?
                .split_whitespace()
                .nth(1)?
                .parse::<u64>()
                .ok()
        })
        .map_or(0, |kib| kib >> 20);
    // It determines the wake-up time of a sleeping processor, and so much of the results.
    let idle = stetfs_fuse::idle_driver().unwrap_or_else(|| "unknown".into());
    format!("Linux {kernel}, {processors} processors (cpuidle driver: {idle}), {memory} GiB")
}
