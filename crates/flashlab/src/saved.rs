//! Points of a figure, each kept in a file as soon as it is done: an interrupted call goes on from
//! there.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Points that an earlier call of the same program left in a file, and where new ones go.
#[derive(Debug)]
pub struct Saved<P> {
    done: Vec<P>,
    file: Option<Mutex<File>>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line<P> {
    /// The program: another one may come to something else.
    program: String,
    #[serde(flatten)]
    point: P,
}

/// What this program is: its length, and when it was made.
pub(crate) fn program() -> Result<String> {
    let file = std::env::current_exe()?.metadata()?;
    let made = file.modified()?.duration_since(std::time::UNIX_EPOCH)?;
    Ok(format!("{}-{}", file.len(), made.as_nanos()))
}

impl<P: Serialize + DeserializeOwned + Clone> Saved<P> {
    /// The points in the file at `path`, which is made if lacking; without a path nothing is kept.
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

    /// The first of the earlier call's points that is the one.
    pub fn find(&self, is: impl Fn(&P) -> bool) -> Option<&P> {
        self.done.iter().find(|p| is(p))
    }

    /// Keeps points.
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
