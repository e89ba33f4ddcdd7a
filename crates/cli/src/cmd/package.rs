//! `stetfs man` and `stetfs completions`: files that a package installs beside the program,
//! generated from the definition of its arguments.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use serde_json::json;

use super::manual;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Code, Failure, Result};
use crate::more::More;

fn failed(what: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |e| Failure::new(Code::Usage, format!("cannot write {}: {e}", what.display()))
}

/// The whole command, with the full names of its subcommands.
fn built<M: More>() -> clap::Command {
    let mut command = Cli::<M>::command();
    command.build();
    command
}

/// Writes `stetfs.1` and a page for each command of this program.
pub(crate) fn man<M: More>(args: &ManArgs, json: bool) -> Result {
    std::fs::create_dir_all(&args.dir).map_err(failed(&args.dir))?;
    let is_here = |name: &str| !(M::ELSEWHERE && M::has_subcommand(name));
    manual::write(&built::<M>(), is_here, &args.dir).map_err(failed(&args.dir))?;
    if json {
        outln!("{}", json!({ "dir": args.dir }));
    }
    Ok(())
}

/// Prints the completion script of a shell.
pub(crate) fn completions<M: More>(args: &CompletionsArgs, json: bool) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::<M>::command(), "stetfs", &mut script);
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
