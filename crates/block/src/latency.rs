//! Histograms of durations, which threads fill without waiting for each other.
//!
//! Buckets are quarters of the spans between powers of two, so each ends at most 1.25 times as late
//! as the one before. The first ends at 1.024 µs, the last at 137 s; longer durations have a bucket
//! of their own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// End of the first bucket: nanoseconds, as a power of two.
const FIRST_BITS: u32 = 10;
/// End of the last bounded bucket, likewise.
const LAST_BITS: u32 = 37;
/// Buckets between two powers of two, as a power of two.
const PART_BITS: u32 = 2;
const PARTS: usize = 1 << PART_BITS;
/// Number of buckets: the first, the parts, and the unbounded one.
const BUCKETS: usize = 1 + ((LAST_BITS - FIRST_BITS) as usize) * PARTS + 1;
/// Number of shards: threads use different counters to avoid sharing cache lines.
const SHARDS: usize = 8;

/// The bucket of a duration: the first that does not end before it.
fn bucket(nanos: u64) -> usize {
    let before = nanos.saturating_sub(1);
    let Some(octave) = before
        .checked_ilog2()
        .and_then(|bits| bits.checked_sub(FIRST_BITS))
    else {
        return 0;
    };
    let part = (before >> (octave + FIRST_BITS - PART_BITS)) as usize % PARTS;
    (1 + octave as usize * PARTS + part).min(BUCKETS - 1)
}

/// The end of bucket `index` in nanoseconds, inclusive. `None` for the unbounded bucket.
fn end(index: usize) -> Option<u64> {
    let Some(parts) = index.checked_sub(1) else {
        return Some(1 << FIRST_BITS);
    };
    let (octave, part) = ((parts / PARTS) as u32, (parts % PARTS) as u64);
    let end = (PARTS as u64 + part + 1) << (octave + FIRST_BITS - PART_BITS);
    (index + 1 < BUCKETS).then_some(end)
}

/// The counters of some threads, on cache lines of their own.
#[repr(align(128))]
struct Shard {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    longest: AtomicU64,
}

/// A histogram of durations.
pub struct Histogram([Shard; SHARDS]);

impl Histogram {
    /// An empty histogram.
    pub const fn new() -> Histogram {
        Histogram(
            [const {
                Shard {
                    counts: [const { AtomicU64::new(0) }; BUCKETS],
                    nanos: AtomicU64::new(0),
                    longest: AtomicU64::new(0),
                }
            }; SHARDS],
        )
    }

    /// Counts one duration.
    pub fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let shard = usize::from(stetfs_sync::thread_number()) % SHARDS;
        let Some(shard) = self.0.get(shard) else {
            return;
        };
        if let Some(count) = shard.counts.get(bucket(nanos)) {
            count.fetch_add(1, Relaxed);
        }
        shard.nanos.fetch_add(nanos, Relaxed);
        if shard.longest.load(Relaxed) < nanos {
            shard.longest.fetch_max(nanos, Relaxed);
        }
    }

    /// The current numbers. Concurrent additions may be half included.
    pub fn snapshot(&self) -> Latency {
        let mut latency = Latency {
            counts: vec![0; BUCKETS],
            ..Latency::default()
        };
        for shard in &self.0 {
            for (sum, count) in latency.counts.iter_mut().zip(&shard.counts) {
                *sum += count.load(Relaxed);
            }
            latency.total += Duration::from_nanos(shard.nanos.load(Relaxed));
            let longest = Duration::from_nanos(shard.longest.load(Relaxed));
            latency.longest = latency.longest.max(longest);
        }
        latency
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

/// A copy of a histogram's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The count of each bucket.
    counts: Vec<u64>,
    /// The sum of all durations.
    pub total: Duration,
    /// The longest duration.
    pub longest: Duration,
}

impl Latency {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The quantile `share` (0 to 1), to a bucket's width; zero if there are no durations.
    pub fn quantile(&self, share: f64) -> Duration {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (up_to, count) in self.buckets() {
            seen += count;
            if seen >= rank {
                return up_to.map_or(self.longest, |end| end.min(self.longest));
            }
        }
        Duration::ZERO
    }

    /// The buckets, shortest first: the end (inclusive; `None` for the last), and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.map(|(index, count)| (end(index).map(Duration::from_nanos), *count))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_by_a_quarter_at_most() {
        let ends: Vec<u64> = (0..BUCKETS - 1).map(|i| end(i).unwrap()).collect();
        assert_eq!(end(BUCKETS - 1), None);
        assert_eq!((ends[0], *ends.last().unwrap()), (1 << 10, 1 << 37));
        for pair in ends.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] * 4 <= pair[0] * 5, "{pair:?}");
        }
        for (index, end) in ends.into_iter().enumerate() {
            assert_eq!((bucket(end), bucket(end + 1)), (index, index + 1), "{end}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn what_all_threads_add_is_in_it() {
        let histogram = Histogram::new();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| {
                    (1..=100).for_each(|micros| histogram.add(Duration::from_micros(micros)))
                });
            }
        });
        let latency = histogram.snapshot();
        let n = 2 * SHARDS as u64;
        assert_eq!(latency.count(), 100 * n);
        assert_eq!(latency.total, Duration::from_micros(5050 * n));
        assert_eq!(latency.longest, Duration::from_micros(100));
        let (half, all) = (latency.quantile(0.5), latency.quantile(1.0));
        assert_eq!(all, latency.longest);
        let micros = half.as_nanos() as f64 / 1e3;
        assert!((50.0..=62.5).contains(&micros), "{micros}");
        assert_eq!(Histogram::new().snapshot().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn beyond_the_last_bucket_there_is_the_longest() {
        let histogram = Histogram::new();
        histogram.add(Duration::from_secs(1000));
        let latency = histogram.snapshot();
        assert_eq!(latency.quantile(0.5), Duration::from_secs(1000));
        assert_eq!(latency.buckets().last(), Some((None, 1)));
    }
}
