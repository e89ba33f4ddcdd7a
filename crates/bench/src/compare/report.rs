//! The result: numbers, and how they are shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Counters;
use super::figure;
use super::stats::median;
use super::work::Outcome;

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Rates.
    Higher,
    /// Latencies.
    Lower,
}

/// One metric of one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// Of each round, in order.
    pub rounds: Vec<f64>,
    /// Over the rounds.
    pub median: f64,
    /// This median by that of the first target.
    pub ratio: f64,
    /// What the block device got per operation (median over the rounds), where there is one.
    pub device: Option<Counters>,
}

impl Value {
    /// How much better than the first target: above 1 is better, whichever direction is good.
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

/// One metric, of all targets in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Metric {
    /// The workload it is from.
    pub workload: String,
    /// What it is.
    pub title: String,
    /// Of the values.
    pub unit: String,
    /// Which direction is good.
    pub better: Better,
    /// One value per target.
    pub values: Vec<Value>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Names of the targets; ratios are to the first.
    pub targets: Vec<String>,
    /// Rounds per workload and target.
    pub rounds: u32,
    /// Kernel, processors, memory.
    pub machine: String,
    /// All metrics, in the order of the workloads.
    pub metrics: Vec<Metric>,
    /// Workloads that could not run, with the reason.
    pub skipped: Vec<String>,
}

impl Report {
    pub(crate) fn new(targets: &[String], rounds: u32) -> Self {
        Self {
            targets: targets.to_vec(),
            rounds,
            machine: machine(),
            metrics: Vec::new(),
            skipped: Vec::new(),
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
                        measured.iter().filter_map(|m| m.device).collect();
                    Value {
                        median: median(&rounds),
                        rounds,
                        ratio: 1.0,
                        device: median_counters(&counters),
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
                unit: sample.unit.to_owned(),
                better: sample.better,
                values,
            });
        }
    }

    /// As JSON.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// As a table for a terminal.
    pub fn text(&self) -> String {
        let (header, rows) = self.cells();
        let mut widths: Vec<usize> = header.iter().map(|c| c.chars().count()).collect();
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut out = String::new();
        for row in std::iter::once(&header).chain(&rows) {
            for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = " ".repeat(width - cell.chars().count());
                let _ = if i == 0 {
                    write!(out, "{cell}{gap}")
                } else {
                    write!(out, "  {gap}{cell}")
                };
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        out.push_str(&self.notes());
        out
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let (header, rows) = self.cells();
        let mut out = format!(
            "| {} |\n|{}\n",
            header.join(" | "),
            " --- |".repeat(header.len())
        );
        for row in rows {
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
        let _ = write!(out, "\n{}", self.notes());
        out
    }

    fn notes(&self) -> String {
        let mut out = format!(
            "Medians of {} rounds (× ratio to {}); (w, f, KiB): writes, flushes and KiB written at the block device per operation.\n{}\n",
            self.rounds,
            self.targets.first().map_or("", String::as_str),
            self.machine
        );
        for skipped in &self.skipped {
            let _ = writeln!(out, "Not run: {skipped}");
        }
        out
    }

    fn cells(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut header = vec![String::new()];
        header.extend(self.targets.iter().cloned());
        let rows = self
            .metrics
            .iter()
            .map(|metric| {
                let mut row = vec![format!("{} ({})", metric.title, metric.unit)];
                row.extend(
                    metric
                        .values
                        .iter()
                        .enumerate()
                        .map(|(i, v)| cell(v, i == 0)),
                );
                row
            })
            .collect();
        (header, rows)
    }

    /// Writes `compare.txt`, `compare.md`, `compare.json` and `compare.svg` into `dir`, which is made if lacking.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("mkdir {}", dir.display()))?;
        let write = |name: &str, content: String| {
            let path = dir.join(name);
            std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
        };
        write("compare.txt", self.text())?;
        write("compare.md", self.markdown())?;
        write("compare.json", self.json()?)?;
        write("compare.svg", self.svg()?)
    }

    /// A bar figure of the advantages over the first target.
    pub fn svg(&self) -> Result<String> {
        figure::draw(self)
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

/// Three significant digits, thousands as k.
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

fn median_counters(all: &[Counters]) -> Option<Counters> {
    if all.is_empty() {
        return None;
    }
    let of = |field: fn(&Counters) -> f64| median(&all.iter().map(field).collect::<Vec<_>>());
    Some(Counters {
        writes: of(|c| c.writes),
        flushes: of(|c| c.flushes),
        written_kib: of(|c| c.written_kib),
        read_kib: of(|c| c.read_kib),
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
    format!("Linux {kernel}, {processors} processors, {memory} GiB")
}
