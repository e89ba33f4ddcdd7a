//! Traces: requests to pages, with their times.

mod format;
mod lines;
mod request;

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

pub use format::{read, write};
pub use lines::Dialect;
pub use request::{Op, Request, Trace, TraceError};

/// A summary of a trace, with the columns of table 2-2, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of requests.
    pub requests: u64,
    /// Amount read in MiB.
    pub read_mib: f64,
    /// Amount written in MiB.
    pub written_mib: f64,
    /// Distance from the first page written to the last, in MiB.
    pub write_range_mib: f64,
    /// Pages written, each counted once, in MiB.
    pub write_footprint_mib: f64,
}

fn mib(pages: u64) -> f64 {
    (pages * crate::page::PAGE) as f64 / f64::from(1 << 20)
}

impl Trace {
    /// Loads a file: in StetFS's format, or lines in `dialect`.
    ///
    /// # Errors
    /// The file cannot be read, or is no trace.
    pub fn load(path: &Path, dialect: Option<Dialect>) -> Result<Trace, TraceError> {
        let file = std::fs::read(path)?;
        match dialect {
            None if format::is_one(&file) => read(&file),
            None => Dialect::Csv.read(&file),
            Some(dialect) => dialect.read(&file),
        }
    }

    /// Number of pages accessed.
    pub fn pages(&self) -> u64 {
        self.requests.iter().map(|r| u64::from(r.pages)).sum()
    }

    /// The page behind the last one.
    pub fn end(&self) -> u64 {
        let end = |r: &Request| r.page.saturating_add(u64::from(r.pages));
        self.requests.iter().map(end).max().unwrap_or_default()
    }

    /// A summary of the trace.
    pub fn summary(&self) -> Summary {
        let of = |op: Op| self.requests.iter().filter(move |r| r.op == op);
        let pages = |op| of(op).map(|r| u64::from(r.pages)).sum();
        let first = of(Op::Write).map(|r| r.page).min().unwrap_or_default();
        let end = of(Op::Write).map(|r| r.page + u64::from(r.pages)).max();
        let written: HashSet<u64> = of(Op::Write)
            .flat_map(|r| r.page..r.page + u64::from(r.pages))
            .collect();
        Summary {
            requests: self.requests.len() as u64,
            read_mib: mib(pages(Op::Read)),
            written_mib: mib(pages(Op::Write)),
            write_range_mib: mib(end.unwrap_or_default() - first),
            write_footprint_mib: mib(written.len() as u64),
        }
    }
}
