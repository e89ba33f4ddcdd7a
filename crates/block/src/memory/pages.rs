//! The choice between huge and small pages when memory is prepared.
//!
//! A virtual machine may return its free huge pages to its host (free page reporting). The first
//! access to such a page stops the whole processor, in any thread, until the host has found memory
//! again: 4 to 8 ms for 2 MiB. In small pages the same takes less than 1 ms while the guest has
//! free small pages, which it did not return to the host. Without these it takes as long, but in
//! steps of some 10 µs. If the memory was in use a moment ago, a huge page takes 0.1 to 0.3 ms.

use std::time::{Duration, Instant};

use super::region::Region;

/// A huge page that takes longer had to be found by the host.
const SLOW: Duration = Duration::from_millis(1);
/// Initial time for which memory comes in small pages after a slow huge page; it doubles each time.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum of that time.
const LAST: Duration = Duration::from_secs(64);
/// Pause between two steps of small pages without urgency, for other threads.
const REST: Duration = Duration::from_micros(100);

/// The state of the preparing thread: whether huge pages are fast now.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// End of the time for small pages.
    until: Option<Instant>,
    /// Length of that time; 0 if the last huge page was fast.
    pause: Duration,
}

impl Pages {
    /// Prepares `region` in the kind of pages that is fast now; in small steps with pauses unless
    /// `urgent`. Returns whether there is memory.
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
