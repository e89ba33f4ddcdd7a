//! The interface of translation layers, and their errors.

use super::counters::{BlockView, Counters};
use super::geometry::Geometry;
use super::ops::Sink;

/// The reason why a layer refuses a request; a refused request has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlError {
    /// Pages beyond the last logical page.
    #[error("{pages} pages from {lpn} on are beyond the end of a device of {capacity} pages")]
    OutOfRange {
        /// The first page.
        lpn: u64,
        /// Number of pages.
        pages: u64,
        /// Pages of the device.
        capacity: u64,
    },
    /// A batch of shares has more pairs than the device makes durable at once.
    #[error("a batch of {pairs} pages to share; the device takes at most {limit}")]
    TooManyPairs {
        /// Pairs of pages of the batch.
        pairs: u64,
        /// The limit.
        limit: u64,
    },
    /// A page would be shared by more logical pages than the device can note beside it.
    #[error("page {lpn} would have more than {limit} references")]
    TooManyReferences {
        /// The logical page that was to be shared.
        lpn: u64,
        /// The limit.
        limit: u64,
    },
    /// A page is the destination of two pairs, or the destination of one and the source of another.
    #[error("page {lpn} is a destination and occurs a second time in the same batch")]
    Overlap {
        /// The page.
        lpn: u64,
    },
}

/// Checks that these pages are on the device.
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
    /// A copy in the same state, so that a device that was aged once serves many runs.
    fn duplicate(&self) -> Box<dyn Ftl>;

    /// Numbers of pages and blocks.
    fn geometry(&self) -> Geometry;

    /// Number of logical pages.
    fn capacity(&self) -> u64 {
        u64::from(self.geometry().logical_pages)
    }

    /// Reads `n` pages from `lpn` on, by a [`PhysOp::Read`](super::PhysOp::Read) for each mapped
    /// one; unmapped pages are zeros.
    ///
    /// # Errors
    /// Pages beyond the end.
    fn read(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError>;

    /// Writes `n` pages from `lpn` on, by a [`PhysOp::Program`](super::PhysOp::Program) for each,
    /// in order, and by other steps as necessary.
    ///
    /// # Errors
    /// Pages beyond the end.
    fn write(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError>;

    /// Unmaps `n` pages from `lpn` on; they read as zeros. Durable after the next
    /// [`flush`](Ftl::flush).
    ///
    /// # Errors
    /// Pages beyond the end.
    fn trim(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError>;

    /// Makes earlier requests durable. Programs are durable at once; trims are logged now.
    fn flush(&mut self, ops: &mut dyn Sink);

    /// The physical page that a logical one is mapped to.
    fn lookup(&self, lpn: u64) -> Option<u32>;

    /// Counts of the layer's work.
    fn counters(&self) -> Counters;

    /// The erase blocks, by number.
    fn blocks(&self) -> Vec<BlockView>;

    /// Number of logical pages that share a physical page with another one.
    fn references(&self) -> u64 {
        0
    }

    /// The capability to share pages, if the layer has it.
    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        None
    }

    /// Restarts after a power cut: drops everything that is not on the flash, and rebuilds the
    /// tables from it. Interrupted operations are completed or undone.
    fn restart(&mut self, ops: &mut dyn Sink);

    /// Cuts the power after `steps` further steps of the flash; the layer does not notice until it
    /// is [restarted](Ftl::restart). Where the power is cut already, after as many steps of the
    /// restart. For tests.
    fn cut_after(&mut self, steps: u64);

    /// Checks that all tables agree with each other and with the flash.
    ///
    /// # Errors
    /// The contradiction, in words.
    fn check(&self) -> Result<(), String>;
}

/// The limits of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ShareLimits {
    /// Pages of a batch; at most 508, the number that a page of the mapping's log holds.
    pub pairs: u32,
    /// Logical pages that may be mapped to one physical page; limited by the spare bytes beside a
    /// page.
    pub references: u32,
}

/// A layer that can map several logical pages to one physical page.
pub trait Sharing {
    /// The limits.
    fn limits(&self) -> ShareLimits;

    /// Maps the first page of each pair to the content of the second. The batch is atomic, and
    /// durable on return. Later writes to one page do not change the other. An unmapped source
    /// unmaps the destination.
    ///
    /// # Errors
    /// Pages beyond the end, a limit exceeded, or a destination that occurs twice.
    fn share(&mut self, pairs: &[(u64, u64)], ops: &mut dyn Sink) -> Result<(), FtlError>;
}
