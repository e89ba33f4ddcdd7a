//! Troubles with single files: each is told, and the command goes on with the others, as cp(1) and
//! tar(1) do. In the end it fails.

use serde_json::{Value, json};

use crate::failure::{Code, Failure, Result, printable};

/// Troubles that programs get in JSON: a volume may be damaged in every file.
const LISTED: usize = 1000;

/// Troubles so far.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    count: u64,
    /// The first of them, for programs.
    listed: Vec<Value>,
    /// Of the first.
    code: Option<Code>,
}

impl Troubles {
    /// Tells of one.
    pub(super) fn tell(&mut self, trouble: &Failure) {
        eprintln!("stetfs: {}", printable(&trouble.to_string()));
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(trouble.to_json()["error"].take());
        }
        self.code.get_or_insert(trouble.code);
    }

    /// The result of what went well; a trouble is told, and gives `None`.
    ///
    /// # Errors
    /// Ctrl-C, which ends the command.
    pub(super) fn pass<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.code == Code::Interrupted => Err(e),
            Err(e) => {
                self.tell(&e);
                Ok(None)
            }
        }
    }

    /// For programs: how many, and the first of them.
    pub(super) fn to_json(&self) -> Value {
        json!({ "count": self.count, "first": self.listed })
    }

    /// The exit code; `done` is what was to be done, as "copied". Programs that read JSON find the
    /// number of troubles in what they get.
    ///
    /// # Errors
    /// There were troubles, and no JSON says so.
    pub(super) fn end(&self, done: &str, json: bool) -> Result<Code> {
        match self.code {
            None => Ok(Code::Done),
            Some(code) if json => Ok(code),
            Some(code) => {
                let (n, s) = (self.count, if self.count == 1 { "" } else { "s" });
                let message = format!("{n} error{s}, told above; all else was {done}");
                Err(Failure::new(code, message))
            }
        }
    }
}
