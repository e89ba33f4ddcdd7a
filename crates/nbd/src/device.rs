//! The block device of an export: it keeps acknowledged writes in memory until the server has
//! flushed them.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use stetfs_block::{
    Attempts, BlockDevice, BlockError, Counters, Op, Read, Result, SECTOR, Stats, Write,
    check_discard, check_range, write_zeros,
};

use crate::address::Address;
use crate::claim::Claim;
use crate::error::Trouble;
use crate::link::{Job, Link, NbdOptions, NbdState, first_error, jobs_of, spans};
use crate::unflushed::Content;
use crate::way::Way;
use crate::wire::Command;

/// Maximum number of bytes kept for rewriting; beyond it a writer flushes first.
const UNFLUSHED: u64 = 64 << 20;

/// An export of an NBD server.
///
/// When the server is lost, the device tries to reconnect for [`NbdOptions::timeout`]; requests
/// wait meanwhile. After a reconnect it writes again all data that the server had acknowledged and
/// not flushed, so acknowledged data stands even if the server lost it. If the export that comes
/// back is not the same, all requests fail from then on.
///
/// The protocol cannot exclude one case: a server that is cut off but still running carries out an
/// old write after newer writes from new connections.
pub struct NbdDevice {
    path: PathBuf,
    link: Link,
    counters: Counters,
    /// Serialises writes of parts of blocks.
    partial: Mutex<()>,
    /// The history of flushes: the requested ones and those inside writes (block.F4).
    flushes: Attempts,
    _claim: Option<Arc<Claim>>,
}

/// An export that is claimed on this machine and not connected yet.
pub struct Unconnected {
    path: PathBuf,
    way: Way,
    options: NbdOptions,
    claim: Arc<Claim>,
}

impl Unconnected {
    /// Does everything that needs files: parses the address `path` ([`Address`]), claims it and
    /// reads the certificates.
    ///
    /// # Errors
    /// `Locked` if another program has the export, `Open` if `path` is no address, `Unsuitable` for
    /// invalid certificates.
    pub fn prepare(path: &Path, options: NbdOptions) -> Result<Unconnected> {
        let address = Address::from_str(&path.to_string_lossy()).map_err(|e| {
            let e = std::io::Error::new(std::io::ErrorKind::InvalidInput, e);
            BlockError::open(path, e)
        })?;
        let claim = Claim::take(&address).map_err(|e| match e.kind() {
            std::io::ErrorKind::AddrInUse => BlockError::Locked {
                path: path.to_owned(),
                holder: None,
            },
            _ => BlockError::open(path, e),
        })?;
        Ok(Unconnected {
            path: path.to_owned(),
            way: Way::of(address, options.connector, options.answer)
                .map_err(|e| refused(path, e))?,
            options,
            claim: Arc::new(claim),
        })
    }

    /// Makes the only connection there will be, at once, for a process that soon may make none.
    /// Reads nothing from the server.
    ///
    /// # Errors
    /// `Open` if no server answers.
    pub fn reach(&mut self) -> Result<()> {
        self.way
            .reach()
            .map_err(|e| BlockError::open(&self.path, e))
    }

    /// Connects, and runs the handshake.
    ///
    /// # Errors
    /// `Open` with the server's reason, `Unsuitable`.
    pub fn connect(&self, read_only: bool) -> Result<NbdDevice> {
        let path = &self.path;
        let options = NbdOptions {
            read_only,
            ..self.options
        };
        let link = Link::open(self.way.clone(), options).map_err(|e| refused(path, e))?;
        tracing::debug!(path = %path.display(), export = ?link.export(), "connected");
        Ok(NbdDevice {
            path: path.clone(),
            link,
            counters: Counters::default(),
            partial: Mutex::new(()),
            flushes: Attempts::default(),
            // Several readers may share an export: each has checked that there is no writer.
            _claim: (!read_only).then(|| Arc::clone(&self.claim)),
        })
    }
}

impl NbdDevice {
    /// Connects to the export at `path`, an address ([`Address`]), and keeps this machine's other
    /// programs off it.
    ///
    /// # Errors
    /// `Locked` if another program has it, `Open` with the server's reason.
    pub fn open(path: &Path, options: NbdOptions) -> Result<NbdDevice> {
        Unconnected::prepare(path, options)?.connect(options.read_only)
    }

    /// The address that it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The address of the export.
    pub fn address(&self) -> &Address {
        self.link.address()
    }

    /// Checks that the export can be opened for writing.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_writable(&self) -> Result<()> {
        self.link
            .check_writable()
            .map_err(|e| refused(&self.path, e))
    }

    /// The state of the connections to the server.
    pub fn state(&self) -> NbdState {
        self.link.state()
    }

    /// Declares that this process alone writes `range` while it has the volume. If the server comes
    /// back with different content there, it is not used any more. There is one such range; a
    /// further call replaces it.
    ///
    /// # Errors
    /// The error of reading the range.
    pub fn guard(&self, range: Range<u64>) -> Result<()> {
        let range = self.enclose(range);
        self.link.unflushed.lock().guard(range.start);
        let mut found = vec![0; (range.end - range.start) as usize];
        self.read_uncounted(&mut [Read::new(range.start, &mut found)])?;
        self.link.unflushed.lock().guarded(found.into());
        Ok(())
    }

    fn block(&self) -> u64 {
        u64::from(self.link.export().min_block)
    }

    /// The smallest range of whole blocks that contains `range`.
    fn enclose(&self, range: Range<u64>) -> Range<u64> {
        let block = self.block();
        let end = range.end.div_ceil(block) * block;
        range.start / block * block..end.min(self.size())
    }

    fn run(&self, op: Op, range: Range<u64>, jobs: &mut [Job<'_>]) -> Result<()> {
        let failed =
            |e: Trouble| BlockError::io(op, range.start, range.end - range.start, e.into_io());
        self.link.run(jobs).map_err(failed)
    }

    /// The smallest range of whole blocks that contains a read.
    fn around(&self, read: &Read<'_>) -> Range<u64> {
        self.enclose(read.offset..read.offset + read.len())
    }

    /// Reads all of `reads` in one batch.
    fn read_uncounted(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let max = self.link.export().max_block;
        let parts = |range: &Range<u64>| spans(range.start, range.end - range.start, max);
        let (mut jobs, mut all): (_, Option<Range<u64>>) = (Vec::new(), None);
        for read in reads.iter().filter(|read| !read.is_empty()) {
            let range = self.around(read);
            let so_far = all.unwrap_or(range.clone());
            all = Some(so_far.start.min(range.start)..so_far.end.max(range.end));
            jobs.extend(parts(&range).map(|(at, len)| Job::new(Command::Read, at, len)));
        }
        let Some(all) = all else {
            return Ok(());
        };
        self.run(Op::Read, all, &mut jobs)?;
        let mut found = jobs.into_iter().map(|job| match job.outcome {
            Some(Ok(part)) => part,
            // Not reached: `run` returned no error.
            _ => Vec::new(),
        });
        for read in reads.iter_mut().filter(|read| !read.is_empty()) {
            let range = self.around(read);
            let mut whole = found.next().unwrap_or_default();
            for _ in 1..parts(&range).count() {
                whole.extend(found.next().unwrap_or_default());
            }
            let at = (read.offset - range.start) as usize;
            let wanted = at..at + read.data.len();
            let Some(found) = whole.get(wanted) else {
                let e = std::io::ErrorKind::UnexpectedEof.into();
                return Err(BlockError::io(Op::Read, read.offset, 0, e));
            };
            read.data.copy_from(found);
        }
        Ok(())
    }

    /// Writes contents to whole blocks, in one batch.
    fn write_contents(&self, contents: Vec<(u64, Content, bool)>) -> Result<()> {
        if self.link.unflushed.lock().bytes() > UNFLUSHED {
            self.flush()?;
        }
        let export = *self.link.export();
        let begun: Vec<_> = {
            let mut unflushed = self.link.unflushed.lock();
            let each = contents.iter();
            each.map(|(at, content, _)| unflushed.begin(*at, content.clone()))
                .collect()
        };
        let mut jobs = Vec::new();
        let mut counts = Vec::new();
        for (at, content, fua) in &contents {
            let of = jobs_of(*at, content, export.max_block, *fua && export.can_fua());
            counts.push(of.len());
            jobs.extend(of);
        }
        // The loop below handles each write's own outcome.
        let _ = self.link.run(&mut jobs);
        let (mut jobs, mut result) = (jobs.as_slice(), Ok(()));
        let mut unflushed = self.link.unflushed.lock();
        for (((at, content, fua), begun), count) in contents.iter().zip(&begun).zip(counts) {
            let (its, others) = jobs.split_at(count);
            jobs = others;
            match first_error(its) {
                Ok(()) if *fua && export.can_fua() => unflushed.durable(begun),
                Ok(()) => unflushed.acknowledge(begun),
                Err(e) => {
                    match e {
                        Trouble::Errno(_) => unflushed.refuse(begun),
                        // It may have been carried out, so it must stay.
                        _ => unflushed.acknowledge(begun),
                    }
                    let e = BlockError::io(Op::Write, *at, content.len(), e.into_io());
                    result = result.and(Err(e));
                }
            }
        }
        result
    }

    /// Writes a range that cuts blocks: reads these blocks first.
    fn write_partial(&self, write: &Write<'_>) -> Result<()> {
        let range = self.enclose(write.offset..write.offset + write.len());
        let _turn = self.partial.lock();
        let mut whole = vec![0; (range.end - range.start) as usize];
        self.read_uncounted(&mut [Read::new(range.start, &mut whole)])?;
        let at = (write.offset - range.start) as usize;
        write.data.copy_to(whole.get_mut(at..).unwrap_or_default());
        let content = Content::Bytes(whole.into());
        self.write_contents(vec![(range.start, content, write.fua)])
    }

    fn may_write(&self, op: Op) -> Result<()> {
        match self.read_only() {
            true => Err(BlockError::ReadOnly { op }),
            false => self.flushes.check(),
        }
    }
}

/// The error for an export that cannot be opened as asked.
fn refused(path: &Path, e: Trouble) -> BlockError {
    match e {
        Trouble::Refused(reason) => BlockError::Unsuitable {
            path: path.to_owned(),
            reason: reason.to_string(),
        },
        e => BlockError::open(path, e.into_io()),
    }
}

impl fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdDevice")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl BlockDevice for NbdDevice {
    fn size(&self) -> u64 {
        self.link.export().size
    }

    fn sector_size(&self) -> u32 {
        self.link.export().min_block.max(SECTOR)
    }

    fn dio_align(&self) -> u32 {
        self.link.export().min_block
    }

    fn read_only(&self) -> bool {
        self.link.read_only()
    }

    fn has_fua(&self) -> bool {
        self.link.export().can_fua()
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let mut bytes = 0;
        for read in reads.iter() {
            check_range(Op::Read, read.offset, read.len(), self.size())?;
            bytes += read.len();
        }
        self.read_uncounted(reads)?;
        self.counters.read(reads.len() as u64, bytes);
        Ok(())
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.may_write(Op::Write)?;
        let mut bytes = 0;
        let block = self.block();
        let is_whole = |w: &Write<'_>| {
            let end = w.offset + w.len();
            w.offset.is_multiple_of(block) && (end.is_multiple_of(block) || end == self.size())
        };
        for write in writes {
            check_range(Op::Write, write.offset, write.len(), self.size())?;
            bytes += write.len();
        }
        let whole = writes.iter().filter(|w| !w.is_empty() && is_whole(w));
        let whole = whole.map(|w| (w.offset, Content::Bytes(w.data.to_arc()), w.fua));
        let mut result = self.write_contents(whole.collect());
        for write in writes.iter().filter(|w| !w.is_empty() && !is_whole(w)) {
            result = result.and(self.write_partial(write));
        }
        result?;
        self.counters.write(writes.len() as u64, bytes);
        match writes.iter().any(|w| w.fua) && !self.has_fua() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&self) -> Result<()> {
        if self.read_only() {
            return Ok(());
        }
        self.flushes.run(|| {
            let mark = self.link.unflushed.lock().mark();
            self.run(Op::Flush, 0..0, &mut [Job::new(Command::Flush, 0, 0)])?;
            self.link.unflushed.lock().flushed(mark);
            self.counters.flush();
            Ok(())
        })
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.may_write(Op::Discard)?;
        check_discard(&range, self.size())?;
        let block = self.block();
        // Shrunk to whole blocks.
        let range = range.start.div_ceil(block) * block..range.end / block * block;
        let len = range.end.saturating_sub(range.start);
        if len == 0 || !self.link.export().can_trim() {
            return Ok(());
        }
        self.link.unflushed.lock().discard(&range);
        let max = u32::MAX / block as u32 * block as u32;
        let parts = spans(range.start, len, max);
        let mut jobs: Vec<_> = parts
            .map(|(at, len)| Job::new(Command::Trim, at, len))
            .collect();
        self.run(Op::Discard, range, &mut jobs)?;
        self.counters.discard(len);
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.may_write(Op::Write)?;
        let len = range.end.saturating_sub(range.start);
        check_range(Op::Write, range.start, len, self.size())?;
        let block = self.block();
        let is_whole = range.start.is_multiple_of(block) && range.end.is_multiple_of(block);
        if len == 0 {
            return Ok(());
        }
        if !is_whole || !self.link.export().can_write_zeroes() {
            return write_zeros(self, range);
        }
        self.write_contents(vec![(range.start, Content::Zeroes(len), false)])?;
        self.counters.discard(len);
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}
