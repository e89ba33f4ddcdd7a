//! A reader that bounds the memory and time an archive may ask for, before its entries are read.
//!
//! The crate tar keeps names and PAX headers in memory at whatever length they claim, ends a PAX
//! record at a newline in its value, and reads holes as zeroes, byte by byte. This reader stands in
//! front of it: it refuses headers that are too long, reads PAX headers itself, and presents a file
//! with holes as one without. The contents of the PAX headers and the runs of data are passed on in
//! [`Aside`].

use std::cell::RefCell;
use std::io::{self, Read};
use std::ops::Range;
use std::rc::Rc;

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::pax::{Pax, number};

/// Bytes of a header.
const BLOCK: usize = 512;
/// Longest name, bytes.
const NAME_MOST: u64 = 64 << 10;
/// Longest PAX headers of an entry, bytes: room for its extended attributes.
const PAX_MOST: u64 = 8 << 20;
/// Longest global PAX headers, bytes: each entry gets a copy of them.
const GLOBAL_MOST: u64 = 64 << 10;
/// Largest file, bytes: the limit of ext4.
const FILE_MOST: u64 = 16 << 40;
/// Most runs of data in a file with holes.
const RUNS_MOST: usize = 1 << 20;

/// The runs of data of a file with holes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holes {
    /// Size of the file, bytes.
    pub(super) size: u64,
    pub(super) runs: Vec<Range<u64>>,
}

/// Facts about an entry that are passed beside the archive.
#[derive(Debug, Default)]
pub(super) struct Aside {
    pub(super) pax: Pax,
    pub(super) holes: Option<Holes>,
}

/// The facts about the current entry.
pub(super) type AsideOfEntry = Rc<RefCell<Aside>>;

/// The archive without holes, PAX headers and long names.
pub(super) struct Bounded<R> {
    from: R,
    /// Headers that were checked, to be read next.
    ready: io::Cursor<Vec<u8>>,
    /// Bytes that are passed through unchanged.
    passing: u64,
    /// Global PAX headers, for all entries that follow, and their bytes.
    of_all: Pax,
    of_all_bytes: u64,
    /// PAX headers of the next entry, and their bytes.
    of_next: Option<Pax>,
    of_next_bytes: u64,
    aside: AsideOfEntry,
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

/// The size rounded up to whole blocks.
fn padded(size: u64) -> u64 {
    size.checked_next_multiple_of(BLOCK as u64)
        .unwrap_or(u64::MAX)
}

fn is_whole(header: &Header) -> bool {
    let mut again = header.clone();
    again.set_cksum();
    header.cksum().ok() == again.cksum().ok()
}

impl<R: Read> Bounded<R> {
    pub(super) fn new(from: R) -> (Bounded<R>, AsideOfEntry) {
        let aside = AsideOfEntry::default();
        let bounded = Bounded {
            from,
            ready: io::Cursor::default(),
            passing: 0,
            of_all: Pax::default(),
            of_all_bytes: 0,
            of_next: None,
            of_next_bytes: 0,
            aside: Rc::clone(&aside),
        };
        (bounded, aside)
    }

    /// Reads the next header, and keeps what it needs of it; returns whether there is one.
    fn header(&mut self) -> io::Result<bool> {
        let mut block = Vec::new();
        self.take(BLOCK as u64, &mut block)?;
        if block.len() < BLOCK {
            let more = !block.is_empty();
            self.ready = io::Cursor::new(block);
            return Ok(more);
        }
        let header = Header::from_byte_slice(&block).clone();
        if !is_whole(&header) {
            // The end of the archive, or an error that the reader reports.
            self.ready = io::Cursor::new(block);
            return Ok(true);
        }
        let size = header.entry_size()?;
        match header.entry_type() {
            EntryType::GNULongName | EntryType::GNULongLink if size > NAME_MOST => {
                return Err(refused(&header, &format!("a name of {size} bytes")));
            }
            EntryType::GNULongName | EntryType::GNULongLink => self.passing = padded(size),
            kind @ (EntryType::XHeader | EntryType::XGlobalHeader) => {
                self.pax(kind, &header, size)?;
                return Ok(true);
            }
            _ => block = self.entry(header, size)?.as_bytes().to_vec(),
        }
        self.ready = io::Cursor::new(block);
        Ok(true)
    }

    /// Reads a PAX header.
    fn pax(&mut self, kind: EntryType, header: &Header, size: u64) -> io::Result<()> {
        let (bytes, most) = match kind {
            EntryType::XHeader => (&mut self.of_next_bytes, PAX_MOST),
            _ => (&mut self.of_all_bytes, GLOBAL_MOST),
        };
        *bytes = bytes.saturating_add(size);
        if *bytes > most {
            let bytes = *bytes;
            return Err(refused(header, &format!("a PAX header of {bytes} bytes")));
        }
        let mut records = Vec::new();
        self.take(padded(size), &mut records)?;
        records.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        let pax = match kind {
            EntryType::XHeader => self.of_next.get_or_insert_with(|| self.of_all.clone()),
            _ => &mut self.of_all,
        };
        pax.read(&records)
            .map_err(|e| refused(header, &e.to_string()))
    }

    /// Notes what is known of an entry in `aside`, and returns the header of a file without holes.
    fn entry(&mut self, mut header: Header, size: u64) -> io::Result<Header> {
        let pax = self.of_next.take().unwrap_or_else(|| self.of_all.clone());
        self.of_next_bytes = 0;
        let stored = pax.size.unwrap_or(size);
        let (holes, data) = match (header.entry_type(), pax.sparse.size) {
            (EntryType::GNUSparse, _) => (Some(self.old_holes(&header)?), stored),
            (_, Some(real)) if pax.sparse.map_in_data => {
                let (holes, map) = self.holes_in_data(&header, real, stored)?;
                (Some(holes), stored.saturating_sub(map))
            }
            (_, Some(real)) => {
                let mut holes = Runs::new(&header, real);
                let (places, rest) = pax.sparse.map.as_chunks::<2>();
                places.iter().try_for_each(|place| holes.add(*place))?;
                if !rest.is_empty() {
                    return Err(refused(&header, "an invalid list of holes"));
                }
                (Some(holes.done()), stored)
            }
            (_, None) => (None, stored),
        };
        if let Some(holes) = &holes {
            let sum: u64 = holes.runs.iter().map(|run| run.end - run.start).sum();
            if holes.size > FILE_MOST || sum != data {
                return Err(refused(&header, "an invalid list of holes"));
            }
            header.set_entry_type(EntryType::Regular);
        }
        if holes.is_some() || data != size {
            header.set_size(data);
            header.set_cksum();
        }
        self.passing = padded(data);
        *self.aside.borrow_mut() = Aside { pax, holes };
        Ok(header)
    }

    /// Reads up to `n` bytes.
    fn take(&mut self, n: u64, to: &mut Vec<u8>) -> io::Result<()> {
        (&mut self.from).take(n).read_to_end(to).map(drop)
    }

    /// The holes that a header and its extension blocks list (GNU tar's old form).
    fn old_holes(&mut self, header: &Header) -> io::Result<Holes> {
        let Some(gnu) = header.as_gnu() else {
            return Err(refused(header, "a list of holes in an unknown format"));
        };
        let mut holes = Runs::new(header, gnu.real_size()?);
        let mut add = |places: &[GnuSparseHeader]| {
            let mut used = places.iter().filter(|place| !place.is_empty());
            used.try_for_each(|place| holes.add([place.offset()?, place.length()?]))
        };
        add(&gnu.sparse)?;
        let mut goes_on = gnu.is_extended();
        while goes_on {
            let mut more = GnuExtSparseHeader::new();
            self.from.read_exact(more.as_mut_bytes())?;
            add(more.sparse())?;
            goes_on = more.is_extended();
        }
        Ok(holes.done())
    }

    /// The holes that the first blocks of the data list, in lines (GNU tar's form 1.0), and the
    /// bytes of these blocks, which are consumed.
    fn holes_in_data(
        &mut self,
        header: &Header,
        real: u64,
        stored: u64,
    ) -> io::Result<(Holes, u64)> {
        let cannot_be = || refused(header, "an invalid list of holes");
        let mut holes = Runs::new(header, real);
        let (mut line, mut count, mut pair) = (Vec::new(), None, None);
        let mut taken = 0;
        loop {
            let mut block = [0; BLOCK];
            taken += BLOCK as u64;
            if taken > padded(stored) {
                return Err(cannot_be());
            }
            self.from.read_exact(&mut block)?;
            for byte in block {
                if byte != b'\n' {
                    line.push(byte);
                    if line.len() > BLOCK {
                        return Err(cannot_be());
                    }
                    continue;
                }
                let value = number(&line).ok_or_else(cannot_be)?;
                line.clear();
                match (count, pair.take()) {
                    (None, _) => count = Some(value),
                    (_, None) => pair = Some(value),
                    (Some(left), Some(start)) => {
                        holes.add([start, value])?;
                        count = left.checked_sub(1);
                    }
                }
                if count == Some(0) {
                    return Ok((holes.done(), taken));
                }
            }
        }
    }
}

/// Collects runs of data.
struct Runs<'a> {
    header: &'a Header,
    holes: Holes,
}

impl Runs<'_> {
    fn new(header: &Header, size: u64) -> Runs<'_> {
        let runs = Vec::new();
        Runs {
            header,
            holes: Holes { size, runs },
        }
    }

    /// Adds a run by its offset and length, bytes.
    ///
    /// # Errors
    /// The run is not behind the last one, ends behind the file, or is one too many.
    fn add(&mut self, [start, length]: [u64; 2]) -> io::Result<()> {
        let Holes { size, runs } = &mut self.holes;
        let last = runs.last().map_or(0, |run: &Range<u64>| run.end);
        let end = start.checked_add(length).filter(|end| *end <= *size);
        let (Some(end), true, true) = (end, start >= last, runs.len() < RUNS_MOST) else {
            return Err(refused(self.header, "an invalid list of holes"));
        };
        runs.push(start..end);
        Ok(())
    }

    fn done(self) -> Holes {
        self.holes
    }
}
