//! What a command has to say.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

/// What a command has to say.
#[derive(Debug)]
pub struct Answer {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
    /// Where the JSON goes, if not to standard output.
    pub json_file: Option<PathBuf>,
    /// Promises were broken.
    pub broken: bool,
}

impl Answer {
    pub(crate) fn new(text: impl fmt::Display, json: impl Serialize) -> Result<Answer> {
        Ok(Answer {
            text: text.to_string(),
            json: serde_json::to_value(json)?,
            json_file: None,
            broken: false,
        })
    }
}
