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

/// One combination of policies.
pub struct Scheme {
    /// Lanes.
    pub ordering: Box<dyn Ordering>,
    /// The look of the log.
    pub codec: Box<dyn Codec>,
    /// The place of the log; one per lane.
    pub media: Vec<Box<dyn Medium>>,
    /// The way home.
    pub home: Box<dyn Home>,
    /// Where records of files go, if there are any.
    pub records: Option<Arc<dyn RecordLog>>,
}

impl Scheme {
    /// See [`retire`].
    pub(crate) fn retire(&self) -> Result<()> {
        retire(self.records.as_deref(), self.media.iter().map(|m| &**m))
    }
}

/// Ends the use of a log, durably: there is nothing in it. Records first, for the media say where
/// they are.
pub(crate) fn retire<'m>(
    records: Option<&dyn RecordLog>,
    mut media: impl Iterator<Item = &'m dyn Medium>,
) -> Result<()> {
    records.map_or(Ok(()), RecordLog::retire)?;
    media.try_for_each(Medium::retire)
}

/// After [`retire`]: the use of the log goes on. Media first, for what they name is to be found by
/// them.
///
/// # Errors
/// The log's.
pub(crate) fn resume<'m>(
    records: Option<&dyn RecordLog>,
    mut media: impl Iterator<Item = &'m dyn Medium>,
) -> Result<()> {
    media.try_for_each(Medium::resume)?;
    records.map_or(Ok(()), RecordLog::resume)
}
