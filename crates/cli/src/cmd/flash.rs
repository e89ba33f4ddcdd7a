//! `stetfs flash`: the flash laboratory.

use stetfs_flashlab::command::Answer;

use crate::args::Flash;
use crate::failure::{Code, Failure, Result};

/// Does it and prints what came out.
pub(crate) fn run(command: &Flash, json: bool) -> Result {
    let of = |answer: Answer| (stetfs_bench::flash::table(&answer.table), answer.json);
    let done = match command {
        Flash::Run(args) => args.run().map(of),
        Flash::Trace(command) => command.run().map(of),
        Flash::Figure(args) => args.run(),
    };
    let (text, value) = done.map_err(|e| Failure::new(Code::Usage, format!("{e:#}")))?;
    if json {
        println!("{value}");
    } else {
        print!("{text}");
    }
    Ok(())
}
