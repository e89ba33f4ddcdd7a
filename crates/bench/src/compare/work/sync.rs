//! Latency of a small durable write.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use stetfs::low::{Ctx, ROOT_INO, Wait};

use super::measured::{Below, Measured, Meter, Outcome};
use crate::compare::Better;
use crate::compare::stats::percentile;
use crate::compare::{Sizes, Target};

const PAGE: usize = 4096;

pub(super) fn append(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let mut file = File::create_new(dir.join("log"))?;
    let page = [0x5A; PAGE];
    // The first sync makes the file itself durable, which is not measured.
    file.sync_all()?;
    let meter = Meter::start(target)?;
    let latencies = timed(sizes, || {
        file.write_all(&page)?;
        Ok(file.sync_all()?)
    })?;
    let below = meter.below(f64::from(sizes.syncs))?;
    Ok(latency(
        ["append 4 KiB + fsync, p50", "append 4 KiB + fsync, p99"],
        &latencies,
        below,
    ))
}

/// The latencies of the syncs, microseconds.
fn timed(sizes: &Sizes, mut sync: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    (0..sizes.syncs)
        .map(|_| {
            let start = Instant::now();
            sync()?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        })
        .collect()
}

/// The same through the library, for targets that have one. Other targets run it on the mount.
pub(super) fn append_library(target: &mut Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    const NAME: &[u8] = b"append-library";
    let page = [0x5A; PAGE];
    let mut latencies = Vec::new();
    let has_library = target.with_volume(&mut |volume| {
        let (fs, ctx) = (volume.fs(), Ctx::default());
        let (attr, file) = fs.create(&ctx, ROOT_INO, NAME, 0o666, 0, libc::O_WRONLY)?;
        let sync = || {
            let (tell, told) = mpsc::channel();
            fs.fsync(
                &file,
                false,
                Wait::Inline,
                Box::new(move |synced| drop(tell.send(synced))),
            );
            told.recv()
                .context("the sync was never answered")?
                .map_err(anyhow::Error::from)
        };
        sync()?;
        let mut at = 0;
        latencies = timed(sizes, || {
            let written = fs.write(&ctx, &file, at, &page, false)?;
            ensure!(written == PAGE, "{written} bytes were written");
            at += PAGE as u64;
            sync()
        })?;
        drop(file);
        fs.unlink(&ctx, ROOT_INO, NAME)?;
        fs.forget(attr.ino, 1);
        Ok(())
    })?;
    let titles = [
        "append 4 KiB + fsync, library, p50",
        "append 4 KiB + fsync, library, p99",
    ];
    if has_library {
        return Ok(latency(titles, &latencies, Below::default()));
    }
    let mut outcome = append(target, dir, sizes)?;
    for (measured, title) in outcome.iter_mut().zip(titles) {
        title.clone_into(&mut measured.title);
    }
    Ok(outcome)
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
        // A fixed permutation of all pages: the multiplier is coprime to any relevant page count.
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
        unit: "µs".into(),
        better: Better::Lower,
        value: percentile(values, fraction),
        below,
    };
    vec![one(p50, 0.5, below), one(p99, 0.99, Below::default())]
}
