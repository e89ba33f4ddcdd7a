//! What a sync waits for: when some time passed since the write, beside other syncs (iJournaling, §6.2 and §6.3).

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Below, Measured, Meter, Outcome};
use crate::compare::report::Better;
use crate::compare::stats::percentile;
use crate::compare::{Sizes, Target};

/// Written before each sync, bytes.
const PIECE: usize = 80_000;
/// Between writing and syncing.
const PAUSE: Duration = Duration::from_millis(100);
/// A write of those that sync side by side, bytes.
const PAGE: usize = 4096;
/// Threads that sync side by side.
const THREADS: [usize; 3] = [1, 2, 4];

/// The latency of fsync.
pub(super) fn paused(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    target.settle()?;
    let latencies = latencies(&dir.join("synced"), sizes)?;
    let percentiles = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
    let mean = latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
    Ok(percentiles
        .map(|(name, fraction)| (name, percentile(&latencies, fraction)))
        .into_iter()
        .chain([("mean", mean)])
        .map(|(name, value)| Measured {
            title: format!("fsync of 80 KB after 0.1 s, {name}"),
            unit: "µs",
            better: Better::Lower,
            value,
            below: Below::default(),
        })
        .collect())
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

/// Threads that append 4 KiB and sync, each its own file.
pub(super) fn threads(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    for threads in THREADS {
        let meter = Meter::start(target)?;
        let (stop, synced) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|t| {
                    let path = dir.join(format!("{threads}-{t}"));
                    let (stop, synced) = (&stop, &synced);
                    scope.spawn(move || append(&path, stop, synced))
                })
                .collect();
            thread::sleep(Duration::from_secs(u64::from(sizes.profile_seconds.max(1))));
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a thread panicked"))?
            })
        })?;
        let synced = synced.load(Ordering::Relaxed) as f64;
        let rate = synced / meter.seconds();
        outcome.push(Measured {
            title: format!("append 4 KiB + fsync, {threads} threads"),
            unit: "syncs/s",
            better: Better::Higher,
            value: rate,
            below: meter.below(synced)?,
        });
    }
    Ok(outcome)
}

fn append(path: &Path, stop: &AtomicBool, synced: &AtomicU64) -> Result<()> {
    let mut file = File::create_new(path)?;
    let page = [0x5A; PAGE];
    while !stop.load(Ordering::Relaxed) {
        file.write_all(&page)?;
        file.sync_all()?;
        synced.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
