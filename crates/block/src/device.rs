//! The block device trait and its requests.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use crate::range::check_range;
use crate::{AlignedBuf, BlockError, Op, Result, Share, ShareLimits, Stats};

/// The data of a write: one slice, or several that are adjacent on the device.
#[derive(Debug, Clone, Copy)]
pub enum Gather<'a> {
    /// One slice.
    One(IoSlice<'a>),
    /// Slices that are written as one request without being copied together.
    Many(&'a [IoSlice<'a>]),
}

impl<'a> Gather<'a> {
    /// The slices in order.
    pub fn slices(&self) -> &[IoSlice<'a>] {
        match self {
            Gather::One(s) => slice::from_ref(s),
            Gather::Many(s) => s,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.slices().iter().map(|s| s.len()).sum()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the slices into one vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        for s in self.slices() {
            all.extend_from_slice(s);
        }
        all
    }

    /// Copies the slices, one behind the other, to the beginning of `to`, which must be long
    /// enough.
    pub fn copy_to(&self, mut to: &mut [u8]) {
        for s in self.slices() {
            let (mine, rest) = to.split_at_mut(s.len());
            mine.copy_from_slice(s);
            to = rest;
        }
    }

    /// Copies the slices into one shared buffer.
    pub fn to_arc(&self) -> Arc<[u8]> {
        match self.slices() {
            [one] => Arc::from(&**one),
            _ => self.to_vec().into(),
        }
    }
}

/// One write request.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// The data.
    pub data: Gather<'a>,
    /// Whether the write is durable when the request returns (forced unit access); it promises
    /// nothing about other writes.
    pub fua: bool,
}

impl<'a> Write<'a> {
    /// A write of one slice.
    pub fn new(offset: u64, data: &'a [u8]) -> Self {
        Write {
            offset,
            data: Gather::One(IoSlice::new(data)),
            fua: false,
        }
    }

    /// A write of slices that are adjacent on the device.
    pub fn gathered(offset: u64, data: &'a [IoSlice<'a>]) -> Self {
        Write {
            offset,
            data: Gather::Many(data),
            fua: false,
        }
    }

    /// The same write with `fua`.
    pub fn fua(self) -> Self {
        Write { fua: true, ..self }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.data.len() as u64
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
}

/// The destination of a read: one slice or several.
#[derive(Debug)]
pub enum Scatter<'a> {
    /// One slice.
    One(IoSliceMut<'a>),
    /// Slices that one request fills in order.
    Many(&'a mut [IoSliceMut<'a>]),
}

impl<'a> Scatter<'a> {
    /// The slices in order.
    pub fn slices(&self) -> &[IoSliceMut<'a>] {
        match self {
            Scatter::One(s) => slice::from_ref(s),
            Scatter::Many(s) => s,
        }
    }

    /// The slices in order, for filling.
    pub fn slices_mut(&mut self) -> &mut [IoSliceMut<'a>] {
        match self {
            Scatter::One(s) => slice::from_mut(s),
            Scatter::Many(s) => s,
        }
    }

    /// Fills the slices, one after the other, from the beginning of `from`, which must be long
    /// enough.
    pub fn copy_from(&mut self, mut from: &[u8]) {
        for s in self.slices_mut() {
            let (mine, rest) = from.split_at(s.len());
            s.copy_from_slice(mine);
            from = rest;
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.slices().iter().map(|s| s.len()).sum()
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One read request.
#[derive(Debug)]
pub struct Read<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// The destination.
    pub data: Scatter<'a>,
}

impl<'a> Read<'a> {
    /// A read into one slice.
    pub fn new(offset: u64, data: &'a mut [u8]) -> Self {
        Read {
            offset,
            data: Scatter::One(IoSliceMut::new(data)),
        }
    }

    /// A read into slices, whose data is adjacent on the device.
    pub fn scattered(offset: u64, data: &'a mut [IoSliceMut<'a>]) -> Self {
        Read {
            offset,
            data: Scatter::Many(data),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.data.len() as u64
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
}

/// Methods for an `impl BlockDevice` of a device around another, its field `inner`: size,
/// alignment, read-only state and FUA are the inner device's. The outer device shares, by its own
/// [`Share`], if the inner one does.
#[macro_export]
macro_rules! shape_of_inner {
    () => {
        $crate::shape_of_inner!(but fua);

        fn has_fua(&self) -> bool {
            self.inner.has_fua()
        }
    };
    (but fua) => {
        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn sector_size(&self) -> u32 {
            self.inner.sector_size()
        }

        fn dio_align(&self) -> u32 {
            self.inner.dio_align()
        }

        fn read_only(&self) -> bool {
            self.inner.read_only()
        }

        fn share(&self) -> Option<&dyn $crate::Share> {
            self.inner
                .share()
                .is_some()
                .then_some(self as &dyn $crate::Share)
        }
    };
}

/// A block device, addressed by byte. The crate's documentation lists its promises.
///
/// Requests need no alignment; those aligned to [`BlockDevice::dio_align`] in offset, length and
/// memory are the fast ones.
pub trait BlockDevice: Send + Sync {
    /// Size in bytes; constant while the device is open.
    fn size(&self) -> u64;

    /// The smallest unit that is written atomically, in bytes.
    fn sector_size(&self) -> u32;

    /// Alignment of offset, length and memory, in bytes, that avoids a copy; 1 if none is needed.
    fn dio_align(&self) -> u32 {
        1
    }

    /// Whether writes and discards are refused.
    fn read_only(&self) -> bool;

    /// Whether a write with `fua` avoids a flush of the whole device. False if unknown. Such a
    /// write is durable in any case.
    fn has_fua(&self) -> bool {
        false
    }

    /// Whether a flush would have no effect: all written data is known to be durable, and no write
    /// is in flight. False on devices that do not track this.
    fn is_flushed(&self) -> bool {
        false
    }

    /// Fills `buf` from `offset` on. On error `buf` holds unspecified bytes.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_batch(&mut [Read::new(offset, buf)])
    }

    /// Runs all reads together and returns when all are done, with the first error if any failed.
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()>;

    /// Writes `data` at `offset`.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_batch(&[Write::new(offset, data)])
    }

    /// Runs all writes together, in any order, and returns when all are done, with the first error
    /// if any failed; then any part of any of them may have reached the device.
    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()>;

    /// Makes all writes durable that returned before the call.
    fn flush(&self) -> Result<()>;

    /// [`write_batch`](Self::write_batch), then [`flush`](Self::flush) if all writes succeeded.
    fn write_batch_flush(&self, writes: &[Write<'_>]) -> Result<()> {
        self.write_batch(writes)?;
        self.flush()
    }

    /// Declares the content of `range` unneeded: afterwards it reads as before or as zeros. A
    /// device that cannot discard returns `Ok`.
    fn discard(&self, range: Range<u64>) -> Result<()>;

    /// Makes `range` read as zeros; durable after a flush, like a write.
    fn zero(&self, range: Range<u64>) -> Result<()> {
        write_zeros(self, range)
    }

    /// The SHARE capability, if the device has it. Devices around another pass it on.
    fn share(&self) -> Option<&dyn Share> {
        None
    }

    /// A copy of the device's content at one moment, for devices where a copy is cheap (those in
    /// memory).
    fn snapshot(&self) -> Option<Arc<dyn BlockDevice>> {
        None
    }

    /// Counters of requests since the device was opened.
    fn stats(&self) -> Stats;
}

/// Bytes of zeros per write.
const ZEROS: u64 = 1 << 20;

/// [`BlockDevice::zero`] by writes, for devices that have nothing better.
///
/// # Errors
/// The errors of the writes.
pub fn write_zeros<D: BlockDevice + ?Sized>(device: &D, range: Range<u64>) -> Result<()> {
    check_range(
        Op::Write,
        range.start,
        range.end.saturating_sub(range.start),
        device.size(),
    )?;
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / ZEROS + 1) * ZEROS);
        let zeros = AlignedBuf::zeroed((end - at) as usize);
        device.write(at, &zeros)?;
        at = end;
    }
    Ok(())
}

impl ShareLimits {
    /// The limits of the device below; if it does not share, a batch has room for no pairs.
    pub fn of<D: BlockDevice + ?Sized>(device: &D) -> ShareLimits {
        let none = ShareLimits {
            unit: 1,
            pairs: 0,
            references: 0,
            atomic: false,
        };
        device.share().map_or(none, Share::limits)
    }
}

/// The SHARE capability of the device below, for a device that passes it on.
///
/// # Errors
/// EOPNOTSUPP if it has none: the caller did not check the device above first.
pub fn sharing_of<D: BlockDevice + ?Sized>(device: &D) -> Result<&dyn Share> {
    device.share().ok_or_else(|| {
        let source = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        BlockError::io(Op::Share, 0, 0, source)
    })
}

macro_rules! forward {
    ($($t:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $t {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn sector_size(&self) -> u32 {
                (**self).sector_size()
            }
            fn dio_align(&self) -> u32 {
                (**self).dio_align()
            }
            fn read_only(&self) -> bool {
                (**self).read_only()
            }
            fn has_fua(&self) -> bool {
                (**self).has_fua()
            }
            fn is_flushed(&self) -> bool {
                (**self).is_flushed()
            }
            fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                (**self).read(offset, buf)
            }
            fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
                (**self).read_batch(reads)
            }
            fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
                (**self).write(offset, data)
            }
            fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
                (**self).write_batch(writes)
            }
            fn flush(&self) -> Result<()> {
                (**self).flush()
            }
            fn write_batch_flush(&self, writes: &[Write<'_>]) -> Result<()> {
                (**self).write_batch_flush(writes)
            }
            fn discard(&self, range: Range<u64>) -> Result<()> {
                (**self).discard(range)
            }
            fn zero(&self, range: Range<u64>) -> Result<()> {
                (**self).zero(range)
            }
            fn share(&self) -> Option<&dyn Share> {
                (**self).share()
            }
            fn snapshot(&self) -> Option<Arc<dyn BlockDevice>> {
                (**self).snapshot()
            }
            fn stats(&self) -> Stats {
                (**self).stats()
            }
        }
    )*};
}

forward!(&D, Box<D>, Arc<D>);
