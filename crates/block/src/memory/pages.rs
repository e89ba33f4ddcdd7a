//! Huge pages or small ones.
//!
//! A virtual machine may give its free huge pages back to its host (free page reporting). Who
//! touches such a page first stops the whole processor until the host has found memory again, 4 to
//! 8 ms for 2 MiB, whichever thread it is. In small pages the same takes less than 1 ms while there
//! is small free memory, which the host was not given, and else as long, but in steps of some 10
//! µs. Where memory was in use a moment ago, a huge page takes 0.1 to 0.3 ms.

use std::time::{Duration, Instant};

use super::region::Region;

/// A huge page that takes longer was not there.
const SLOW: Duration = Duration::from_millis(1);
/// So long memory comes in small pages then, and twice as long each time …
const FIRST: Duration = Duration::from_secs(1);
/// … up to this.
const LAST: Duration = Duration::from_secs(64);
/// Between two steps of small pages that nobody waits for: others get the processor.
const REST: Duration = Duration::from_micros(100);

/// What the thread that prepares knows of huge pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Small ones until then.
    until: Option<Instant>,
    /// How long that is; 0: the last huge page was there.
    pause: Duration,
}

impl Pages {
    /// Prepares `region` in pages that are there soon: slowly, step by step, while it is not
    /// `urgent`. Says whether there is memory.
    pub(super) fn prepare(&mut self, region: Region, urgent: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        if self.small(begin) {
            return region.prepare_small(|| {
                if !urgent() {
                    std::thread::sleep(REST);
                }
            });
        }
        let well = region.prepare();
        self.huge_took(begin.elapsed(), Instant::now());
        well
    }

    fn small(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn huge_took(&mut self, time: Duration, now: Instant) {
        self.pause = match time > SLOW {
            true => (self.pause * 2).clamp(FIRST, LAST),
            false => Duration::ZERO,
        };
        self.until = Some(now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_huge_pages_are_tried_again_after_longer_and_longer() {
        let mut pages = Pages::default();
        let mut now = Instant::now();
        assert!(!pages.small(now));
        for pause in [1, 2, 4, 8, 16, 32, 64, 64].map(Duration::from_secs) {
            pages.huge_took(Duration::from_millis(5), now);
            assert!(pages.small(now + pause - Duration::from_millis(1)));
            now += pause;
            assert!(!pages.small(now));
        }
        pages.huge_took(Duration::from_micros(200), now);
        assert!(!pages.small(now), "they are there again");
        pages.huge_took(Duration::from_millis(5), now);
        assert!(!pages.small(now + FIRST));
    }
}
