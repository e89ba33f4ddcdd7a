//! What others wait for while somebody syncs much: calls that need no device, beside a thread that
//! writes and syncs without a pause.

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

/// Files in the directory that is listed.
const FILES: u32 = 100;
/// Bytes of an append.
const APPEND: usize = 4096;
/// Bytes of a call of the thread that syncs.
const CALL: usize = 1 << 20;
/// It syncs what the sequential workload writes in so many pieces.
const PIECES: u64 = 8;
/// Between two rounds of calls, so that they do not wear each other out.
const PAUSE: Duration = Duration::from_millis(1);

/// The calls, in turns.
const CALLS: [&str; 4] = ["stat, cached", "append 4 KiB", "create and unlink", "list"];

/// What is told of them.
const POINTS: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];

/// Calls for `profile_seconds` beside a thread that writes an eighth of `stream_bytes` and syncs
/// it, again and again.
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

/// Writes so many bytes anew and syncs them until it is to stop. Gives how often.
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

/// Microseconds of each of [`CALLS`].
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
