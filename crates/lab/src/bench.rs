//! `stetfs bench`: runs benchmarks and prints their reports.

use std::path::Path;

use stetfs_bench::compare::Unusable;
use stetfs_bench::interrupt::{self, Interrupted};
use stetfs_cli::{Code, Failure, Result, code_of, out, server_program};

use crate::args::Bench;

/// Runs a benchmark and prints the report.
pub(crate) fn run(command: &Bench, json: bool) -> Result {
    let failed = |e: anyhow::Error| {
        let code = match (e.is::<Interrupted>(), e.downcast_ref::<Unusable>()) {
            (true, _) => Code::Interrupted,
            (_, Some(dir)) => code_of(dir.kind()),
            _ => Code::System,
        };
        Failure::new(code, format!("{e:#}"))
    };
    interrupt::watch().map_err(|e| failed(e.into()))?;
    let server = server_program();
    if server.is_none() {
        tracing::warn!(
            "no stetfs of this version is beside this program or on PATH: mounts are served by \
             this program, in which faults can be planted, and may be slower by it"
        );
    }
    // The running program is the same one even if its file was replaced meanwhile.
    let program = server.as_deref().unwrap_or(Path::new("/proc/self/exe"));
    let (text, value) = match command {
        Bench::Compare(args) => {
            let report = args.run(program).map_err(failed)?;
            (report.text(), report.json().map_err(failed)?)
        }
        Bench::Age(args) => {
            let report = args.run(program).map_err(failed)?;
            (report.text(), report.json().map_err(failed)?)
        }
        Bench::Scale(args) => {
            let report = args.run().map_err(failed)?;
            (report.text(), report.json().map_err(failed)?)
        }
        Bench::Figure(args) => {
            let figure = args.run(program).map_err(failed)?;
            (figure.text(), figure.json().map_err(failed)?)
        }
    };
    out!("{}", if json { value + "\n" } else { text });
    Ok(())
}
