//! Figure 3-10: cleaning of segments by copies and by SHARE.
//!
//! The log-structured device runs on a page-level SSD with the times of a model. It is half full;
//! then random writes of a block each go to 40 % of the device, with a flush after each interval.
//! The time is simulated and the host takes none, so a seed always gives the same result.

use std::sync::Arc;

use anyhow::Result;
use stetfs_block::BlockDevice;
use stetfs_flash::ftl::{FtlKind, Geometry};
use stetfs_flash::segments::{Cleaner, LogDevice, LogOptions};
use stetfs_flash::{Model, Ssd};

use super::panel::{Panel, Parts, Series};
use super::parallel::parallel;
use super::scale::Scale;
use crate::command::bar;
use crate::page::PAGE;

pub(super) const SETUP: &str =
    "log on a page-level SSD of 512 MiB (128 MiB in a first look), times of an NVMe model";

pub(super) const PAPER: &str = "\
F2FS, fio, 50 % full: cleaning with SHARE is 10 to 39 % faster; with a flush each 8 writes nothing is cleaned, as these go in \
place";

/// Numbers of writes between two flushes.
const INTERVALS: [u64; 5] = [8, 16, 32, 64, 128];

/// Bytes of one write while the device is filled.
const FILL: u64 = 1 << 20;

/// The place of the 40 % that are written; the paper does not give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    /// A part of the half that is full.
    Within,
    /// Beside that half; the device is then as full as the log allows, about 90 %.
    Beside,
}

impl Area {
    const ALL: [Area; 2] = [Area::Within, Area::Beside];

    fn name(self) -> &'static str {
        match self {
            Area::Within => "50 % full",
            Area::Beside => "90 % full",
        }
    }
}

struct Job {
    area: Area,
    interval: u64,
    cleaner: Cleaner,
}

/// The result of one run.
struct Outcome {
    /// Blocks that the cleaner moved.
    moved: u64,
    /// Rate in megabytes a second.
    rate: f64,
    waf: f64,
}

/// Runs a job on a device of `size` bytes.
fn run(size: u64, job: &Job, seed: u64) -> Result<Outcome> {
    let [_, nvme, _] = Model::ALL;
    let geometry = Geometry::new(size, 4 << 20, 15)?;
    let ssd = Arc::new(Ssd::new(FtlKind::Page.make(geometry), true).simulated(nvme));
    let room = LogOptions::filling(size);
    let (capacity, first) = match job.area {
        Area::Within => (size / 2, 0),
        Area::Beside => (room.capacity, size / 2 / PAGE),
    };
    let options = LogOptions {
        cleaner: job.cleaner,
        capacity,
        ..room
    };
    let device = LogDevice::format(Arc::clone(&ssd), options)?;
    let ones = vec![1; FILL as usize];
    for at in (0..device.size()).step_by(FILL as usize) {
        let len = FILL.min(device.size() - at);
        device.write(at, &ones[..len as usize])?;
    }
    device.flush()?;
    let area = first..(first + size * 4 / 10 / PAGE).min(device.size() / PAGE);
    let blocks = 2 * (area.end - area.start);
    let (before, begin) = (device.report().moved, ssd.now());
    let mut random = fastrand::Rng::with_seed(seed);
    for n in 1..=blocks {
        device.write(random.u64(area.clone()) * PAGE, &[n as u8; PAGE as usize])?;
        if n % job.interval == 0 {
            device.flush()?;
        }
    }
    device.flush()?;
    Ok(Outcome {
        moved: device.report().moved - before,
        rate: (blocks * PAGE) as f64 * 1e3 / (ssd.now() - begin) as f64,
        waf: ssd.report().waf,
    })
}

pub(super) fn compute(scale: &Scale) -> Result<Parts> {
    let size: u64 = if scale.quick { 128 << 20 } else { 512 << 20 };
    let mut jobs = Vec::new();
    for area in Area::ALL {
        for interval in INTERVALS {
            jobs.extend([Cleaner::Copy, Cleaner::Share].map(|cleaner| Job {
                area,
                interval,
                cleaner,
            }));
        }
    }
    let bar = bar(jobs.len() as u64, "3-10");
    let found = parallel(&jobs, |job| {
        let outcome = run(size, job, scale.seed);
        bar.inc(1);
        outcome
    })?;
    bar.finish_and_clear();
    let pairs = jobs.iter().zip(&found).collect::<Vec<_>>();
    let (mut claims, mut panels) = (Vec::new(), Vec::new());
    for area in Area::ALL {
        let of = |cleaner: Cleaner| {
            let mine = pairs.iter().filter(move |(job, _)| job.area == area);
            mine.filter(move |(job, _)| job.cleaner == cleaner)
        };
        for ((job, copied), (_, shared)) in of(Cleaner::Copy).zip(of(Cleaner::Share)) {
            let interval = job.interval;
            let paper = if interval < 16 { "0 %" } else { "10–39 %" };
            claims.push([
                format!(
                    "{}, flush each {interval} writes: faster with SHARE",
                    area.name()
                ),
                paper.into(),
                format!("{:+.1} %", 100.0 * (shared.rate / copied.rate - 1.0)),
            ]);
        }
        let panel = |what: &str, value: fn(&Outcome) -> f64| Panel {
            title: format!("{}: {what}", area.name()),
            axes: ["writes to a flush".into(), what.to_owned()],
            series: [(Cleaner::Copy, "copied"), (Cleaner::Share, "shared")]
                .map(|(cleaner, name)| Series {
                    name: name.into(),
                    points: of(cleaner)
                        .map(|(job, o)| (job.interval as f64, value(o)))
                        .collect(),
                })
                .into(),
            joined: true,
            logarithmic: true,
        };
        panels.push(panel("blocks moved", |o| o.moved as f64));
        panels.push(panel("MB/s", |o| o.rate));
        panels.push(panel("WAF", |o| o.waf));
    }
    Ok((claims, panels))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wall-clock times differed from run to run by more than the figure shows, so the time is
    /// simulated.
    #[test]
    fn a_seed_is_a_result() -> Result<()> {
        let job = Job {
            area: Area::Beside,
            interval: 32,
            cleaner: Cleaner::Share,
        };
        let size = 128 << 20;
        let [one, same, other] = [1, 1, 2].map(|seed| run(size, &job, seed));
        let (one, same, other) = (one?, same?, other?);
        assert!(one.moved > 0);
        assert_eq!((one.moved, one.rate), (same.moved, same.rate));
        assert_ne!(one.rate, other.rate);
        Ok(())
    }
}
