//! The measured speeds of the device and the codecs, and the choice of a codec by them
//! (`compress=auto`).

use std::time::Duration;

use stetfs_ondisk::num::approx;
use stetfs_ondisk::stet::frame::Stored;
use stetfs_sync::plain::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::stats::nanos;

/// The number of choices of which one takes a codec whatever it costs (LZ4 and Zstandard in turn),
/// so that its speed stays known.
const LOOK_AGAIN: u64 = 64;
/// The weight of earlier measurements against a new one.
const KEEP: f64 = 0.97;
/// The assumed ratio of Zstandard's output to LZ4's.
const ZSTD_LEAVES: f64 = 0.8;

/// The measured speeds. Times are in nanoseconds, sizes in bytes.
pub struct Pace {
    device: Mutex<Line>,
    lz4: Codec,
    zstd: Codec,
    choices: AtomicU64,
}

/// The speed of a codec: nanoseconds per byte, as the bits of an `f64`.
struct Codec {
    per_byte: AtomicU64,
}

impl Codec {
    fn new(per_byte: f64) -> Codec {
        Codec {
            per_byte: AtomicU64::new(per_byte.to_bits()),
        }
    }

    fn per_byte(&self) -> f64 {
        f64::from_bits(self.per_byte.load(Ordering::Relaxed))
    }

    fn measured(&self, bytes: usize, time: Duration) {
        let now = approx(nanos(time)) / approx(bytes.max(1) as u64);
        // A time with an interruption in it does not measure the codec, so outliers are capped.
        let now = now.min(self.per_byte() * 4.0);
        let mean = self.per_byte() * 0.9 + now * 0.1;
        self.per_byte.store(mean.to_bits(), Ordering::Relaxed);
    }
}

/// A line fitted through (bytes, nanoseconds) of writes; old ones lose weight.
#[derive(Default)]
struct Line {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        for (sum, new) in [
            (&mut self.weight, 1.0),
            (&mut self.x, x),
            (&mut self.y, y),
            (&mut self.xx, x * x),
            (&mut self.xy, x * y),
        ] {
            *sum = *sum * KEEP + new;
        }
    }

    /// The slope of the line; none while all writes have about the same size.
    fn slope(&self) -> Option<f64> {
        let spread = self.weight * self.xx - self.x * self.x;
        let far = spread > 0.01 * self.weight * self.xx && self.weight > 3.0;
        far.then(|| ((self.weight * self.xy - self.x * self.y) / spread).max(0.0))
    }
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            device: Mutex::new(Line::default()),
            lz4: Codec::new(1.5),
            zstd: Codec::new(6.0),
            choices: AtomicU64::new(0),
        }
    }
}

impl Pace {
    /// Notes that a write of so many bytes in one batch took `time`.
    pub fn wrote(&self, bytes: u64, time: Duration) {
        self.device.lock().add(approx(bytes), approx(nanos(time)));
    }

    /// Notes that compressing so many bytes took `time`.
    pub(super) fn compressed(&self, how: Stored, bytes: usize, time: Duration) {
        match how {
            Stored::Raw => {}
            Stored::Lz4 => self.lz4.measured(bytes, time),
            Stored::Zstd => self.zstd.measured(bytes, time),
        }
    }

    /// The form in which a chunk is durable first: raw, or compressed and so shorter to write.
    /// `leaves` is the part of it that LZ4 leaves.
    pub(super) fn choose(&self, leaves: f64) -> Stored {
        let Some(device) = self.device.lock().slope() else {
            return Stored::Lz4;
        };
        let costs = [
            (device, Stored::Raw),
            (self.lz4.per_byte() + device * leaves, Stored::Lz4),
            (
                self.zstd.per_byte() + device * leaves * ZSTD_LEAVES,
                Stored::Zstd,
            ),
        ];
        let best = costs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let n = self.choices.fetch_add(1, Ordering::Relaxed);
        match best {
            Some((_, how)) if !n.is_multiple_of(LOOK_AGAIN) => how,
            _ if n.is_multiple_of(2 * LOOK_AGAIN) => Stored::Zstd,
            _ => Stored::Lz4,
        }
    }

    /// The speeds as text for people.
    pub(super) fn note(&self) -> String {
        let device = match self.device.lock().slope() {
            Some(slope) => format!("{slope:.2}"),
            None => "not known yet".into(),
        };
        format!(
            "nanoseconds a byte: device {device}, LZ4 {:.2}, Zstandard {:.2}",
            self.lz4.per_byte(),
            self.zstd.per_byte()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(device: f64) -> Pace {
        let pace = Pace::default();
        for i in 1..40u64 {
            let bytes = i % 7 * 50_000 + 8192;
            let nanos = 20_000.0 + bytes as f64 * device;
            pace.wrote(bytes, Duration::from_nanos(nanos as u64));
        }
        for _ in 0..100 {
            pace.compressed(Stored::Lz4, 100_000, Duration::from_micros(100));
            pace.compressed(Stored::Zstd, 100_000, Duration::from_micros(400));
        }
        pace
    }

    fn most(pace: &Pace, leaves: f64) -> Stored {
        let all: Vec<Stored> = (0..200).map(|_| pace.choose(leaves)).collect();
        let count = |how| all.iter().filter(|h| **h == how).count();
        [Stored::Raw, Stored::Lz4, Stored::Zstd]
            .into_iter()
            .max_by_key(|how| count(*how))
            .unwrap_or(Stored::Raw)
    }

    #[test]
    fn the_slower_the_device_the_more_is_compressed() {
        assert_eq!(most(&pace(0.3), 0.5), Stored::Raw);
        assert_eq!(most(&pace(10.0), 0.5), Stored::Lz4);
        assert_eq!(most(&pace(100.0), 0.5), Stored::Zstd);
        // Data that does not shrink is stored raw everywhere.
        assert_eq!(most(&pace(10.0), 0.99), Stored::Raw);
        let note = pace(10.0).note();
        assert!(note.contains("device 10.0"), "{note}");
    }

    #[test]
    fn nothing_is_known_at_first() {
        assert_eq!(Pace::default().choose(0.5), Stored::Lz4);
    }
}
