//! Ageing: use of a device before it is measured.

use super::{Ftl, FtlError, Sink};

/// The former use of a device. The same seed gives the same requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ageing {
    /// Part of the capacity that is first written in sequence, 0 to 1.
    pub fill: f64,
    /// Pages that are then written in runs and singly at random places, as a part of the capacity.
    pub mixed: f64,
    /// Part of these pages that is written in runs, 0 to 1.
    pub sequential: f64,
    /// Pages of a run.
    pub run: u64,
    /// Seed of the random places.
    pub seed: u64,
}

impl Ageing {
    /// Writes of as many pages as the device holds, half of them in runs of 4 MiB and half single,
    /// as in the paper (2.4.5).
    pub const MIXED: Ageing = Ageing {
        fill: 0.0,
        mixed: 1.0,
        sequential: 0.5,
        run: 1024,
        seed: 1,
    };

    /// Every page written once in sequence, and then the writes of [`Ageing::MIXED`]: a full, used
    /// device.
    pub const FULL: Ageing = Ageing {
        fill: 1.0,
        ..Ageing::MIXED
    };

    /// Writes all pages of this ageing.
    ///
    /// # Errors
    /// The layer's; none if the layer takes every page of its capacity.
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
            // The kind that is behind its share comes next.
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
