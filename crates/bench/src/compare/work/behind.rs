//! Latency of calls that need no device, beside a thread that writes and syncs without a pause.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::measured::{Measured, Outcome};
use super::stream::noise;
use crate::compare::Sizes;

/// Number of files in the listed directory.
const FILES: u32 = 100;
/// Size of an append, bytes.
const APPEND: usize = 4096;
/// Size of a write of the syncing thread, bytes.
const CALL: usize = 1 << 20;
/// Number of parts of the sequential workload's bytes; the thread writes one part before each sync.
const PIECES: u64 = 8;
/// The pause between two rounds of calls, so that they do not affect each other.
const PAUSE: Duration = Duration::from_millis(1);

/// The calls, in turns.
const CALLS: [&str; 4] = ["stat, cached", "append 4 KiB", "create and unlink", "list"];

/// The reported percentiles.
const POINTS: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];

/// Makes the calls for `profile_seconds`, beside a thread that repeatedly writes an eighth of
/// `stream_bytes` and syncs it.
pub(super) fn a_sync(dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let listed = dir.join("listed");
    fs::create_dir(&listed)?;
    for i in 0..FILES {
        File::create_new(listed.join(format!("file-{i}")))?;
    }
    let heavy = dir.join("heavy");
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let piece = sizes.stream_bytes / PIECES;
    let syncing = thread::spawn(move || sync_much(&heavy, piece, &until));
    let calls = calls(dir, &listed, sizes);
    stop.store(true, Ordering::Relaxed);
    let synced = syncing.join().map_err(|_| anyhow!("a thread panicked"))?;
    let (calls, synced) = (calls?, synced.context("the thread that syncs")?);
    ensure!(synced > 0, "no sync ended: the time is too short");
    let rows = CALLS.into_iter().zip(&calls).flat_map(|(what, times)| {
        Measured::latencies(&format!("{what} beside a sync"), times, &POINTS)
    });
    Ok(rows.collect())
}

/// Rewrites so many bytes and syncs them until `stop`. Returns the number of repetitions.
fn sync_much(path: &Path, bytes: u64, stop: &AtomicBool) -> Result<u32> {
    let data = noise(CALL);
    let mut syncs = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut file = File::create(path)?;
        for _ in 0..bytes.div_ceil(CALL as u64) {
            file.write_all(&data)?;
        }
        file.sync_all()?;
        syncs += 1;
    }
    Ok(syncs)
}

/// The latencies of each of [`CALLS`], microseconds.
fn calls(dir: &Path, listed: &Path, sizes: &Sizes) -> Result<[Vec<f64>; 4]> {
    let mut log = File::create_new(dir.join("log"))?;
    let data = noise(APPEND);
    let (stated, made) = (listed.join("file-0"), dir.join("made"));
    let mut times: [Vec<f64>; 4] = Default::default();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(sizes.profile_seconds.into()) {
        for (call, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            match call {
                0 => {
                    fs::metadata(&stated)?;
                }
                1 => log.write_all(&data)?,
                2 => {
                    File::create_new(&made)?;
                    fs::remove_file(&made)?;
                }
                _ => ensure!(fs::read_dir(listed)?.count() == FILES as usize),
            }
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        thread::sleep(PAUSE);
    }
    Ok(times)
}
