//! Figure 3-10: segments cleaned by copies and by SHARE.
//!
//! The log-structured layer on a page-level SSD that takes the time of a model: half full, then random writes of a block each
//! over 40 % of the device, with a flush each so many. Times are those of the clock on the wall, so nothing else should run.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use stetfs_block::BlockDevice;
use stetfs_flash::ftl::{FtlKind, Geometry};
use stetfs_flash::segments::{Cleaner, LogDevice, LogOptions};
use stetfs_flash::{Model, Ssd};

use super::{Panel, Parts, Scale, Series};
use crate::PAGE;
use crate::command::bar;

pub(super) const PAPER: &str = "\
F2FS, fio, 50 % full: cleaning with SHARE is 10 to 39 % faster; with a flush each 8 writes nothing is cleaned, as these go in \
place";

/// Writes between two flushes.
const INTERVALS: [u64; 5] = [8, 16, 32, 64, 128];

/// Bytes written at once while the device is filled.
const FILL: u64 = 1 << 20;

/// What one run came to.
struct Outcome {
    /// Blocks that the cleaner moved.
    moved: u64,
    /// Megabytes a second.
    rate: f64,
    waf: f64,
}

/// A device of `size` bytes.
fn run(size: u64, interval: u64, cleaner: Cleaner, seed: u64) -> Result<Outcome> {
    let area = size * 4 / 10 / PAGE;
    let blocks = 2 * area;
    let [_, nvme, _] = Model::ALL;
    let geometry = Geometry::new(size, 4 << 20, 15)?;
    let ssd = Arc::new(Ssd::new(FtlKind::Page.make(geometry), true).timed(nvme));
    let options = LogOptions {
        cleaner,
        ..LogOptions::new(size / 2)
    };
    let device = LogDevice::format(Arc::clone(&ssd), options)?;
    let ones = vec![1; FILL as usize];
    for at in (0..device.size()).step_by(FILL as usize) {
        let len = FILL.min(device.size() - at);
        device.write(at, &ones[..len as usize])?;
    }
    device.flush()?;
    let before = device.report().moved;
    let mut random = fastrand::Rng::with_seed(seed);
    let bar = bar(blocks, &format!("{cleaner:?}, flush each {interval}"));
    let begin = Instant::now();
    for n in 1..=blocks {
        device.write(random.u64(..area) * PAGE, &[n as u8; PAGE as usize])?;
        if n % interval == 0 {
            device.flush()?;
            bar.inc(interval);
        }
    }
    device.flush()?;
    let seconds = begin.elapsed().as_secs_f64();
    bar.finish_and_clear();
    Ok(Outcome {
        moved: device.report().moved - before,
        rate: (blocks * PAGE) as f64 / 1e6 / seconds,
        waf: ssd.report().waf,
    })
}

/// One run after the other: they are timed.
pub(super) fn compute(scale: Scale) -> Result<Parts> {
    let size: u64 = if scale.quick { 64 << 20 } else { 512 << 20 };
    let mut found = Vec::new();
    let mut claims = Vec::new();
    for interval in INTERVALS {
        let copied = run(size, interval, Cleaner::Copy, scale.seed)?;
        let shared = run(size, interval, Cleaner::Share, scale.seed)?;
        claims.push([
            format!("flush each {interval} writes: faster with SHARE"),
            if interval < 16 { "0 %" } else { "10–39 %" }.into(),
            format!("{:+.1} %", 100.0 * (shared.rate / copied.rate - 1.0)),
        ]);
        found.push((interval as f64, copied, shared));
    }
    let panel = |what: &str, value: fn(&Outcome) -> f64| Panel {
        title: format!("{what}, flush each so many writes"),
        axes: ["writes to a flush".into(), what.to_owned()],
        series: vec![
            Series {
                name: "copied".into(),
                points: found.iter().map(|(x, c, _)| (*x, value(c))).collect(),
            },
            Series {
                name: "shared".into(),
                points: found.iter().map(|(x, _, s)| (*x, value(s))).collect(),
            },
        ],
        joined: true,
        logarithmic: true,
    };
    let panels = vec![
        panel("blocks moved", |o| o.moved as f64),
        panel("MB/s", |o| o.rate),
        panel("WAF", |o| o.waf),
    ];
    Ok((claims, panels))
}
