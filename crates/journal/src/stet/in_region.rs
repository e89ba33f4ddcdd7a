//! The StetFS log with its transactions in a region of persistent memory. Only its header, which
//! has the tail, is on the volume.

use std::sync::Arc;

use super::log::StetLog;
use super::options::StetOptions;
use crate::error::JournalError;
use crate::policy::{CopyHome, Medium, OneLane, RecordLog, Scheme, WORD};
use crate::region::{ChangesCodec, RegionError, RegionRing};

impl StetLog {
    /// The policies for a log whose transactions are in a region. Its tails stay in the volume's
    /// log, whose media are `tails`.
    pub(super) fn in_region(
        &self,
        options: &StetOptions,
        tails: Vec<Box<dyn Medium>>,
        records: Option<Arc<dyn RecordLog>>,
    ) -> Scheme {
        let device = self.area.device();
        let log = self.records.as_ref().and_then(|region| region.log());
        let unrecorded = self.records.as_ref().filter(|_| records.is_none());
        let ring =
            |tails| RegionRing::new(log.clone(), unrecorded.cloned(), Arc::clone(device), tails);
        let media = tails.into_iter().map(ring);
        Scheme {
            ordering: Box::new(OneLane),
            records,
            codec: Box::new(ChangesCodec {
                log: log.clone(),
                device: Arc::clone(device),
                block_size: self.area.block_size(),
                unit: options.changes.unwrap_or(WORD),
            }),
            media: media
                .map(|ring| Box::new(ring) as Box<dyn Medium>)
                .collect(),
            home: Box::new(CopyHome),
        }
    }

    /// Turns the loss of a region into the loss of the log, if the log is in it.
    pub(super) fn lost(&self, e: JournalError) -> JournalError {
        match &e {
            JournalError::Region(why) if self.header.in_region => match &**why {
                RegionError::Lost(why) => RegionError::LogLost(why.clone()).into(),
                _ => e,
            },
            _ => e,
        }
    }
}
