//! A device that has been used before it is measured.

use super::{Ftl, FtlError, Sink};

/// What was written to a device before. The requests are the same for the same seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ageing {
    /// Part of the capacity that is written in sequence first, 0 to 1.
    pub fill: f64,
    /// Then as many pages as this part of the capacity, in runs and single pages at random places.
    pub mixed: f64,
    /// Of these, the part that is written in runs, 0 to 1.
    pub sequential: f64,
    /// Pages of a run.
    pub run: u64,
    /// What chooses the places.
    pub seed: u64,
}

impl Ageing {
    /// As much as the device holds, half of it in runs of 4 MiB and half in single pages: the
    /// paper's (2.4.5).
    pub const MIXED: Ageing = Ageing {
        fill: 0.0,
        mixed: 1.0,
        sequential: 0.5,
        run: 1024,
        seed: 1,
    };

    /// Every page written once in sequence, then the same: a full device that has seen use.
    pub const FULL: Ageing = Ageing {
        fill: 1.0,
        ..Ageing::MIXED
    };

    /// Writes all that.
    ///
    /// # Errors
    /// The layer's; none if it takes every page that it says it has.
    pub fn run(&self, ftl: &mut dyn Ftl, ops: &mut dyn Sink) -> Result<(), FtlError> {
        let capacity = ftl.capacity();
        let part = |part: f64| (capacity as f64 * part) as u64;
        let filled = part(self.fill.clamp(0.0, 1.0));
        ftl.write(0, filled, ops)?;
        let mut random = fastrand::Rng::with_seed(self.seed);
        let run = self.run.clamp(1, capacity);
        let (mut left, mut in_runs) = (part(self.mixed), 0);
        let mut done = 0;
        while left > 0 {
            // Whichever is behind its share.
            let sequential = (in_runs as f64) < self.sequential * (done + 1) as f64;
            let pages = if sequential { run.min(left) } else { 1 };
            let place = random.u64(..=capacity - pages);
            let lpn = if sequential { place / run * run } else { place };
            let pages = pages.min(capacity - lpn);
            ftl.write(lpn, pages, ops)?;
            in_runs += if sequential { pages } else { 0 };
            done += pages;
            left -= pages;
        }
        ftl.flush(ops);
        Ok(())
    }
}
