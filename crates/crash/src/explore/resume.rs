//! The state of an interrupted search as a file: a line of JSON, then the hashes of the images
//! seen.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Failure;

/// The counts that continue when a search resumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// See [`super::Outcome`].
    pub states: u64,
    /// See [`super::Outcome`].
    pub judged: u64,
    /// See [`super::Outcome`].
    pub failures: u64,
    /// See [`super::Outcome`].
    pub seconds: f64,
    /// See [`super::Outcome`].
    pub fscks: u64,
    /// See [`super::Outcome`].
    pub thorough: u64,
    /// See [`super::Outcome`].
    pub recovery_cuts: u64,
    /// See [`super::Outcome`].
    #[serde(default)]
    pub shares: u64,
    /// See [`super::Outcome`].
    #[serde(default)]
    pub share_states: u64,
    /// See [`super::Outcome`].
    #[serde(default)]
    pub torn_states: u64,
    /// See [`super::Outcome`].
    #[serde(default)]
    pub line_states: u64,
    /// See [`super::Outcome`].
    #[serde(default)]
    pub second_recovery_cuts: u64,
}

/// The point that a search has reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The subject and parameters of the search; only the same search may resume.
    pub what: String,
    /// The pass under way.
    pub pass: u64,
    /// Units of the pass that are done: recordings of a family, or places of one recording.
    pub next: usize,
    /// The counts so far.
    pub outcome: Counts,
    /// Failures so far.
    pub findings: Vec<Failure>,
    /// Hashes of the images seen.
    #[serde(skip)]
    pub images: HashSet<u64>,
}

impl Progress {
    /// Saves the state; the file is replaced atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        bytes.extend(self.images.iter().flat_map(|h| h.to_le_bytes()));
        let new = path.with_extension("new");
        std::fs::write(&new, bytes)
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Loads the state. If there is no such file, it is that of a search that has not begun.
    ///
    /// # Errors
    /// The file has other content, or belongs to another search.
    pub fn load(path: &Path, what: &str) -> Result<Progress> {
        let fresh = Progress {
            what: what.into(),
            ..Progress::default()
        };
        let bytes = match std::fs::read(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(fresh),
            other => other.with_context(|| format!("reading {}", path.display()))?,
        };
        let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(0);
        let (line, hashes) = bytes.split_at(end);
        let mut progress: Progress = serde_json::from_slice(line).with_context(|| {
            format!(
                "{} is not a file that --resume wrote; name another one",
                path.display()
            )
        })?;
        ensure!(
            progress.what == what,
            "{} belongs to another search ({}); this search is {what}",
            path.display(),
            progress.what
        );
        progress.images = hashes
            .get(1..)
            .unwrap_or_default()
            .chunks_exact(8)
            .filter_map(|c| Some(u64::from_le_bytes(c.try_into().ok()?)))
            .collect();
        Ok(progress)
    }
}
