//! Files with holes in GNU tar's oldest form ("Old GNU Format" in its manual): the header lists
//! four runs of data, extension blocks behind it list 21 more each, and then the data follows
//! without the holes.

use std::io::{self, Read};
use std::ops::Range;

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::failure::{Code, Failure};
use crate::files::tree::Content;

/// Turns a header into that of a file of `size` bytes with these runs of data; returns the
/// extension blocks that follow it.
///
/// # Errors
/// The header is not a GNU header.
pub(super) fn describe(header: &mut Header, size: u64, runs: &[Range<u64>]) -> io::Result<Vec<u8>> {
    header.set_entry_type(EntryType::GNUSparse);
    header.set_size(runs.iter().map(|run| run.end - run.start).sum());
    let not_gnu = || io::Error::other("the header is not of the GNU format");
    let gnu = header.as_gnu_mut().ok_or_else(not_gnu)?;
    gnu.set_real_size(size);
    let mut rest = runs.iter();
    fill(&mut gnu.sparse, &mut rest);
    gnu.set_is_extended(rest.len() > 0);
    let mut blocks = Vec::new();
    while rest.len() > 0 {
        let mut block = GnuExtSparseHeader::new();
        fill(&mut block.sparse, &mut rest);
        block.set_is_extended(rest.len() > 0);
        blocks.extend_from_slice(block.as_bytes());
    }
    Ok(blocks)
}

fn fill(places: &mut [GnuSparseHeader], runs: &mut std::slice::Iter<'_, Range<u64>>) {
    for place in places {
        if let Some(run) = runs.next() {
            place.set_offset(run.start);
            place.set_length(run.end - run.start);
        }
    }
}

/// The data of a file, without its holes.
pub(super) struct Data<'a> {
    content: &'a dyn Content,
    runs: std::vec::IntoIter<Range<u64>>,
    now: Range<u64>,
    /// The error that ended reading. The archive states the size already, so zeroes replace the
    /// missing data.
    pub(super) failed: Option<Failure>,
}

impl<'a> Data<'a> {
    pub(super) fn new(content: &'a dyn Content, runs: Vec<Range<u64>>) -> Data<'a> {
        Data {
            content,
            runs: runs.into_iter(),
            now: 0..0,
            failed: None,
        }
    }
}

impl Read for Data<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.now.is_empty() {
            match self.runs.next() {
                Some(run) => self.now = run,
                None => return Ok(0),
            }
        }
        let left = usize::try_from(self.now.end - self.now.start).unwrap_or(usize::MAX);
        let most = left.min(buf.len());
        let part = buf.get_mut(..most).unwrap_or_default();
        if most == 0 {
            return Ok(0);
        }
        let read = match self.failed {
            None => self.content.read_at(part, self.now.start),
            Some(_) => Ok(0),
        };
        let n = match read {
            Ok(n) if n > 0 => n,
            Ok(_) => {
                let short = || Failure::new(Code::Io, "a file was cut short while it was read");
                self.failed.get_or_insert_with(short);
                part.fill(0);
                most
            }
            Err(e) => {
                self.failed = Some(e);
                part.fill(0);
                most
            }
        };
        self.now.start += n as u64;
        Ok(n)
    }
}
