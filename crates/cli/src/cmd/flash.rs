//! `stetfs flash`: the flash laboratory.

use std::process::ExitCode;

use stetfs_flashlab::command::Answer;

use super::record;
use crate::args::{Flash, FlashTrace};
use crate::failure::{Code, Failure, Result};

/// Does it and prints what came out.
pub(crate) fn run(command: &Flash, json: bool) -> Result<ExitCode> {
    let of = |answer: Answer| (stetfs_bench::flash::table(&answer.table), answer.json);
    let done = match command {
        Flash::Run(args) => args.run().map(of),
        Flash::Trace(FlashTrace::Record(args)) => return record::run(args, json),
        Flash::Trace(FlashTrace::Other(command)) => command.run().map(of),
        Flash::Figure(args) => args.run(),
    };
    let (text, value) = done.map_err(|e| Failure::new(Code::Usage, format!("{e:#}")))?;
    if json {
        outln!("{value}");
    } else {
        out!("{text}");
    }
    Ok(Code::Done.into())
}
