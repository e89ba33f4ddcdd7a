//! Commands that only one of the two programs has.

use std::fmt::Debug;
use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Result;

/// Commands beside those that both programs have.
pub trait More: Subcommand + Debug {
    /// Whether they are only named here, and another program carries them out and has their manual
    /// pages.
    const ELSEWHERE: bool;

    /// Carries out a command. With `json` its answer is one JSON object.
    ///
    /// # Errors
    /// As the command has them.
    fn run(&self, json: bool) -> Result<ExitCode>;
}
