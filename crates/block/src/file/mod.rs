//! An image file or a block device of the host.
//!
//! 1. With O_DIRECT every request to the kernel is aligned: others use a bounce buffer.
//! 2. Two requests that write parts of one sector run under `rmw`, so neither loses the other's
//!    bytes. (A concurrent whole-sector write overlaps them, and has no order anyway.)
//! 3. Locks are taken before the first byte is read, and held until the device is dropped.
//!
//! A batch that ends with a flush is the batch, then fdatasync. Linked in one io_uring submission
//! it took 10 % longer, since the kernel hands an fsync from a ring to a worker thread.

mod align;
mod claim;
mod fragments;
mod fua;
mod holders;
mod open;
mod outlook;
mod peek;
mod request;
mod share;
mod span_lock;
mod sys;
mod uring;

pub use open::{Direct, OpenOptions, Uring};
pub use peek::Peek;
pub use span_lock::SpanLock;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};
use rustix::io::Errno;

use crate::device::write_zeros;
use crate::range::{check_discard, check_range};
use crate::{
    BlockDevice, BlockError, Counters, Op, Read, Result, Share, ShareLimits, SharePair, Span,
    Stats, Write, check_share,
};
use align::{Align, Bounce};
use claim::Claim;
use request::Request;
pub use share::SharedBy;
use uring::RingPool;

/// A volume in an image file or on a block device of the host; see [`FileDevice::open`].
pub struct FileDevice {
    path: PathBuf,
    file: File,
    /// The locks that keep others out.
    claim: Claim,
    is_block_device: bool,
    size: u64,
    sector: u32,
    read_only: bool,
    /// Whether O_DIRECT is set on `file`. Changes only from true to false.
    direct: AtomicBool,
    align: Align,
    rings: Option<RingPool>,
    rmw: Mutex<()>,
    /// Whether the host has reported that it cannot discard.
    no_discard: AtomicBool,
    /// Whether a durable write avoids a flush of the disk below, as long as O_DIRECT is set.
    fua: bool,
    /// The means of sharing the file's blocks, or the reason why there is none.
    share: std::result::Result<share::Sharing, String>,
    counters: Counters,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        self.claim.release(&self.file);
    }
}

impl FileDevice {
    /// The path that it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a block device, not an image file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether requests bypass the host's page cache (O_DIRECT).
    pub fn is_direct(&self) -> bool {
        self.direct.load(Relaxed)
    }

    /// Whether batches go through io_uring.
    pub fn uses_uring(&self) -> bool {
        self.rings.is_some()
    }

    /// Makes the rings that `threads` threads need at once, for a process that is about to give up
    /// the right to make them: threads without a ring use system calls. Does nothing where io_uring
    /// is not used.
    pub fn prepare_rings(&self, threads: usize) {
        if let Some(rings) = &self.rings {
            rings.prepare(threads);
        }
    }

    /// Announces requests in units of `block` bytes, and turns O_DIRECT off if that needs larger
    /// ones: for a volume with 1 KiB blocks on a disk with 4 KiB sectors the host's page cache is
    /// faster than a read before every write.
    pub fn fit_granularity(&self, block: u32) -> Result<()> {
        if self.is_direct() && !block.is_multiple_of(self.align.offset) {
            tracing::info!(path = %self.path.display(), block, align = self.align.offset, "O_DIRECT turned off");
            sys::set_direct(&self.file, false).map_err(|e| BlockError::open(&self.path, e))?;
            self.direct.store(false, Relaxed);
        }
        Ok(())
    }

    /// Announces that only `span` will be used, and turns O_DIRECT off if its alignment crosses the
    /// ends of the span: other programs may write beyond them.
    ///
    /// # Errors
    /// The host's error.
    pub fn fit_span(&self, span: Span) -> Result<()> {
        let ends = [span.start, span.end()];
        let whole = |n: &u64| n.is_multiple_of(u64::from(self.align.offset)) || *n == self.size;
        match ends.iter().all(whole) {
            true => Ok(()),
            false => self.fit_granularity(1),
        }
    }

    /// Gives up the exclusive claim on a block device (O_EXCL), and only that, so that the kernel
    /// can take it: a mount of type `fuseblk` needs it. Does nothing for an image file.
    pub fn release_exclusive_claim(&self) {
        self.claim.release_exclusive();
    }

    /// Runs requests together and returns when all are done, with the first error.
    fn run(&self, op: Op, requests: &mut [Request<'_>]) -> Result<()> {
        // A buffered write is a copy, which io_uring would hand to a kernel thread. A single
        // request takes as long with a ring as without.
        let worth_it = requests.len() > 1 && (op == Op::Read || self.is_direct());
        match self
            .rings
            .as_ref()
            .filter(|_| worth_it)
            .and_then(RingPool::take)
        {
            Some(mut ring) => ring.run(&self.file, requests),
            None => requests.iter_mut().for_each(|r| r.run(&self.file)),
        }
        let mut first = None;
        for request in requests {
            if let Err(e) = request.finish(&self.file) {
                let error = self.error(op, request.offset(), request.len(), e);
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn error(&self, op: Op, offset: u64, len: u64, source: io::Error) -> BlockError {
        if op == Op::Read
            && let Ok(now) = sys::size(&self.file)
            && now < offset.saturating_add(len)
        {
            return BlockError::Shrunk {
                offset: now,
                size: self.size,
            };
        }
        BlockError::io(op, offset, len, source)
    }

    /// Writes a range that cuts sectors: reads those first (2).
    fn write_partial(&self, write: &Write<'_>) -> Result<()> {
        let len = write.len();
        let range = self.align.enclose(write.offset, len);
        let sector = u64::from(self.align.offset);
        let mut bounce = Bounce::new(range.clone(), self.align);
        let _guard = self.rmw.lock();
        let last = range.end - sector;
        let mut edges = vec![range.start];
        if last != range.start {
            edges.push(last);
        }
        for edge in edges {
            let mut part = [IoSliceMut::new(&mut bounce.at(edge)[..sector as usize])];
            self.run(Op::Read, &mut [Request::read(edge, &mut part)])?;
        }
        write.data.copy_to(bounce.at(write.offset));
        let data = [IoSlice::new(bounce.at(range.start))];
        self.run(
            Op::Write,
            &mut [Request::write(range.start, &data, write.fua)],
        )
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("path", &self.path)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl FileDevice {
    /// Fails if the image file was truncated: a write behind its end would extend it again, and the
    /// lost part would read as zeros.
    fn check_whole(&self) -> Result<()> {
        if self.is_block_device {
            return Ok(());
        }
        // Only the size is requested: for a file on FUSE the kernel knows it without asking the
        // server.
        let (flags, mask) = (AtFlags::EMPTY_PATH, StatxFlags::SIZE);
        match rustix::fs::statx(&self.file, "", flags, mask) {
            Ok(now) if now.stx_size < self.size => Err(BlockError::Shrunk {
                offset: now.stx_size,
                size: self.size,
            }),
            // An error does not show that the file is shorter.
            _ => Ok(()),
        }
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn dio_align(&self) -> u32 {
        if self.is_direct() {
            self.align.offset.max(self.align.memory as u32)
        } else {
            1
        }
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn has_fua(&self) -> bool {
        self.fua && self.is_direct()
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let (direct, align) = (self.is_direct(), self.align);
        let mut bytes = 0;
        for read in reads.iter() {
            check_range(Op::Read, read.offset, read.len(), self.size)?;
            bytes += read.len();
        }
        let fits = |read: &Read<'_>| {
            !direct
                || (read.offset.is_multiple_of(u64::from(align.offset))
                    && read.data.slices().iter().all(|s| align.slice(s)))
        };
        let mut bounces: Vec<Bounce> = reads
            .iter()
            .filter(|r| !r.is_empty() && !fits(r))
            .map(|r| Bounce::new(align.enclose(r.offset, r.len()), align))
            .collect();
        {
            let mut whole: Vec<_> = bounces
                .iter_mut()
                .map(|b| (b.start, IoSliceMut::new(&mut b.buf[..b.len])))
                .collect();
            let mut requests: Vec<_> = whole
                .iter_mut()
                .map(|(start, s)| Request::read(*start, slice::from_mut(s)))
                .collect();
            for read in reads.iter_mut().filter(|r| !r.is_empty()) {
                if fits(read) {
                    requests.push(Request::read(read.offset, read.data.slices_mut()));
                }
            }
            self.run(Op::Read, &mut requests)?;
        }
        let mut done = bounces.iter_mut();
        for read in reads.iter_mut().filter(|r| !r.is_empty()) {
            if !fits(read)
                && let Some(bounce) = done.next()
            {
                read.data.copy_from(bounce.at(read.offset));
            }
        }
        self.counters.read(reads.len() as u64, bytes);
        Ok(())
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        if self.read_only {
            return Err(BlockError::ReadOnly { op: Op::Write });
        }
        let (direct, align) = (self.is_direct(), self.align);
        let mut bytes = 0;
        for write in writes {
            check_range(Op::Write, write.offset, write.len(), self.size)?;
            bytes += write.len();
        }
        self.check_whole()?;
        // On a block device the kernel follows RWF_DSYNC with a flush whatever the device can do;
        // emulated FUA makes that two. One flush after the batch is never more.
        let flush_after = self.is_block_device && writes.iter().any(|w| w.fua);
        let whole = |w: &Write<'_>| !direct || align.range(w.offset, w.len());
        let fits = |w: &Write<'_>| !direct || w.data.slices().iter().all(|s| align.slice(s));
        let mut bounces = Vec::new();
        for write in writes
            .iter()
            .filter(|w| !w.is_empty() && whole(w) && !fits(w))
        {
            let mut bounce = Bounce::new(align.enclose(write.offset, write.len()), align);
            write.data.copy_to(bounce.at(write.offset));
            bounces.push((bounce, write.fua && !flush_after));
        }
        let copies: Vec<_> = bounces
            .iter()
            .map(|(b, fua)| (b.start, IoSlice::new(&b.buf[..b.len]), *fua))
            .collect();
        let mut requests: Vec<_> = copies
            .iter()
            .map(|(start, data, fua)| Request::write(*start, slice::from_ref(data), *fua))
            .collect();
        for write in writes
            .iter()
            .filter(|w| !w.is_empty() && whole(w) && fits(w))
        {
            let durable = write.fua && !flush_after;
            requests.push(Request::write(write.offset, write.data.slices(), durable));
        }
        let mut result = self.run(Op::Write, &mut requests);
        for write in writes.iter().filter(|w| !whole(w)) {
            result = result.and(self.write_partial(write));
        }
        result?;
        self.counters.write(writes.len() as u64, bytes);
        if flush_after { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_whole()?;
        loop {
            match rustix::fs::fdatasync(&self.file) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(BlockError::io(Op::Flush, 0, 0, e.into())),
            }
        }
        self.counters.flush();
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        if self.read_only {
            return Err(BlockError::ReadOnly { op: Op::Discard });
        }
        check_discard(&range, self.size)?;
        // Shrunk to whole sectors, as BLKDISCARD requires.
        let sector = u64::from(self.sector);
        let (start, end) = (
            range.start.div_ceil(sector) * sector,
            range.end / sector * sector,
        );
        let len = end.saturating_sub(start);
        if len == 0 || self.no_discard.load(Relaxed) {
            return Ok(());
        }
        let done = if self.is_block_device {
            sys::discard(
                self.claim.exclusive().as_deref().unwrap_or(&self.file),
                start,
                len,
            )
        } else {
            rustix::fs::fallocate(
                &self.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                start,
                len,
            )
        };
        match done {
            Ok(()) => self.counters.discard(len),
            // The kernel has dirty pages there, and without the exclusive claim does not drop them
            // for this process.
            Err(Errno::BUSY) if self.is_block_device => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => {
                self.no_discard.store(true, Relaxed)
            }
            Err(e) => return Err(BlockError::io(Op::Discard, start, len, e.into())),
        }
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        if self.read_only {
            return Err(BlockError::ReadOnly { op: Op::Write });
        }
        let len = range.end.saturating_sub(range.start);
        check_range(Op::Write, range.start, len, self.size)?;
        let sector = u64::from(self.sector);
        if len == 0 || !range.start.is_multiple_of(sector) || !range.end.is_multiple_of(sector) {
            return write_zeros(self, range);
        }
        // On a block device, too, this leaves zeros or fails; a discard promises less.
        let punched = rustix::fs::fallocate(
            self.claim.exclusive().as_deref().unwrap_or(&self.file),
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            range.start,
            len,
        );
        match punched {
            Ok(()) => {
                self.counters.discard(len);
                Ok(())
            }
            Err(_) => write_zeros(self, range),
        }
    }

    fn share(&self) -> Option<&dyn Share> {
        self.share.is_ok().then_some(self as &dyn Share)
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl Share for FileDevice {
    fn limits(&self) -> ShareLimits {
        self.share
            .as_ref()
            .map_or(share::NONE, share::Sharing::limits)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        check_share(pairs, &Share::limits(self), self.size())?;
        self.check_whole()?;
        // Pairs are whole units, so without the empty ones there are at most as many pairs as
        // units.
        let pairs: Vec<SharePair> = pairs.iter().filter(|p| p.len > 0).copied().collect();
        if let Ok(sharing) = &self.share
            && !pairs.is_empty()
        {
            sharing.share(&self.file, &pairs)?;
        }
        self.counters.share(&pairs);
        Ok(())
    }
}
