//! A measured figure and its parts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use crate::compare::{Report, table};
use crate::flash::claims_table;

/// A table of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The device.
    pub title: String,
    /// The measured report.
    pub report: Report,
    /// The numbers of threads, one after the other, of the metrics of each workload, if they form
    /// curves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<&'static [u32]>,
}

impl Part {
    /// Its directory in `dir`.
    pub(super) fn place(&self, dir: &Path) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() { c } else { '-' };
        let name: String = self.title.chars().map(plain).collect();
        dir.join(name)
    }

    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        self.report.write(&self.place(dir))
    }
}

/// A measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// The paper's numbers, or the goals.
    pub paper: &'static str,
    /// Whether it is a quick run, which supports no claims.
    pub quick: bool,
    /// The claims, with goals and measured values.
    pub claims: Vec<[String; 3]>,
    /// The measured tables.
    pub parts: Vec<Part>,
}

/// The note about quick runs.
pub(super) const QUICK: &str =
    "A first look (--quick): less work a round. What it says of the claims does not count.";

impl Figure {
    /// The figure for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            let _ = writeln!(out, "{}\n{}", part.title, part.report.text());
        }
        if !self.claims.is_empty() {
            let _ = writeln!(out, "{}", table::text(&claims_table("goal", &self.claims)));
        }
        if self.quick {
            let _ = writeln!(out, "{QUICK}");
        }
        let _ = writeln!(out, "To compare with: {}", self.paper);
        out
    }

    /// The figure as JSON.
    ///
    /// # Errors
    /// A number that JSON cannot express.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
