//! Latency just after a mount, and when the server has run for a while and its cache is full.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::{Advice, fadvise};

use super::measured::{Measured, Outcome};
use super::stream::noise;
use crate::compare::{Sizes, Target};

/// Size of a synced append, bytes.
const APPEND: usize = 80 << 10;
/// Size of a read, bytes.
const READ: usize = 64 << 10;
/// Size of a write that fills the cache, bytes.
const CALL: usize = 1 << 20;
/// Most bytes that a phase appends, in multiples of the sequential workload's, so that they fit.
const MOST: u64 = 2;

/// The reported percentiles.
const POINTS: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)];

/// Latencies of one phase, microseconds.
#[derive(Default)]
struct Phase {
    appends: Vec<f64>,
    reads: Vec<f64>,
}

/// Alternates appends with an fsync and random reads that no kernel cache serves, for
/// `profile_seconds` after a mount; and again after enough was written to fill a cache of twice
/// `stream_bytes`.
pub(super) fn steady(target: &mut Target, name: &str, sizes: &Sizes) -> Result<Outcome> {
    let path = target.work_dir().join(name).join("source");
    fill(&path, sizes.stream_bytes)?;
    target.make_cold(&path)?;
    let dir = target.work_dir().join(name);
    let first = phase(&dir, "first", sizes)?;
    fill(&dir.join("filler"), MOST * sizes.stream_bytes)?;
    let later = phase(&dir, "later", sizes)?;
    let mut outcome = Outcome::new();
    for (phase, when) in [(first, "after a mount"), (later, "cache full")] {
        for (values, what) in [
            (phase.appends, "append 80 KiB + fsync"),
            (phase.reads, "read 64 KiB"),
        ] {
            let title = format!("{what}, {when}");
            outcome.extend(Measured::latencies(&title, &values, &POINTS));
        }
    }
    Ok(outcome)
}

fn fill(path: &Path, bytes: u64) -> Result<()> {
    let mut buffer = noise(CALL);
    let mut file = File::create_new(path)?;
    for i in 0..bytes.div_ceil(CALL as u64) {
        buffer[..8].copy_from_slice(&i.to_le_bytes());
        file.write_all(&buffer)?;
    }
    Ok(file.sync_all()?)
}

fn phase(dir: &Path, name: &str, sizes: &Sizes) -> Result<Phase> {
    let source = File::open(dir.join("source"))?;
    // Read-ahead is off.
    fadvise(&source, 0, None, Advice::Random)?;
    let pieces = fs::metadata(dir.join("source"))?.len() / READ as u64;
    ensure!(pieces > 0, "the file to read from is shorter than a read");
    let path = dir.join(name);
    let mut log = File::create_new(&path)?;
    let (data, mut buffer) = (noise(APPEND), vec![0u8; READ]);
    let mut phase = Phase::default();
    let (begin, time) = (
        Instant::now(),
        Duration::from_secs(sizes.profile_seconds.into()),
    );
    let mut i = 0u64;
    while begin.elapsed() < time && i * (APPEND as u64) < MOST * sizes.stream_bytes {
        let start = Instant::now();
        log.write_all(&data)?;
        log.sync_all()?;
        phase.appends.push(start.elapsed().as_secs_f64() * 1e6);

        // A fixed permutation of all pieces: the multiplier is coprime to any relevant number.
        let at = i.wrapping_mul(2_654_435_761) % pieces * READ as u64;
        let start = Instant::now();
        source.read_exact_at(&mut buffer, at)?;
        phase.reads.push(start.elapsed().as_secs_f64() * 1e6);
        // The next read of it is served from below the kernel's cache, too.
        let len = std::num::NonZeroU64::new(READ as u64);
        fadvise(&source, at, len, Advice::DontNeed)?;
        i += 1;
    }
    Ok(phase)
}
