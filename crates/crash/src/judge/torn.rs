//! Crashes inside a recovery that lose its unflushed writes, and crashes inside the recovery that
//! follows.

use super::finding::{Checks, Finding};
use super::record_recovery;
use crate::machine::Crashed;
use crate::state::{StateId, Why};
use crate::walk::{Walk, places};
use crate::work::{Progresses, Work};

/// Number of crashes drawn inside a recovery.
const DRAWN: usize = 4;

/// Numbers of crashes inside recoveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Crashes inside the first recovery.
    pub first: u64,
    /// Crashes inside the recovery after such a crash.
    pub second: u64,
}

impl Work {
    /// Recovers the volume, and checks the results of crashes before each of its flushes. One of
    /// these crashes at each flush is recovered and crashes again, in a few ways.
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

    /// Recovers the volume, and checks the results of a few random crashes inside this recovery;
    /// with `twice` also of crashes inside the recovery after the first of them.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub(crate) fn check_drawn_cuts(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
        seed: u64,
        twice: bool,
    ) -> Result<Cuts, Finding> {
        let mut cuts = Cuts::default();
        for (n, (state, image)) in self.drawn_crashes(crashed, seed)?.into_iter().enumerate() {
            let cut = |e: Finding| e.because(format!("a recovery cut at {state}"));
            self.check_left(&image, progress, Checks::default())
                .map_err(cut)?;
            cuts.first += 1;
            if n > 0 || !twice {
                continue;
            }
            for (second, image) in self
                .drawn_crashes(&image, seed.wrapping_add(1))
                .map_err(cut)?
            {
                self.check_left(&image, progress, Checks::default())
                    .map_err(|e| cut(e.because(format!("and the next at {second}"))))?;
                cuts.second += 1;
            }
        }
        Ok(cuts)
    }

    /// A few random crashes inside a recovery, and the machine that each leaves.
    fn drawn_crashes(
        &self,
        crashed: &Crashed,
        seed: u64,
    ) -> Result<Vec<(StateId, Crashed)>, Finding> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (log, region) = record_recovery(crashed, &self.options)?;
        let mut drawn = places(&log, &region, 0);
        rng.shuffle(&mut drawn);
        drawn.truncate(DRAWN);
        drawn.sort_unstable();
        let mut walk = Walk::new(crashed, &log, &region);
        let mut all = Vec::new();
        for (place, why) in drawn {
            walk.advance_to(place);
            let uncertain = walk.uncertain();
            let states = walk.first_pass(place, why, &uncertain, seed);
            if let Some(state) = rng.choice(states) {
                let image = walk.make_of(&state, &uncertain);
                all.push((state, image));
            }
        }
        Ok(all)
    }

    /// Recovers the volume over a recorder. Gives the crashes before the end of each flush and
    /// fence (as many as at a place of kind `why`), the machine that each leaves, and whether it is
    /// the last one at its flush.
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
