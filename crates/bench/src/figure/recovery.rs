//! The time of a recovery: the same work logged with each journal, a crash, and the next opening.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use stetfs::low::{
    BlockDevice, Composition, Ctx, DeviceOptions, FileDevice, FsOptions, MemDevice, Preset,
    ROOT_INO, SetAttr, Wait, preset,
};
use stetfs_flash::Timed;
use stetfs_testkit::{Image, Mkfs};

use super::args::{Device, FigureArgs};
use super::part::Part;
use crate::compare::{Below, Better, Measured, Outcome, Report};

/// Bytes of file data in the log at the crash; a fifth with --quick.
const LOGGED: u64 = 400 << 20;
/// Bytes of the files, which are written again and again: each block is written once to its home
/// location.
const FILES: u64 = 12 << 20;
/// Size of a write, bytes; one in eight is followed by an fsync.
const WRITE: usize = 64 << 10;
/// Size of the journal, which holds everything, MiB.
const JOURNAL: u32 = 1024;

const KINDS: [(&str, Preset, Option<&str>); 5] = [
    ("stetfs data", preset::DATA, None),
    ("ldj none", preset::LDJ, Some("none")),
    ("ldj lz4", preset::LDJ, Some("lz4")),
    ("ldj zstd", preset::LDJ, Some("zstd")),
    ("ldj auto", preset::LDJ, Some("auto")),
];
const E2FSCK: &str = "e2fsck, of stetfs data";

pub(super) fn measure(args: &FigureArgs) -> Result<Vec<Part>> {
    let image = Image::sparse(4 << 30)?;
    image.mkfs(&Mkfs::new().journal_mib(JOURNAL))?;
    let fresh = MemDevice::load(image.path())?;
    let bytes = if args.quick { LOGGED / 5 } else { LOGGED };
    let mut crashed = Vec::new();
    for (name, preset, compression) in KINDS {
        let (device, logged) = crash(&fresh, preset, compression, bytes)
            .with_context(|| format!("filling the log of {name}"))?;
        crashed.push((format!("{name}, {} MiB", logged >> 20), device));
    }
    args.devices()
        .into_iter()
        .map(|device| one(args, device, &crashed))
        .collect()
}

fn one(args: &FigureArgs, device: Device, crashed: &[(String, MemDevice)]) -> Result<Part> {
    let mut names: Vec<String> = crashed.iter().map(|(name, _)| name.clone()).collect();
    let model = device.model()?;
    let on_file = model.is_none();
    if on_file {
        names.push(E2FSCK.into());
    }
    let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
    for _ in 0..args.rounds.max(1) {
        for (i, (name, volume)) in crashed.iter().enumerate() {
            let seconds = match model {
                Some(model) => recover(Arc::new(Timed::new(volume.fork(), model))),
                None => on_a_file(volume, |image| {
                    let device = FileDevice::open(image.path(), DeviceOptions::default())?;
                    recover(Arc::new(device))
                }),
            }
            .with_context(|| format!("recovering {name}"))?;
            outcomes.entry(i).or_default().push(outcome(seconds));
        }
        if let Some((_, volume)) = crashed.first().filter(|_| on_file) {
            let seconds = on_a_file(volume, |image| {
                let start = Instant::now();
                image.e2fsck_replay()?;
                Ok(start.elapsed().as_secs_f64())
            })?;
            outcomes
                .entry(crashed.len())
                .or_default()
                .push(outcome(seconds));
        }
    }
    let mut report = Report::new(&names, args.rounds.max(1));
    report.add("recovery", &outcomes);
    Ok(Part {
        title: device.name().to_owned(),
        report,
        threads: None,
    })
}

fn outcome(seconds: f64) -> Outcome {
    vec![Measured {
        title: "recovery".into(),
        unit: "s".into(),
        better: Better::Lower,
        value: seconds,
        below: Below::default(),
    }]
}

/// Works on a copy of the volume in a file that is not in the host's cache.
fn on_a_file(volume: &MemDevice, work: impl FnOnce(&Image) -> Result<f64>) -> Result<f64> {
    let image = Image::sparse(0)?;
    volume.save(image.path())?;
    std::fs::File::open(image.path())?.sync_all()?;
    // Only root may; other users measure with a warm cache.
    crate::cold::try_drop_caches();
    work(&image)
}

fn recover(device: Arc<dyn BlockDevice>) -> Result<f64> {
    crate::interrupt::check()?;
    let start = Instant::now();
    let fs = stetfs::low::Fs::open(device, FsOptions::default())?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(fs.recovered().is_some(), "there was nothing to recover");
    Ok(seconds)
}

/// A volume with so many bytes of file data in its log, and the bytes of the log that they take.
fn crash(
    fresh: &MemDevice,
    preset: Preset,
    compression: Option<&str>,
    bytes: u64,
) -> Result<(MemDevice, u64)> {
    let device = Arc::new(fresh.fork());
    let said = compression.map(|how| ("compress", how));
    let options = FsOptions {
        journal: Composition::new(preset, said)?,
        ..FsOptions::default()
    };
    let fs = stetfs::low::Fs::open(device.clone(), options)?;
    let ctx = Ctx::default();
    let (attr, file) = fs.create(&ctx, ROOT_INO, b"file", 0o644, 0, libc::O_RDWR)?;
    let set = SetAttr {
        size: Some(FILES),
        ..SetAttr::default()
    };
    fs.setattr(&ctx, attr.ino, &set)?;
    let mut rng = fastrand::Rng::with_seed(5);
    let text = crate::compare::text(4 << 20);
    for i in 0..bytes / WRITE as u64 {
        let from = rng.usize(0..text.len() - WRITE);
        let at = rng.u64(0..FILES / WRITE as u64) * WRITE as u64;
        let data = text.get(from..from + WRITE).unwrap_or_default();
        fs.write(&ctx, &file, at, data, false)?;
        if i % 8 == 7 {
            let (send, done) = std::sync::mpsc::channel();
            fs.fsync(
                &file,
                false,
                Wait::Deferred,
                Box::new(move |r| drop(send.send(r))),
            );
            done.recv().context("no answer to fsync")??;
        }
    }
    let stats = fs.stats().journal;
    ensure!(
        stats.checkpoints == 0,
        "a checkpoint came before the crash: {stats:?}"
    );
    let crashed = device.fork();
    drop((file, fs));
    Ok((crashed, stats.bytes_logged))
}
