//! The result of a command, as text and as JSON.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

/// The result of a command.
#[derive(Debug)]
pub struct Answer {
    /// The text for people.
    pub text: String,
    /// The JSON for programs.
    pub json: Value,
    /// The file for the JSON; `None`: standard output.
    pub json_file: Option<PathBuf>,
    /// Whether a promise was broken.
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
