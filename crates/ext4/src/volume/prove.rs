//! Debug builds apply the records of files to a copy of the volume before the sync that wrote one
//! is answered (replay.A3): what is acknowledged can be recovered.
//!
//! Only devices that can be copied in no time take part: those in memory. The crash lab asks the
//! same of its records, right after each sync that was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stetfs_block::BlockDevice;
use stetfs_journal::region::RegionSource;

use crate::fs::Fs;
use crate::types::FsOptions;

/// All of the first records of a volume are tried, then one of so many.
const ONE_OF: u64 = 16;

/// The device of a volume whose records are tried.
pub(crate) struct RecordProof {
    device: Arc<dyn BlockDevice>,
    records: AtomicU64,
}

impl RecordProof {
    /// For a volume on this device with these options; none where a recovery would need more than
    /// the device, or is to go wrong.
    pub(super) fn new(device: Arc<dyn BlockDevice>, opts: &FsOptions) -> Option<RecordProof> {
        let is_whole = opts.region == RegionSource::None && opts.canary == Default::default();
        is_whole.then_some(RecordProof {
            device,
            records: AtomicU64::new(0),
        })
    }

    /// A record is durable: recovers a copy of the volume.
    ///
    /// # Panics
    /// The recovery refuses something.
    pub(crate) fn record_is_durable(&self) {
        let n = self.records.fetch_add(1, Ordering::Relaxed);
        if n >= ONE_OF && !n.is_multiple_of(ONE_OF) {
            return;
        }
        let Some(copy) = self.device.snapshot() else {
            return;
        };
        // A thread of its own: the caller holds locks of its own volume.
        let opened = std::thread::spawn(|| Fs::open(copy, FsOptions::default()).map(drop));
        let recovered = opened.join().ok().and_then(Result::err);
        if let Some(e) = recovered {
            panic!("replay.A3: a sync wrote a record that recovery refuses: {e}");
        }
    }
}
