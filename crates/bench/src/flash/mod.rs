//! The flash laboratory's figures: computed by `stetfs_flashlab`, drawn here.

pub(crate) mod draw;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use stetfs_flash::ftl::FtlKind;
use stetfs_flashlab::figure::{Card, Figure, Name, Panel, Scale};
use stetfs_flashlab::generate::Workload;

use crate::compare::table;
use crate::files::write_all;
use draw::QUICK;

/// Arguments of `flash figure`.
#[derive(Clone, Debug, Args)]
pub struct FlashFigureArgs {
    /// The figure, by its number in the dissertation.
    name: Name,
    /// Use parts of the traces and fewer sizes, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Seed of the traces.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compare the policies also at these cuts of the traces, and with more seeds (three, unless
    /// --seeds is given): medians and ranges beside the paper's claims. For 2-4, 2-6, 2-8, 2-9,
    /// held-out and layers.
    #[arg(long, value_name = "PART,…", num_args = 0.., value_delimiter = ',', default_missing_values = CUTS)]
    cuts: Option<Vec<f64>>,
    /// Number of seeds, from --seed on.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Measure each trace only after it has turned over the device's spare blocks once, so that the
    /// effects of ageing are gone. For 2-4, 2-6, 2-8, 2-9, held-out and layers.
    #[arg(long)]
    steady: bool,
    /// Run only this device. For held-out and fitted.
    #[arg(long, value_name = "NAME")]
    device: Option<Card>,
    /// Translation layer of the card in place of fast: page, or bast or bast,logs=N. For 2-4, 2-8
    /// and held-out, which then runs on the card only.
    #[arg(long, value_name = "NAME", conflicts_with = "device")]
    ftl: Option<FtlKind>,
    /// Sizes of the cache in MiB, in place of the five of the device.
    #[arg(long, value_name = "MIB,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=16384))]
    caches: Vec<u64>,
    /// Run only these generated traces. For layers.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    traces: Vec<Workload>,
    /// Use the recorded traces (stetfs flash trace record) *.trace in this directory: for held-out
    /// instead of the generated traces; for fitted as a judge beside them; for layers beside them.
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,
    /// Write tables, JSON and SVG into this directory, too. Each run of 2-4, 2-6 to 2-9, held-out,
    /// layers and fitted is kept there when it is done (flash-points.jsonl), and the same program
    /// continues from there.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Points at which traces are cut, beside their ends.
const CUTS: [&str; 7] = [".2", ".28", ".33", ".4", ".5", ".6", ".75"];

impl FlashFigureArgs {
    /// Computes the figure: as text, and as JSON.
    ///
    /// # Errors
    /// A file cannot be written; the figure has no traces to cut.
    pub fn run(&self) -> Result<(String, serde_json::Value)> {
        let matrix = self.cuts.is_some() || self.steady || self.seeds.is_some();
        if matrix && !self.name.has_cuts() {
            bail!(
                "--cuts, --seeds and --steady are for figures 2-4, 2-6, 2-8, 2-9, held-out and \
                 layers"
            );
        }
        if self.device.is_some() && !self.name.has_devices() {
            bail!("--device is for held-out and fitted");
        }
        if self.recorded.is_some() && !self.name.is_ours() {
            bail!("--recorded is for held-out, layers and fitted");
        }
        if self.ftl.is_some() && !self.name.has_layer() {
            bail!("--ftl is for figures 2-4, 2-8 and held-out");
        }
        if !self.caches.is_empty() && !self.name.has_caches() {
            bail!("--caches is for figures 2-4, 2-6 to 2-9, held-out, layers and fitted");
        }
        if !self.traces.is_empty() && self.name != Name::Layers {
            bail!("--traces is for layers");
        }
        let seeds = if self.cuts.is_some() { 3 } else { 1 };
        let scale = Scale {
            quick: self.quick,
            seed: self.seed,
            seeds: self.seeds.unwrap_or(seeds),
            cuts: self.cuts.clone().unwrap_or_default(),
            steady: self.steady,
            cards: self.device.into_iter().collect(),
            layer: self.ftl,
            caches: self.caches.clone(),
            traces: self.traces.clone(),
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

/// Most points of a curve that a table has columns for.
const COLUMNS: usize = 12;

/// A panel as a table: a row for each series. A scatter plot has none.
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

/// The table of claims, with the values of the source `by` and the measured ones.
pub(crate) fn claims_table(by: &str, claims: &[[String; 3]]) -> table::Table {
    let head = ["claim", by, "ours"].map(str::to_owned).to_vec();
    let claims = claims.iter().map(|c| c.to_vec());
    [head].into_iter().chain(claims).collect()
}

/// The figure for a terminal.
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

/// A table for a terminal; the first row is its header.
pub fn table(rows: &table::Table) -> String {
    table::text(rows)
}
