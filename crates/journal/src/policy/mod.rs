//! The policies that make a scheme (architecture, "The seam").
//!
//! | policy | question | first choices |
//! | --- | --- | --- |
//! | [`Ordering`] | which lane? | [`OneLane`] |
//! | [`Codec`] | how does a transaction look in the log? | `jbd2::Jbd2Codec` |
//! | [`Medium`] | where is the log, and how is it sealed? | `jbd2::Jbd2Ring` |
//! | [`Home`] | how does an image reach its home? | [`CopyHome`], [`ShareHome`](crate::ShareHome) |
//! | [`RecordLog`] | where do records of files go, if there are any? | `stet::FileLanes`, `region::RegionLanes` |

mod codec;
mod encoded;
mod home;
mod medium;
mod ordering;
mod place;
mod record_lane;
mod records;
mod touched;

pub use codec::{Codec, Early, EndReason, ImageRef, Scan, ScannedTx};
pub use encoded::{Encoded, Packing};
pub(crate) use home::copy;
pub use home::{CopyHome, Home, HomeImage, Sent, Standing};
pub use medium::{LogTail, Medium, set_tails};
pub use ordering::{Copies, OneLane, Ordering};
pub use place::Place;
pub(crate) use record_lane::{InLane, RecordLane};
pub use records::{FoundRecords, LoggedRecord, RecordLog, RecordPlace, RecordSize};
pub use touched::{Touched, WORD};

use std::sync::Arc;

use crate::error::Result;

/// A scheme: one combination of policies.
pub struct Scheme {
    /// The lanes.
    pub ordering: Box<dyn Ordering>,
    /// The format of the log.
    pub codec: Box<dyn Codec>,
    /// The log of each lane.
    pub media: Vec<Box<dyn Medium>>,
    /// The way of images to their home locations.
    pub home: Box<dyn Home>,
    /// The log of records of files, if there is one.
    pub records: Option<Arc<dyn RecordLog>>,
}

impl Scheme {
    /// Ends the use of the log ([`retire`]).
    pub(crate) fn retire(&self) -> Result<()> {
        retire(self.records.as_deref(), self.media.iter().map(|m| &**m))
    }
}

/// Ends the use of an empty log, durably. Records come first, because the media name their place.
pub(crate) fn retire<'m>(
    records: Option<&dyn RecordLog>,
    mut media: impl Iterator<Item = &'m dyn Medium>,
) -> Result<()> {
    records.map_or(Ok(()), RecordLog::retire)?;
    media.try_for_each(Medium::retire)
}

/// Takes a log into use again after [`retire`]. Media come first, because records are found by
/// them.
///
/// # Errors
/// The errors of the log.
pub(crate) fn resume<'m>(
    records: Option<&dyn RecordLog>,
    mut media: impl Iterator<Item = &'m dyn Medium>,
) -> Result<()> {
    media.try_for_each(Medium::resume)?;
    records.map_or(Ok(()), RecordLog::resume)
}
