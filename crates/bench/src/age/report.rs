//! The report: the judge's measurements of all peers, side by side.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use super::config::AgeConfig;
use super::judge::Aged;
use crate::compare::table::{self, Table};

/// The state after a phase.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Fullness of the volume, 0 to 1.
    pub full: f64,
    /// Time spent on filling so far, seconds.
    pub fill_seconds: f64,
    /// Time of each day of use, seconds.
    pub day_seconds: Vec<f64>,
    /// The measurements of the volume.
    pub aged: Aged,
}

impl Stage {
    /// Mean seconds per day, over a part of the days.
    fn seconds(&self, last: bool) -> f64 {
        let third = self.day_seconds.len().div_ceil(3);
        let days = if last {
            self.day_seconds.get(self.day_seconds.len() - third..)
        } else {
            self.day_seconds.get(..third)
        };
        let days = days.unwrap_or_default();
        days.iter().sum::<f64>() / days.len().max(1) as f64
    }
}

/// One file system's life.
#[derive(Clone, Debug, Serialize)]
pub struct Life {
    /// Its name.
    pub peer: String,
    /// Its stages, one per phase.
    pub stages: Vec<Stage>,
}

/// All lives.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seed of the script.
    pub seed: u64,
    /// Size of each image, bytes.
    pub image_bytes: u64,
    /// Amount written per day, as a fraction of the volume.
    pub churn: f64,
    /// The lives; ratios are relative to the first.
    pub lives: Vec<Life>,
    #[serde(skip)]
    names: Vec<String>,
}

impl Report {
    pub(super) fn new(config: &AgeConfig) -> Self {
        Self {
            seed: config.seed,
            image_bytes: config.image_bytes,
            churn: config.churn,
            lives: Vec::new(),
            names: config.peers.iter().map(|p| p.name.clone()).collect(),
        }
    }

    pub(super) fn add(&mut self, stages: Vec<Stage>) {
        if let Some(name) = self.names.get(self.lives.len()) {
            let peer = name.clone();
            self.lives.push(Life { peer, stages });
        }
    }

    /// The ratio of this peer's extents to the first peer's after this phase.
    pub fn extents_ratio(&self, peer: usize, phase: usize) -> Option<f64> {
        let extents = |peer: usize| {
            let stage = self.lives.get(peer)?.stages.get(phase)?;
            Some(stage.aged.extents as f64)
        };
        Some(extents(peer)? / extents(0)?.max(1.0))
    }

    fn phases(&self) -> usize {
        self.lives.first().map_or(0, |life| life.stages.len())
    }

    fn tables(&self) -> Vec<(String, Table)> {
        (0..self.phases())
            .map(|phase| {
                let stages: Vec<&Stage> = self
                    .lives
                    .iter()
                    .filter_map(|life| life.stages.get(phase))
                    .collect();
                let title = stages.first().map_or_else(String::new, |s| {
                    format!(
                        "{:.0} % full, after {} days",
                        s.full * 100.0,
                        s.day_seconds.len()
                    )
                });
                (title, self.table(&stages))
            })
            .collect()
    }

    fn table(&self, stages: &[&Stage]) -> Table {
        let mut head = vec![String::new()];
        head.extend(self.lives.iter().map(|life| life.peer.clone()));
        let mut table = vec![head];
        let mut row = |title: &str, digits: usize, ratio: bool, f: &dyn Fn(&Stage) -> f64| {
            let first = stages.first().map_or(0.0, |s| f(s));
            let mut row = vec![title.to_owned()];
            row.extend(stages.iter().enumerate().map(|(i, s)| {
                let value = f(s);
                if ratio && i > 0 && first > 0.0 {
                    format!("{value:.digits$} ({:.2}×)", value / first)
                } else {
                    format!("{value:.digits$}")
                }
            }));
            table.push(row);
        };
        row("files", 0, false, &|s| s.aged.files as f64);
        row("MiB in them", 0, false, &|s| s.aged.mib);
        row("extents", 0, true, &|s| s.aged.extents as f64);
        row("extents beyond one a file", 0, true, &|s| {
            s.aged.breaks() as f64
        });
        row("extents a MiB", 2, true, &|s| s.aged.per_mib());
        row("files of several extents", 0, true, &|s| {
            s.aged.broken as f64
        });
        row("extents of the 90 % file", 0, false, &|s| {
            s.aged.ranks[1] as f64
        });
        row("extents of the 99 % file", 0, false, &|s| {
            s.aged.ranks[2] as f64
        });
        row("most extents of a file", 0, false, &|s| {
            s.aged.ranks[3] as f64
        });
        row("free runs", 0, true, &|s| s.aged.free_runs as f64);
        row("mean free run, KiB", 0, true, &|s| {
            s.aged.free_run_mib() * 1024.0
        });
        row("longest free run, MiB", 1, true, &|s| s.aged.longest_mib);
        row("files in their directory's group, %", 0, true, &|s| {
            s.aged.with_directory * 100.0
        });
        row("file to its directory, MiB", 0, true, &|s| {
            s.aged.distance_mib
        });
        row("file to file in a directory, MiB", 1, true, &|s| {
            s.aged.spread_mib
        });
        row("filling, s", 1, true, &|s| s.fill_seconds);
        row("a day of the first third, s", 2, true, &|s| {
            s.seconds(false)
        });
        row("a day of the last third, s", 2, true, &|s| s.seconds(true));
        table
    }

    fn head(&self) -> String {
        format!(
            "seed {}, {} MiB, {:.0} % of it written a day",
            self.seed,
            self.image_bytes >> 20,
            self.churn * 100.0
        )
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.head());
        for (title, table) in self.tables() {
            let _ = writeln!(out, "\n{title}\n{}", table::text(&table));
        }
        out
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("{}\n", self.head());
        for (title, table) in self.tables() {
            let _ = writeln!(out, "\n## {title}\n\n{}", table::markdown(&table));
        }
        out
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// A number that JSON cannot express.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
