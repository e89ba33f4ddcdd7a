//! Latency of a sync some time after the write (iJournaling, §6.2).

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::measured::{Measured, Outcome};
use crate::compare::{Sizes, Target};

/// Bytes written before each sync.
const PIECE: usize = 80_000;
/// The pause between writing and syncing.
const PAUSE: Duration = Duration::from_millis(100);

/// The latency of fsync.
pub(super) fn paused(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    target.settle()?;
    let latencies = latencies(&dir.join("synced"), sizes)?;
    let percentiles = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
    let title = "fsync of 80 KB after 0.1 s";
    let mean = latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
    let mut rows = Measured::latencies(title, &latencies, &percentiles);
    rows.push(Measured::latency(format!("{title}, mean"), mean));
    Ok(rows)
}

fn latencies(path: &Path, sizes: &Sizes) -> Result<Vec<f64>> {
    let mut file = File::create_new(path)?;
    let piece = vec![0x5A; PIECE];
    file.sync_all()?;
    let end = Instant::now() + Duration::from_secs(u64::from(sizes.profile_seconds.max(1)) * 4);
    let mut latencies = Vec::new();
    while Instant::now() < end {
        file.write_all(&piece)?;
        thread::sleep(PAUSE);
        let start = Instant::now();
        file.sync_all()?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(latencies)
}
