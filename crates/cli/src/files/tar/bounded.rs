//! Bounds of what an archive may ask for, before its entries are read.
//!
//! The crate tar keeps names and PAX headers in memory, as long as they say that they are, and
//! reads a hole as zeroes, one by one. So this reader stands before it: it refuses headers that are
//! too long, and makes a file with holes one without, whose runs of data it tells aside. It counts
//! entries as the crate does, so that both see the same headers.

use std::cell::RefCell;
use std::io::{self, Read};
use std::ops::Range;
use std::rc::Rc;

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header, PaxExtensions};

/// Bytes of a header.
const BLOCK: usize = 512;
/// Longest name, bytes.
const NAME_MOST: u64 = 64 << 10;
/// Longest PAX header, bytes: what extended attributes take.
const PAX_MOST: u64 = 8 << 20;
/// Largest file, bytes: what ext4 may hold.
const FILE_MOST: u64 = 16 << 40;
/// Runs of data of a file with holes.
const RUNS_MOST: usize = 1 << 20;

/// The places of the data of a file with holes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holes {
    /// Size of the file, bytes.
    pub(super) size: u64,
    pub(super) runs: Vec<Range<u64>>,
}

/// The holes of the entry at hand.
pub(super) type HolesOfEntry = Rc<RefCell<Option<Holes>>>;

/// An archive without holes and long headers.
pub(super) struct Bounded<R> {
    from: R,
    /// Headers that were looked at.
    ready: io::Cursor<Vec<u8>>,
    /// Bytes that pass as they are.
    passing: u64,
    /// Size of the file that comes, as its PAX header says.
    size: Option<u64>,
    holes: HolesOfEntry,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.ready.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            if self.passing > 0 {
                let most = usize::try_from(self.passing).unwrap_or(usize::MAX);
                let most = most.min(buf.len());
                let n = self.from.read(buf.get_mut(..most).unwrap_or_default())?;
                self.passing -= n as u64;
                return Ok(n);
            }
            if !self.header()? {
                return Ok(0);
            }
        }
    }
}

fn refused(header: &Header, what: &str) -> io::Error {
    let name = header.path_bytes();
    io::Error::other(format!("{}: {what}", String::from_utf8_lossy(&name)))
}

/// The size with what fills the last block.
fn padded(size: u64) -> u64 {
    size.checked_next_multiple_of(BLOCK as u64)
        .unwrap_or(u64::MAX)
}

fn is_whole(header: &Header) -> bool {
    let mut again = header.clone();
    again.set_cksum();
    header.cksum().ok() == again.cksum().ok()
}

/// The size that a PAX header says, as the crate reads it.
fn size_of(pax: &[u8]) -> Option<u64> {
    for extension in PaxExtensions::new(pax) {
        let extension = extension.ok()?;
        if extension.key() == Ok("size") {
            return extension.value().ok()?.parse().ok();
        }
    }
    None
}

impl<R: Read> Bounded<R> {
    pub(super) fn new(from: R) -> (Bounded<R>, HolesOfEntry) {
        let holes = HolesOfEntry::default();
        let bounded = Bounded {
            from,
            ready: io::Cursor::default(),
            passing: 0,
            size: None,
            holes: Rc::clone(&holes),
        };
        (bounded, holes)
    }

    /// Reads the next header, and what the reader keeps of it; answers whether there is one.
    fn header(&mut self) -> io::Result<bool> {
        let mut block = Vec::new();
        self.take(BLOCK as u64, &mut block)?;
        if block.len() < BLOCK {
            let more = !block.is_empty();
            self.ready = io::Cursor::new(block);
            return Ok(more);
        }
        let header = Header::from_byte_slice(&block).clone();
        let (kind, is_known) = (
            header.entry_type(),
            header.as_gnu().is_some() || header.as_ustar().is_some(),
        );
        // Its reader tells what is wrong with it.
        let size = match is_whole(&header) {
            true => header.entry_size()?,
            false => 0,
        };
        match kind {
            EntryType::GNULongName | EntryType::GNULongLink if size > NAME_MOST => {
                return Err(refused(&header, &format!("a name of {size} bytes")));
            }
            EntryType::XHeader | EntryType::XGlobalHeader if size > PAX_MOST => {
                return Err(refused(&header, &format!("a PAX header of {size} bytes")));
            }
            EntryType::GNULongName | EntryType::GNULongLink | EntryType::XGlobalHeader => {
                self.passing = padded(size);
            }
            EntryType::XHeader if is_known => {
                self.take(padded(size), &mut block)?;
                let end = BLOCK.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
                self.size = size_of(block.get(BLOCK..end).unwrap_or_default());
            }
            EntryType::GNUSparse => {
                let size = self.size.take().unwrap_or(size);
                block = self.without_holes(header, size)?.as_bytes().to_vec();
                self.passing = padded(size);
            }
            _ => {
                self.holes.take();
                self.passing = padded(self.size.take().unwrap_or(size));
            }
        }
        self.ready = io::Cursor::new(block);
        Ok(true)
    }

    /// Reads as much as there is of `n` bytes.
    fn take(&mut self, n: u64, to: &mut Vec<u8>) -> io::Result<()> {
        (&mut self.from).take(n).read_to_end(to).map(drop)
    }

    /// The header of a file of `stored` bytes, in the place of one with holes.
    fn without_holes(&mut self, mut header: Header, stored: u64) -> io::Result<Header> {
        let Some(gnu) = header.as_gnu() else {
            return Err(refused(&header, "holes in a form that is not read"));
        };
        let size = gnu.real_size()?;
        let mut runs = Vec::new();
        let mut data = 0;
        let mut add = |places: &[GnuSparseHeader]| {
            for place in places.iter().filter(|place| !place.is_empty()) {
                let (start, len) = (place.offset()?, place.length()?);
                let last = runs.last().map_or(0, |run: &Range<u64>| run.end);
                let end = start.checked_add(len).filter(|end| *end <= size);
                let (Some(end), true, true) = (end, start >= last, runs.len() < RUNS_MOST) else {
                    return Err(refused(&header, "holes that cannot be"));
                };
                data += len;
                runs.push(start..end);
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut goes_on = gnu.is_extended();
        while goes_on {
            let mut more = GnuExtSparseHeader::new();
            self.from.read_exact(more.as_mut_bytes())?;
            add(more.sparse())?;
            goes_on = more.is_extended();
        }
        if size > FILE_MOST || data != stored {
            return Err(refused(&header, "holes that cannot be"));
        }
        *self.holes.borrow_mut() = Some(Holes { size, runs });
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        Ok(header)
    }
}
