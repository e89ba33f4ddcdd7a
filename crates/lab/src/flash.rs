//! `stetfs flash`: the flash laboratory.

use std::io;
use std::process::ExitCode;

use stetfs_cli::{Code, Failure, Result, out, outln};
use stetfs_flashlab::command::Answer;
use stetfs_flashlab::trace::TraceError;

use crate::args::{Flash, FlashTrace};
use crate::record;

/// Runs a command and prints its result.
pub(crate) fn run(command: &Flash, json: bool) -> Result<ExitCode> {
    let of = |answer: Answer| (stetfs_bench::flash::table(&answer.table), answer.json);
    let done = match command {
        Flash::Run(args) => args.run().map(of),
        Flash::Trace(FlashTrace::Record(args)) => return record::run(args, json),
        Flash::Trace(FlashTrace::Other(command)) => command.run().map(of),
        Flash::Figure(args) => args.run(),
    };
    let (text, value) = done.map_err(|e| {
        let code = match e.downcast_ref() {
            Some(TraceError::Io(e)) if e.kind() == io::ErrorKind::NotFound => Code::NotFound,
            _ => Code::Usage,
        };
        Failure::new(code, format!("{e:#}"))
    })?;
    if json {
        outln!("{value}");
    } else {
        out!("{text}");
    }
    Ok(Code::Done.into())
}
