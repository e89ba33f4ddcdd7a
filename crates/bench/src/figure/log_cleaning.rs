//! StetFS on the log-structured layer: cleaning by SHARE compared with cleaning by copies, as in
//! figure 3-10, with a file system above.
//!
//! The layer is on a new simulated SSD, in simulated time. A file takes a part of the volume,
//! random blocks of 4 KiB of it are written, and the file is synced after a fixed number of writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use stetfs::low::{
    BlockDevice, Composition, Fs, FsOptions, MemDevice, OpenRef, ROOT_INO, SetAttr, TimeSet,
    Timestamp, preset,
};
use stetfs_flash::ftl::{FtlKind, Geometry};
use stetfs_flash::segments::{Cleaner, LogDevice, LogOptions};
use stetfs_flash::{Model, Ssd};
use stetfs_testkit::{Image, Mkfs};

use super::args::FigureArgs;
use super::full_log::BLOCK;
use super::modes::{root, sync_all};
use super::part::Part;
use crate::compare::{Below, Better, Mark, Measured, Outcome, Report};

pub(super) const PAPER: &str = "\
figure 3-10 (F2FS, fio): cleaning with SHARE is 10 to 39 % faster, and nothing is cleaned with a flush each 8 writes";

/// The cleaning methods of the layer; ratios are relative to the first.
const CLEANERS: [(Cleaner, &str); 2] = [(Cleaner::Copy, "copied"), (Cleaner::Share, "shared")];
/// Parts of the volume that the file takes, percent.
const FULL: [u64; 2] = [50, 90];
/// Writes between two fsyncs.
const INTERVALS: [u64; 5] = [8, 16, 32, 64, 128];
const QUICK_INTERVALS: [u64; 2] = [8, 64];
/// Size of the device, bytes; a quarter with --quick.
const DEVICE: u64 = 512 << 20;
const JOURNAL_MIB: u32 = 8;
/// Bytes written at once while the file is laid out.
const FILL: usize = 1 << 20;
/// The paper's smallest gain in cases with cleaning.
const LEAST: f64 = 1.10;

pub(super) fn measure(args: &FigureArgs) -> Result<Vec<Part>> {
    let (size, intervals) = match args.quick {
        true => (DEVICE / 4, &QUICK_INTERVALS[..]),
        false => (DEVICE, &INTERVALS[..]),
    };
    let (models, rounds) = (args.flash(), args.rounds.max(1));
    let runs = models.len() * FULL.len() * intervals.len() * CLEANERS.len();
    let bar = ProgressBar::new(runs as u64 * u64::from(rounds));
    let mut parts = Vec::new();
    for model in models {
        for full in FULL {
            let quick = if args.quick { ", quick: no claim" } else { "" };
            let mut part = Part {
                title: format!("{}, {full} % full{quick}", model.name),
                report: Report::new(&CLEANERS.map(|(_, name)| name.to_owned()), rounds),
                threads: None,
            };
            for &interval in intervals {
                let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
                for seed in 0..u64::from(rounds) {
                    for (i, (cleaner, _)) in CLEANERS.into_iter().enumerate() {
                        crate::interrupt::check()?;
                        let point = Point {
                            size,
                            model,
                            full,
                            interval,
                            cleaner,
                        };
                        outcomes.entry(i).or_default().push(point.run(seed)?);
                        bar.inc(1);
                    }
                }
                let report = &mut part.report;
                report.paper.extend((interval >= 16).then_some(Mark {
                    metric: report.metrics.len(),
                    target: 1,
                    advantage: LEAST,
                }));
                report.add("random writes", &outcomes);
                args.save(&part)?;
            }
            parts.push(part);
        }
    }
    bar.finish_and_clear();
    Ok(parts)
}

/// A run.
struct Point {
    /// Size of the device, bytes.
    size: u64,
    model: Model,
    /// Part of the volume that the file takes, percent.
    full: u64,
    interval: u64,
    cleaner: Cleaner,
}

impl Point {
    fn run(&self, seed: u64) -> Result<Outcome> {
        let ftl = FtlKind::Page.make(Geometry::new(self.size, 4 << 20, 15)?);
        let ssd = Arc::new(Ssd::new(ftl, true).simulated(self.model));
        let options = LogOptions {
            cleaner: self.cleaner,
            ..LogOptions::filling(self.size)
        };
        let log = Arc::new(LogDevice::format(Arc::clone(&ssd), options)?);
        make_volume(&*log)?;
        let options = FsOptions {
            journal: Composition::new(preset::ORDERED, [])?,
            cache_bytes: 2 * self.size,
            // Commits by age follow the real clock, which is unrelated to simulated time: they are
            // off.
            commit_secs: 100_000,
            dirty_expire: Duration::from_secs(100_000),
            ..FsOptions::default()
        };
        let fs = Fs::open(log.clone(), options)?;
        let (file, blocks) = self.lay_out(&fs)?;
        let (before, flash, begin) = (log.report(), ssd.report().counters, ssd.now());
        let writes = self.write(&fs, &file, blocks, seed)?;
        let took = ssd.now() - begin;
        let (after, flash_then) = (log.report(), ssd.report().counters);
        drop(file);
        fs.unmount()?;
        ensure!(took > 0, "the work takes no time");
        let title = format!("fsync each {}", self.interval);
        let number = |what: &str, unit: &str, better, value| Measured {
            title: format!("{title}: {what}"),
            unit: unit.to_owned(),
            better,
            value,
            below: Below::default(),
        };
        let megabytes = (writes * BLOCK) as f64 / 1e6;
        let programs = flash_then.programs - flash.programs;
        let lower = |what, value: u64| number(what, "1", Better::Lower, value as f64);
        Ok(vec![
            number(
                "rate",
                "MB/s",
                Better::Higher,
                megabytes / (took as f64 / 1e9),
            ),
            lower("blocks in place", after.in_place - before.in_place),
            lower("blocks moved", after.moved - before.moved),
            lower("of them shared", after.shared - before.shared),
            lower("pages programmed", programs),
            lower("erases", flash_then.erases - flash.erases),
        ])
    }

    /// Makes the file; returns it and its number of blocks.
    fn lay_out(&self, fs: &Arc<Fs>) -> Result<(OpenRef, u64)> {
        let room = fs.statfs();
        let blocks = room.bavail * self.full / 100;
        let (_, file) = fs.create(&root(), ROOT_INO, b"file", 0o644, 0, libc::O_RDWR)?;
        let text = crate::compare::text(FILL);
        for at in (0..blocks * BLOCK).step_by(FILL) {
            let len = (blocks * BLOCK - at).min(FILL as u64) as usize;
            fs.write(
                &root(),
                &file,
                at,
                text.get(..len).unwrap_or_default(),
                false,
            )?;
        }
        sync_all(fs, [&file])?;
        Ok((file, blocks))
    }

    /// Changes a time of the file, so that each sync has a transaction to commit. A write changes a
    /// time only when the real clock has moved on, which would depend on the load of the machine.
    fn touch(&self, fs: &Fs, file: &OpenRef, n: u64) -> Result<()> {
        let times = SetAttr {
            mtime: Some(TimeSet::At(Timestamp {
                sec: n as i64,
                nsec: 0,
            })),
            ..SetAttr::default()
        };
        fs.setattr(&root(), file.ino(), &times)?;
        Ok(())
    }

    /// Writes twice as many blocks as 40 % of the device has, to that area of the file; returns the
    /// number of writes.
    fn write(&self, fs: &Arc<Fs>, file: &OpenRef, blocks: u64, seed: u64) -> Result<u64> {
        let area = (self.size * 4 / 10 / BLOCK).min(blocks);
        let mut random = fastrand::Rng::with_seed(seed);
        for n in 1..=2 * area {
            let data = [n as u8; BLOCK as usize];
            fs.write(&root(), file, random.u64(..area) * BLOCK, &data, false)?;
            if n % self.interval == 0 {
                self.touch(fs, file, n)?;
                sync_all(fs, [file])?;
            }
        }
        sync_all(fs, [file])?;
        Ok(2 * area)
    }
}

/// Makes an ext4 on the whole device.
fn make_volume(device: &impl BlockDevice) -> Result<()> {
    let image = Image::sparse(device.size())?;
    image.mkfs(&Mkfs::blocks(BLOCK as u32).journal_mib(JOURNAL_MIB))?;
    let volume = MemDevice::load(image.path())?;
    let mut page = vec![0; BLOCK as usize];
    for range in MemDevice::new(volume.size()).differences(&volume) {
        for at in range.step_by(page.len()) {
            volume.read(at, &mut page)?;
            device.write(at, &page)?;
        }
    }
    device.flush().context("the volume")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// On a nearly full volume segments are cleaned, and sharing is faster than copying; syncs of
    /// few blocks are written in place.
    #[test]
    fn sharing_is_told_from_copying() {
        let run = |interval, cleaner| {
            let point = Point {
                size: 96 << 20,
                model: "nvme-ssd".parse().unwrap(),
                full: 90,
                interval,
                cleaner,
            };
            let outcome = point.run(1).unwrap();
            outcome.iter().map(|m| m.value).collect::<Vec<f64>>()
        };
        let (copied, shared) = (run(64, Cleaner::Copy), run(64, Cleaner::Share));
        let [_, _, moved, of_them, ..] = copied[..] else {
            panic!("{copied:?}");
        };
        assert!(moved > 0.0 && of_them == 0.0, "{copied:?}");
        assert!(
            shared[3] > 0.0 && shared[0] > copied[0],
            "{copied:?}, {shared:?}"
        );
        assert!(run(8, Cleaner::Copy)[1] > copied[1]);
    }
}
