//! The proof of records of files: each record is applied to a copy of the volume before its sync is
//! answered (replay.A3). So every acknowledged sync can be recovered.
//!
//! Debug builds and the crash lab do this. It needs devices and regions that can be copied quickly,
//! which means those in memory.

use std::sync::Arc;

use stetfs_block::BlockDevice;

use crate::fs::Fs;
use crate::types::{FsOptions, OnError};
use crate::volume::super_state::RecordProof;

/// The most attempts to make a copy. A copy is consistent only if nothing was written meanwhile.
const TRIES: usize = 100;
/// Cache of the copy, bytes.
const CACHE: u64 = 4 << 20;

/// All devices of a volume, with its options.
struct Parts {
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
    opts: FsOptions,
}

/// A callback that recovers a copy of the volume on these devices, with these options; `None` if
/// the options do not ask for it.
///
/// # Panics
/// The callback panics if the recovery refuses something.
pub(super) fn record_proof(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
    opts: &FsOptions,
) -> Option<RecordProof> {
    if !opts.proves_records {
        return None;
    }
    let parts = Parts {
        device: Arc::clone(device),
        journal: journal.cloned(),
        opts: FsOptions {
            proves_records: false,
            cache_bytes: CACHE,
            on_error: Some(OnError::Continue),
            ..opts.clone()
        },
    };
    Some(Box::new(move || try_record(&parts)))
}

impl Parts {
    /// A consistent copy. `None` if a device cannot be copied, or writes never pause.
    fn copy(&self) -> Option<Parts> {
        (0..TRIES).find_map(|_| self.copy_once())
    }

    fn copy_once(&self) -> Option<Parts> {
        let written = || self.journal.as_ref().map(|journal| journal.stats());
        let before = (written(), self.opts.region.snapshot()?);
        let device = self.device.snapshot()?;
        let journal = match &self.journal {
            Some(journal) => Some(journal.snapshot()?),
            None => None,
        };
        let region = self.opts.region.snapshot()?;
        let is_one_moment = written() == before.0 && region.holds_the_same(&before.1);
        is_one_moment.then(|| Parts {
            device,
            journal,
            opts: FsOptions {
                region,
                ..self.opts.clone()
            },
        })
    }
}

fn try_record(parts: &Parts) {
    let Some(copy) = parts.copy() else {
        return;
    };
    // A thread of its own, because the caller holds locks of its own volume.
    let opened = std::thread::spawn(|| Fs::recover_copy(copy.device, copy.journal, copy.opts));
    match opened.join() {
        Ok(Ok(())) => {}
        Ok(Err(e)) => panic!("replay.A3: a sync wrote a record that recovery refuses: {e}"),
        Err(_) => panic!("replay.A3: a sync wrote a record at which recovery panics"),
    }
}
