//! Debug builds apply the records of files to a copy of the volume before the sync that wrote one
//! is answered (replay.A3): what is acknowledged can be recovered.
//!
//! Only devices that can be copied in no time take part: those in memory. The crash lab asks the
//! same of its records, right after each sync that was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stetfs_block::BlockDevice;
use stetfs_journal::region::RegionSource;

use super::super_state::RecordProof;
use crate::fs::Fs;
use crate::types::FsOptions;

/// All of the first records of a volume are tried, then one of so many.
const ONE_OF: u64 = 16;

/// For a volume on this device with these options: recovers a copy of it at each call. None where a
/// recovery would need more than the device, or is to go wrong.
///
/// # Panics
/// The proof does: the recovery refuses something.
pub(super) fn record_proof(
    device: &Arc<dyn BlockDevice>,
    external: Option<&Arc<dyn BlockDevice>>,
    opts: &FsOptions,
) -> Option<RecordProof> {
    let is_whole = external.is_none()
        && opts.region == RegionSource::None
        && opts.canary == Default::default();
    let (device, records) = (Arc::clone(device), AtomicU64::new(0));
    is_whole.then(|| Box::new(move || try_record(&*device, &records)) as RecordProof)
}

fn try_record(device: &dyn BlockDevice, records: &AtomicU64) {
    let n = records.fetch_add(1, Ordering::Relaxed);
    if n >= ONE_OF && !n.is_multiple_of(ONE_OF) {
        return;
    }
    let Some(copy) = device.snapshot() else {
        return;
    };
    // A thread of its own: the caller holds locks of its own volume.
    let opened = std::thread::spawn(|| Fs::open(copy, FsOptions::default()).map(drop));
    match opened.join() {
        Ok(Ok(())) => {}
        Ok(Err(e)) => panic!("replay.A3: a sync wrote a record that recovery refuses: {e}"),
        Err(_) => panic!("replay.A3: a sync wrote a record at which recovery panics"),
    }
}
