//! Crashes inside a recovery that lose what it did not flush, and inside the recovery that follows.

use super::finding::{Checks, Finding};
use super::record_recovery;
use crate::machine::Crashed;
use crate::state::{StateId, Why};
use crate::walk::{Walk, places};
use crate::work::{Progresses, Work};

/// Crashes inside recoveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Inside the first one.
    pub first: u64,
    /// Inside the one after such a crash.
    pub second: u64,
}

impl Work {
    /// Recovers the volume, and checks what crashes before each of its flushes leave. One of them
    /// at each flush is recovered and crashes again, in a few ways.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub(super) fn check_torn_recovery(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
    ) -> Result<Cuts, Finding> {
        let sound = |image: &Crashed, what: String| {
            let result = self.check_left(image, progress, Checks::default());
            result.map_err(|e| e.because(what))
        };
        let mut cuts = Cuts::default();
        for (state, image, is_last) in self.crashes_of_recovery(crashed, Why::Flush)? {
            sound(&image, format!("a recovery cut at {state}"))?;
            cuts.first += 1;
            if !is_last {
                continue;
            }
            let again = self.crashes_of_recovery(&image, Why::Write);
            let again = again.map_err(|e| e.because(format!("a recovery cut at {state}")))?;
            for (second, image, _) in again {
                let what = format!("a recovery cut at {state}, and the next at {second}");
                sound(&image, what)?;
                cuts.second += 1;
            }
        }
        Ok(cuts)
    }

    /// Recovers the volume over a recorder. Gives the crashes before each flush of that and each
    /// fence, as many as at a place of the kind `why`, what each leaves, and whether it is the
    /// last at its flush.
    fn crashes_of_recovery(
        &self,
        crashed: &Crashed,
        why: Why,
    ) -> Result<Vec<(StateId, Crashed, bool)>, Finding> {
        let (log, region) = record_recovery(crashed, &self.options)?;
        let mut walk = Walk::new(crashed, &log, &region);
        let mut all = Vec::new();
        let ends = places(&log, &region, 0).into_iter();
        for (place, _) in ends.filter(|(_, why)| matches!(why, Why::Flush | Why::Fence)) {
            walk.advance_to(place);
            let uncertain = walk.uncertain();
            let states = walk.first_pass(place, why, &uncertain, 1);
            let last = states.len().saturating_sub(1);
            for (i, state) in states.into_iter().enumerate() {
                let image = walk.make_of(&state, &uncertain);
                all.push((state, image, i == last));
            }
        }
        Ok(all)
    }
}
