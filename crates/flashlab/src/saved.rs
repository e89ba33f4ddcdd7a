//! Saved points of a figure: each is saved in a file as soon as it is computed, so that an
//! interrupted computation can continue.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Points that an earlier run of the same program saved, and the file for new ones.
#[derive(Debug)]
pub struct Saved<P> {
    done: Vec<P>,
    file: Option<Mutex<File>>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line<P> {
    /// The identity of the program; another program may compute other results.
    program: String,
    #[serde(flatten)]
    point: P,
}

/// The identity of this program: its length, and its modification time.
pub(crate) fn program() -> Result<String> {
    let file = std::env::current_exe()?.metadata()?;
    let made = file.modified()?.duration_since(std::time::UNIX_EPOCH)?;
    Ok(format!("{}-{}", file.len(), made.as_nanos()))
}

impl<P: Serialize + DeserializeOwned + Clone> Saved<P> {
    /// Loads the points of the file at `path`, which is created if necessary; without a path
    /// nothing is saved.
    ///
    /// # Errors
    /// The file or its directory cannot be made or read.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Saved {
                done: Vec::new(),
                file: None,
            });
        };
        let told = || path.display().to_string();
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).with_context(told)?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(path);
        let file = file.with_context(told)?;
        let program = program()?;
        // The last line may have been cut off.
        let lines = std::fs::read_to_string(path).with_context(told)?;
        let lines = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Line<P>>(line).ok());
        let mine = lines.filter(|line| line.program == program);
        Ok(Saved {
            done: mine.map(|line| line.point).collect(),
            file: Some(Mutex::new(file)),
        })
    }

    /// The first saved point that `is` accepts.
    pub fn find(&self, is: impl Fn(&P) -> bool) -> Option<&P> {
        self.done.iter().find(|p| is(p))
    }

    /// Saves points.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, points: &[P]) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let program = program()?;
        let mut text = String::new();
        for point in points {
            let line = Line {
                program: program.clone(),
                point: point.clone(),
            };
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.write_all(text.as_bytes())?)
    }
}
