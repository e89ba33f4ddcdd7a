//! A figure, measured.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use crate::compare::{Report, table};
use crate::flash::claims_table;

/// One table of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The device.
    pub title: String,
    /// What was measured.
    pub report: Report,
    /// The numbers of threads that the metrics of each workload are of, one after the other, where
    /// they make curves.
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

/// A figure, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// What the paper says, or what is aimed at.
    pub paper: &'static str,
    /// A first look, whose claims do not count.
    pub quick: bool,
    /// What is claimed, the goal, and ours.
    pub claims: Vec<[String; 3]>,
    /// Our numbers.
    pub parts: Vec<Part>,
}

/// What a first look is worth.
pub(super) const QUICK: &str =
    "A first look (--quick): less work a round. What it says of the claims does not count.";

impl Figure {
    /// For a terminal.
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

    /// As JSON.
    ///
    /// # Errors
    /// A number that JSON has not.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
