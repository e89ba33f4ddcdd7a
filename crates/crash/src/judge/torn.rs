//! Crashes inside a recovery that lose what it did not flush.

use std::sync::Arc;

use stetfs::low::MemDevice;
use stetfs_block::{Recorder, Replay};

use super::{Checks, Finding, Oracle, gone};
use crate::state::{Uncertain, Why, first_pass, points};
use crate::volume::open;
use crate::work::{Progresses, Work};

impl Work {
    /// Recovers the volume over a recorder, and checks what crashes before each of its flushes leave. Says how many.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub(super) fn check_torn_recovery(
        &self,
        crashed: &MemDevice,
        progress: &Progresses,
    ) -> Result<u64, Finding> {
        let device = Arc::new(Recorder::new(crashed.fork()));
        let fs = open(&device, &self.options)
            .map_err(|e| Oracle::Opens.says(format!("cannot be opened: {e}")))?;
        gone(fs)?;
        let log = device.take_log();
        let mut replay = Replay::new(crashed, &log);
        let mut cuts = 0;
        for (event, why) in points(&log, 0) {
            if why != Why::Flush {
                continue;
            }
            replay.advance_to(event);
            let uncertain = Uncertain::at(&replay);
            for state in first_pass(event, why, &uncertain, 1) {
                self.check(
                    &state.make_of(&replay, &uncertain),
                    progress,
                    Checks::default(),
                )
                .map_err(|e| e.because(format!("a recovery cut at {state}")))?;
                cuts += 1;
            }
        }
        Ok(cuts)
    }
}
