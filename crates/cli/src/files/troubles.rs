//! Errors of single files. Each is reported, and the command goes on with the other files, as cp(1)
//! and tar(1) do; at the end the command fails.

use serde_json::{Value, json};

use crate::failure::{Code, Failure, Result, printable};

/// Most errors listed in JSON: in a damaged volume every file may have one.
const LISTED: usize = 1000;

/// The errors so far.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    count: u64,
    /// The first errors, for JSON.
    listed: Vec<Value>,
    /// The exit code of the first error.
    code: Option<Code>,
}

impl Troubles {
    /// Reports an error.
    pub(super) fn tell(&mut self, trouble: &Failure) {
        eprintln!("stetfs: {}", printable(&trouble.to_string()));
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(trouble.to_json()["error"].take());
        }
        self.code.get_or_insert(trouble.code);
    }

    /// The number of errors.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The value of a success; an error is reported, and gives `None`.
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

    /// For JSON: the number of errors, and the first of them.
    pub(super) fn to_json(&self) -> Value {
        json!({ "count": self.count, "first": self.listed })
    }

    /// The exit code. `done` is the verb for the message, such as "copied". With `json` the output
    /// states the number of errors.
    ///
    /// # Errors
    /// There were errors, and no JSON states them.
    pub(super) fn end(&self, done: &str, json: bool) -> Result<Code> {
        match self.code {
            None => Ok(Code::Done),
            Some(code) if json => Ok(code),
            Some(code) => {
                let (n, s) = (self.count, if self.count == 1 { "" } else { "s" });
                let message = format!("{n} error{s}, reported above; everything else was {done}");
                Err(Failure::new(code, message))
            }
        }
    }
}
