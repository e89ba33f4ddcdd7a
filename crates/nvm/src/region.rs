//! The trait of persistent memory, and the checks that its implementations share.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use stetfs_block::{BlockError, Op, Result, check_range};

use crate::WORD;

/// The crashes that durable content survives. Each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing: the content is gone with the region's owner.
    Nothing,
    /// The end of the process, also by a kill; neither a crash of the kernel nor a loss of power.
    Process,
    /// A crash of the kernel and a loss of power, as far as the memory or the disk behind the file
    /// is really durable. (Memory that the kernel was told to call persistent, with `memmap=`, is
    /// not.)
    Power,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Nothing => "survives nothing",
            Durability::Process => "survives the process, not the machine",
            Durability::Power => "survives a loss of power",
        })
    }
}

/// Persistent memory, addressed by byte. The crate's documentation lists its promises.
///
/// Every call beyond the end fails with [`BlockError::OutOfRange`] and changes nothing.
pub trait Region: Send + Sync {
    /// Size in bytes, a multiple of [`LINE`](crate::LINE); constant while the region is open.
    fn size(&self) -> u64;

    /// The crashes that durable content survives.
    fn durability(&self) -> Durability;

    /// Fills `buf` from `offset` on. A concurrent store is visible word by word.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Stores `bytes` at `offset`: visible on return, durable after a flush and a fence.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Loads the little-endian word at `offset`, a multiple of 8 (acquire): all stores before the
    /// store of that word are visible afterwards.
    ///
    /// # Errors
    /// [`BlockError::Unaligned`].
    fn load_u64(&self, offset: u64) -> Result<u64>;

    /// Stores a little-endian word at `offset`, a multiple of 8 (release).
    ///
    /// # Errors
    /// [`BlockError::Unaligned`].
    fn store_u64(&self, offset: u64, value: u64) -> Result<()>;

    /// Starts writing the lines that `range` touches to memory. Several flushes may share a fence.
    fn flush(&self, range: Range<u64>) -> Result<()>;

    /// Makes the lines durable that this thread has flushed before.
    ///
    /// # Errors
    /// The file's I/O error; [`BlockError::Shrunk`] if the file was truncated. All later fences
    /// then fail, too.
    fn fence(&self) -> Result<()>;

    /// A copy of the current content, for regions where a copy is cheap (those in memory). A
    /// concurrent store is in the copy or not, page by page.
    fn snapshot(&self) -> Option<Arc<dyn Region>> {
        None
    }

    /// Flushes `range` and fences.
    fn persist(&self, range: Range<u64>) -> Result<()> {
        self.flush(range)?;
        self.fence()
    }
}

/// The number of the word at `offset`.
pub(crate) fn word_at(op: Op, offset: u64, size: u64) -> Result<usize> {
    if !offset.is_multiple_of(WORD) {
        return Err(BlockError::Unaligned {
            op,
            offset,
            unit: WORD as u32,
        });
    }
    check_range(op, offset, WORD, size)?;
    Ok((offset / WORD) as usize)
}

/// Checks the range of a flush; an inverted range is empty.
pub(crate) fn check_flush(range: &Range<u64>, size: u64) -> Result<()> {
    let len = range.end.saturating_sub(range.start);
    check_range(Op::Flush, range.start, len, size)
}

macro_rules! forward {
    ($($t:ty),*) => {$(
        impl<R: Region + ?Sized> Region for $t {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn durability(&self) -> Durability {
                (**self).durability()
            }
            fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                (**self).read(offset, buf)
            }
            fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
                (**self).store(offset, bytes)
            }
            fn load_u64(&self, offset: u64) -> Result<u64> {
                (**self).load_u64(offset)
            }
            fn store_u64(&self, offset: u64, value: u64) -> Result<()> {
                (**self).store_u64(offset, value)
            }
            fn flush(&self, range: Range<u64>) -> Result<()> {
                (**self).flush(range)
            }
            fn fence(&self) -> Result<()> {
                (**self).fence()
            }
            fn snapshot(&self) -> Option<Arc<dyn Region>> {
                (**self).snapshot()
            }
            fn persist(&self, range: Range<u64>) -> Result<()> {
                (**self).persist(range)
            }
        }
    )*};
}

forward!(&R, Box<R>, Arc<R>);
