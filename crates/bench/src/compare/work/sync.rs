//! How long a small durable write takes.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::{Below, Measured, Meter, Outcome};
use crate::compare::report::Better;
use crate::compare::stats::percentile;
use crate::compare::{Sizes, Target};

const PAGE: usize = 4096;

pub(super) fn append(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let mut file = File::create_new(dir.join("log"))?;
    let page = [0x5A; PAGE];
    let mut latencies = Vec::new();
    // The first sync makes the file itself durable; that is not what is measured.
    file.sync_all()?;
    let meter = Meter::start(target)?;
    for _ in 0..sizes.syncs {
        let start = Instant::now();
        file.write_all(&page)?;
        file.sync_all()?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let below = meter.below(f64::from(sizes.syncs))?;
    Ok(latency(
        ["append 4 KiB + fsync, p50", "append 4 KiB + fsync, p99"],
        &latencies,
        below,
    ))
}

pub(super) fn overwrite(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let path = dir.join("table");
    let mut file = File::create_new(&path)?;
    let chunk = vec![0xA5; 1 << 20];
    for _ in 0..sizes.overwrite_bytes.div_ceil(1 << 20).max(1) {
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    let pages = file.metadata()?.len() / PAGE as u64;
    drop(file);
    let file = OpenOptions::new().write(true).open(&path)?;
    let mut page = [0u8; PAGE];
    let mut latencies = Vec::new();
    let meter = Meter::start(target)?;
    for i in 0..u64::from(sizes.syncs) {
        page[..8].copy_from_slice(&i.to_le_bytes());
        // A fixed scatter over all pages: the multiplier is prime to any page count of interest.
        let at = i.wrapping_mul(2_654_435_761) % pages * PAGE as u64;
        let start = Instant::now();
        file.write_all_at(&page, at)?;
        file.sync_data()?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let below = meter.below(f64::from(sizes.syncs))?;
    Ok(latency(
        [
            "overwrite 4 KiB + fdatasync, p50",
            "overwrite 4 KiB + fdatasync, p99",
        ],
        &latencies,
        below,
    ))
}

fn latency(titles: [&'static str; 2], values: &[f64], below: Below) -> Outcome {
    let [p50, p99] = titles;
    let one = |title: &str, fraction, below| Measured {
        title: title.to_owned(),
        unit: "µs",
        better: Better::Lower,
        value: percentile(values, fraction),
        below,
    };
    vec![one(p50, 0.5, below), one(p99, 0.99, Below::default())]
}
