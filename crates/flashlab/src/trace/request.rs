//! What a trace is.

use serde::Serialize;

use crate::page::PAGE;

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// Reading.
    Read,
    /// Writing.
    Write,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, microseconds since the first.
    pub time: u64,
    /// What.
    pub op: Op,
    /// The first page, in pages of 4096 bytes.
    pub page: u64,
    /// How many, at least 1.
    pub pages: u32,
}

impl Request {
    /// For `len` bytes from `offset` on: pages that are touched in part count as whole, and a
    /// request for nothing touches one. `None` beyond what a volume can have.
    pub fn of_bytes(time: u64, op: Op, offset: u64, len: u64) -> Option<Request> {
        let end = offset.checked_add(len.max(1))?.div_ceil(PAGE);
        let page = offset / PAGE;
        let pages = u32::try_from(end - page).ok();
        Some(Request {
            time,
            op,
            page,
            pages: pages.filter(|_| end <= MOST_PAGES)?,
        })
    }
}

/// Requests in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// All of them.
    pub requests: Vec<Request>,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is no trace, or not a whole one.
    #[error("not a trace of StetFS: {0}")]
    Format(&'static str),
    /// A line means nothing.
    #[error("line {line}: {text:?} is no request in {dialect}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
        /// What it was read as.
        dialect: &'static str,
    },
}

/// Pages of the largest volume: 2^60 bytes, as ext4's.
pub(super) const MOST_PAGES: u64 = 1 << 48;
