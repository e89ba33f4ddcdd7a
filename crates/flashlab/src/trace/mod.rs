//! Traces: who read and wrote which pages, and when.

mod format;
mod lines;
mod request;

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

pub use format::{read, write};
pub use lines::Dialect;
pub use request::{Op, Request, Trace, TraceError};

/// The figures of table 2-2, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Requests.
    pub requests: u64,
    /// Read.
    pub read_mib: f64,
    /// Written.
    pub written_mib: f64,
    /// From the first page that is written to the last.
    pub write_range_mib: f64,
    /// Pages that are written, each counted once.
    pub write_footprint_mib: f64,
}

fn mib(pages: u64) -> f64 {
    (pages * crate::page::PAGE) as f64 / f64::from(1 << 20)
}

impl Trace {
    /// Reads a file: of our own format, or lines in `dialect`.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn load(path: &Path, dialect: Option<Dialect>) -> Result<Trace, TraceError> {
        let file = std::fs::read(path)?;
        match dialect {
            None if format::is_one(&file) => read(&file),
            None => Dialect::Csv.read(&file),
            Some(dialect) => dialect.read(&file),
        }
    }

    /// Pages asked for.
    pub fn pages(&self) -> u64 {
        self.requests.iter().map(|r| u64::from(r.pages)).sum()
    }

    /// One page behind the last.
    pub fn end(&self) -> u64 {
        let end = |r: &Request| r.page.saturating_add(u64::from(r.pages));
        self.requests.iter().map(end).max().unwrap_or_default()
    }

    /// What is in it.
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
