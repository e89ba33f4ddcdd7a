//! `stetfs bench`: measurements.

use std::path::Path;

use crate::args::Bench;
use crate::failure::{Code, Failure, Result};

/// Measures and prints the report.
pub(crate) fn run(command: &Bench, json: bool) -> Result {
    let Bench::Compare(args) = command;
    let failed = |e: anyhow::Error| Failure::new(Code::System, format!("{e:#}"));
    // The running program, also when its file was replaced meanwhile.
    let report = args.run(Path::new("/proc/self/exe")).map_err(failed)?;
    if json {
        println!("{}", report.json().map_err(failed)?);
    } else {
        print!("{}", report.text());
    }
    Ok(())
}
