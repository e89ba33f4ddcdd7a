//! What a translation layer does.

use super::counters::{BlockView, Counters};
use super::geometry::Geometry;
use super::ops::Sink;

/// Why a layer refuses a request. Then it has done nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlError {
    /// Beyond the last logical page.
    #[error("{pages} pages from {lpn} on are beyond the end of a device of {capacity} pages")]
    OutOfRange {
        /// The first page.
        lpn: u64,
        /// How many.
        pages: u64,
        /// Pages of the device.
        capacity: u64,
    },
    /// A batch of shares has more pairs than the device makes durable at once.
    #[error("a batch of {pairs} pages to share; the device takes at most {limit}")]
    TooManyPairs {
        /// Pairs of pages of the batch.
        pairs: u64,
        /// What it takes.
        limit: u64,
    },
    /// A page would be shared by more logical pages than the device can note beside it.
    #[error("page {lpn} would have more than {limit} references")]
    TooManyReferences {
        /// The logical page that was to be shared.
        lpn: u64,
        /// What it takes.
        limit: u64,
    },
    /// A page is the destination of two pairs, or destination and source.
    #[error("page {lpn} is a destination and occurs a second time in the same batch")]
    Overlap {
        /// The page.
        lpn: u64,
    },
}

/// Fails unless these pages are on the device.
pub(super) fn bounds(lpn: u64, pages: u64, capacity: u64) -> Result<(), FtlError> {
    match lpn.checked_add(pages) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(FtlError::OutOfRange {
            lpn,
            pages,
            capacity,
        }),
    }
}

/// A translation layer. Logical pages are numbered from 0; all counts are pages of
/// [`PAGE`](super::PAGE) bytes.
pub trait Ftl: Send + Sync {
    /// Another one in the same state: a device that was aged once serves many runs.
    fn duplicate(&self) -> Box<dyn Ftl>;

    /// Pages and blocks of the device.
    fn geometry(&self) -> Geometry;

    /// Logical pages.
    fn capacity(&self) -> u64 {
        u64::from(self.geometry().logical_pages)
    }

    /// Reads `n` pages from `lpn` on: a [`PhysOp::Read`](super::PhysOp::Read) for each that is
    /// mapped; the others are zeros.
    ///
    /// # Errors
    /// Pages beyond the end.
    fn read(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError>;

    /// Writes `n` pages from `lpn` on: a [`PhysOp::Program`](super::PhysOp::Program) for each, in
    /// order, among what else is necessary.
    ///
    /// # Errors
    /// Pages beyond the end.
    fn write(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError>;

    /// Forgets `n` pages from `lpn` on: they read as zeros. Stands after the next
    /// [`flush`](Ftl::flush).
    ///
    /// # Errors
    /// Pages beyond the end.
    fn trim(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError>;

    /// Makes durable what was done before. Programs are by themselves; trims are logged now.
    fn flush(&mut self, ops: &mut dyn Sink);

    /// The physical page that a logical one is mapped to.
    fn lookup(&self, lpn: u64) -> Option<u32>;

    /// What it has done.
    fn counters(&self) -> Counters;

    /// The erase blocks, by number.
    fn blocks(&self) -> Vec<BlockView>;

    /// Logical pages that share a physical one with another.
    fn references(&self) -> u64 {
        0
    }

    /// What shares pages, if this layer can.
    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        None
    }

    /// The power goes, and comes back: forgets everything but what is on the flash, and makes the
    /// tables from that. What was interrupted is tidied up.
    fn restart(&mut self, ops: &mut dyn Sink);

    /// Lets the flash do so many more steps; the power is gone then, although the layer does not
    /// know until it is [restarted](Ftl::restart). For tests.
    fn cut_after(&mut self, steps: u64);

    /// Looks whether all tables agree with each other and with the flash.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn check(&self) -> Result<(), String>;
}

/// How much can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ShareLimits {
    /// Pages of a batch: those that one page of the mapping's log has room for, 508 at most.
    pub pairs: u32,
    /// Logical pages that one physical page is mapped by: those that the bytes beside it have room
    /// for.
    pub references: u32,
}

/// A layer that can map several logical pages to one physical page.
pub trait Sharing {
    /// How much it can.
    fn limits(&self) -> ShareLimits;

    /// Makes the first page of each pair read as the second, all or, if the power goes, none.
    /// Durable when it returns. What one of the two reads later does not change with what is
    /// written to the other. An unmapped source unmaps.
    ///
    /// # Errors
    /// Pages beyond the end, a limit passed, or a destination that occurs twice.
    fn share(&mut self, pairs: &[(u64, u64)], ops: &mut dyn Sink) -> Result<(), FtlError>;
}
