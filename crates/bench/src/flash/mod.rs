//! The flash laboratory's figures: computed by `stetfs_flashlab`, drawn here.

pub(crate) mod draw;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use stetfs_flashlab::figure::{Card, Figure, Name, Panel, Scale};

use crate::compare::table;
use crate::files::write_all;
use draw::QUICK;

/// Arguments of `flash figure`.
#[derive(Clone, Debug, Args)]
pub struct FlashFigureArgs {
    /// Which one, by its number in the dissertation.
    name: Name,
    /// A first look: parts of the traces, fewer sizes.
    #[arg(long)]
    quick: bool,
    /// The seed of the traces.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compare the policies where the traces are cut, too, and with more seeds (three, if --seeds
    /// does not say): medians and ranges beside what the paper claims. For 2-4, 2-6, 2-8, 2-9
    /// and held-out.
    #[arg(long, value_name = "PART,…", num_args = 0.., value_delimiter = ',', default_missing_values = CUTS)]
    cuts: Option<Vec<f64>>,
    /// How many seeds, from --seed on.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Run each trace first until the device's spare blocks were turned over once, and measure
    /// then: what the ageing left no longer shows. For 2-4, 2-6, 2-8, 2-9 and held-out.
    #[arg(long)]
    steady: bool,
    /// Only this device. For held-out and fitted.
    #[arg(long, value_name = "NAME")]
    device: Option<Card>,
    /// What was recorded (stetfs flash trace record), each file *.trace in this directory: in
    /// place of the generated traces of held-out; of fitted a judge beside them.
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,
    /// Also write tables, JSON and SVG into this directory. Each run of 2-4, 2-6 to 2-9, held-out
    /// and fitted is kept there when it is done (flash-points.jsonl), and the same program
    /// goes on from there.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Where traces are cut, beside their ends.
const CUTS: [&str; 7] = [".2", ".28", ".33", ".4", ".5", ".6", ".75"];

impl FlashFigureArgs {
    /// Computes the figure: as text, and as JSON.
    ///
    /// # Errors
    /// A file cannot be written; a figure that has no traces to cut.
    pub fn run(&self) -> Result<(String, serde_json::Value)> {
        let matrix = self.cuts.is_some() || self.steady || self.seeds.is_some();
        if matrix && !self.name.has_cuts() {
            bail!("--cuts, --seeds and --steady are for figures 2-4, 2-6, 2-8, 2-9 and held-out");
        }
        let ours = self.device.is_some() || self.recorded.is_some();
        if ours && !self.name.has_devices() {
            bail!("--device and --recorded are for held-out and fitted");
        }
        let seeds = if self.cuts.is_some() { 3 } else { 1 };
        let scale = Scale {
            quick: self.quick,
            seed: self.seed,
            seeds: self.seeds.unwrap_or(seeds),
            cuts: self.cuts.clone().unwrap_or_default(),
            steady: self.steady,
            cards: self.device.into_iter().collect(),
            recorded: self.recorded.clone(),
            save: self.out.clone(),
        };
        let figure = self.name.compute(&scale)?;
        if let Some(dir) = &self.out {
            write(&figure, dir)?;
        }
        Ok((text(&figure), serde_json::to_value(&figure)?))
    }
}

fn write(figure: &Figure, dir: &Path) -> Result<()> {
    let name = |kind: &str| format!("flash-{}.{kind}", figure.name);
    let json = serde_json::to_string_pretty(figure)?;
    let files = [
        (name("txt"), text(figure)),
        (name("json"), json),
        (name("svg"), draw::draw(figure)?),
    ];
    let files = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.clone()));
    write_all(dir, &files.collect::<Vec<_>>())
}

/// Points of a curve that a table has room for.
const COLUMNS: usize = 12;

/// A panel as a table: a row for each series. A cloud has none.
fn rows(panel: &Panel) -> Option<table::Table> {
    let first = panel.series.first().filter(|_| panel.joined)?;
    let along = first
        .points
        .iter()
        .take(COLUMNS)
        .map(|(x, _)| x.to_string());
    let head = [panel.axes[0].clone()].into_iter().chain(along).collect();
    let row = |s: &stetfs_flashlab::figure::Series| {
        let values = s
            .points
            .iter()
            .take(COLUMNS)
            .map(|(_, y)| format!("{y:.2}"));
        [s.name.clone()].into_iter().chain(values).collect()
    };
    Some(
        [head]
            .into_iter()
            .chain(panel.series.iter().map(row))
            .collect(),
    )
}

/// What is claimed, by whom, and ours.
pub(crate) fn claims_table(by: &str, claims: &[[String; 3]]) -> table::Table {
    let head = ["claim", by, "ours"].map(str::to_owned).to_vec();
    let claims = claims.iter().map(|c| c.to_vec());
    [head].into_iter().chain(claims).collect()
}

/// For a terminal.
fn text(figure: &Figure) -> String {
    let mut out = String::new();
    for panel in &figure.panels {
        if let Some(rows) = rows(panel) {
            let _ = writeln!(out, "{}\n{}", panel.title, table::text(&rows));
        }
    }
    let claims = claims_table("paper", &figure.claims);
    let _ = writeln!(out, "{}", table::text(&claims));
    if figure.quick {
        let _ = writeln!(out, "{QUICK}");
    }
    let _ = writeln!(out, "Setup: {}", figure.setup);
    let _ = writeln!(out, "The paper: {}", figure.paper);
    out
}

/// A table for a terminal; the first row is its head.
pub fn table(rows: &table::Table) -> String {
    table::text(rows)
}
