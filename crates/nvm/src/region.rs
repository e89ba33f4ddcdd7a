//! The trait of persistent memory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use stetfs_block::{BlockError, Op, Result, check_range};

use crate::WORD;

/// What things survive that a fence made durable. Each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing: they are gone with the region's owner.
    Nothing,
    /// The end of the process, also by a kill; neither a crash of the kernel nor a loss of power.
    Process,
    /// A crash of the kernel and a loss of power, as far as the memory or the disk behind the file
    /// keeps its word. (Memory that the kernel was told to call persistent, with `memmap=`,
    /// does not.)
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

/// Persistent memory of numbered bytes. See the crate's head for what it promises.
///
/// Every call fails with [`BlockError::OutOfRange`] beyond the end, and touches nothing then.
pub trait Region: Send + Sync {
    /// Size in bytes, whole lines; never changes while the region is open.
    fn size(&self) -> u64;

    /// What things survive that a fence made durable.
    fn durability(&self) -> Durability;

    /// Fills `buf` from `offset` on. Stores that run meanwhile are in it by whole words.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Stores `bytes` at `offset`: visible when it returns, durable after a flush and a fence.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Loads the little-endian word at `offset`, a multiple of 8. What was stored before it by
    /// whoever stored it is seen afterwards (acquire).
    ///
    /// # Errors
    /// [`BlockError::Unaligned`].
    fn load_u64(&self, offset: u64) -> Result<u64>;

    /// Stores a little-endian word at `offset`, a multiple of 8 (release).
    ///
    /// # Errors
    /// [`BlockError::Unaligned`].
    fn store_u64(&self, offset: u64, value: u64) -> Result<()>;

    /// Sends the lines that `range` touches on their way. Several flushes may share a fence.
    fn flush(&self, range: Range<u64>) -> Result<()>;

    /// Makes durable what this thread has flushed before.
    ///
    /// # Errors
    /// That of the file; [`BlockError::Shrunk`] if it was made shorter. All later fences fail then,
    /// too.
    fn fence(&self) -> Result<()>;

    /// A flush and a fence.
    fn persist(&self, range: Range<u64>) -> Result<()> {
        self.flush(range)?;
        self.fence()
    }
}

/// The number of the word at this offset of a region.
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

/// Range check of a flush; an inverted range is empty.
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
            fn persist(&self, range: Range<u64>) -> Result<()> {
                (**self).persist(range)
            }
        }
    )*};
}

forward!(&R, Box<R>, Arc<R>);
