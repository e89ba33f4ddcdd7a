//! Requests and traces in memory, and errors of reading them.

use serde::Serialize;

use crate::page::PAGE;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time in microseconds since the first request.
    pub time: u64,
    /// The kind.
    pub op: Op,
    /// The first page, in pages of 4096 bytes.
    pub page: u64,
    /// Number of pages, at least 1.
    pub pages: u32,
}

impl Request {
    /// The request for `len` bytes from `offset` on. Pages that are touched in part count as whole,
    /// and an empty request touches one page. `None` if it is beyond the largest volume.
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

/// A trace: requests in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The requests.
    pub requests: Vec<Request>,
}

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file is no trace, or only a part of one.
    #[error("not a trace of StetFS: {0}")]
    Format(&'static str),
    /// A line is no request.
    #[error("line {line}: {text:?} is not a request in {dialect}")]
    Line {
        /// The line's number, counted from 1.
        line: usize,
        /// The line.
        text: String,
        /// The format that was expected.
        dialect: &'static str,
    },
}

/// Pages of the largest volume: 2^60 bytes, as ext4's.
pub(super) const MOST_PAGES: u64 = 1 << 48;
