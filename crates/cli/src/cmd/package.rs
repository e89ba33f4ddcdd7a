//! `stetfs man` and `stetfs completions`: what a package installs beside the program, made from the
//! definition of its arguments.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use serde_json::json;

use super::manual;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Code, Failure, Result};

fn failed(what: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |e| Failure::new(Code::Usage, format!("cannot write {}: {e}", what.display()))
}

/// The whole command, with its names as they are called.
fn built() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// Writes `stetfs.1` and a page for each command below it.
pub(crate) fn man(args: &ManArgs, json: bool) -> Result {
    std::fs::create_dir_all(&args.dir).map_err(failed(&args.dir))?;
    manual::write(&built(), &args.dir).map_err(failed(&args.dir))?;
    if json {
        outln!("{}", json!({ "dir": args.dir }));
    }
    Ok(())
}

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs, json: bool) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stetfs", &mut script);
    if json {
        let script = String::from_utf8_lossy(&script);
        outln!(
            "{}",
            json!({ "shell": args.shell.to_string(), "script": script })
        );
        return Ok(());
    }
    std::io::stdout()
        .write_all(&script)
        .map_err(failed(Path::new("the standard output")))
}
