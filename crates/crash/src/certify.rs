//! The experiments of a certificate for one volume: power cuts on a copy of it, and device errors.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use stetfs::low::{FsError, MemDevice};
use stetfs_block::{Fault, FaultInjector, Op as DeviceOp};
use stetfs_nvm::MemRegion;

use crate::explore::{Config, Progress, Source, explore};
use crate::machine::Machine;
use crate::record::Recording;
use crate::setup::{JournalSpec, Shape};
use crate::tree::Seen;
use crate::volume::{Base, DIRS, base, copy_of};
use crate::workload::named::NAMES;
use crate::workload::{Op, Session, bytes, cases};

/// The workloads that run while the power is cut.
const WORKLOADS: [&str; 4] = ["smoke", "appends", "overwrites", "threads"];
/// The most that a volume may hold, bytes: each crash state is looked at as a whole.
const LARGEST: u64 = 256 << 20;

/// Power cuts under one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Cuts {
    /// The workload's name.
    pub workload: String,
    /// The workload's description.
    pub about: &'static str,
    /// Crash states that were tried.
    pub states: u64,
    /// Distinct images among these states, each recovered and judged.
    pub judged: u64,
    /// States that broke a promise.
    pub broken: u64,
    /// Images that e2fsck checked as well.
    pub fscks: u64,
    /// Cuts inside recoveries.
    pub recovery_cuts: u64,
    /// The first broken promise, in words.
    pub first: Option<String>,
}

/// A base for crashes: a recovered copy of the volume in the image at `path`.
///
/// # Errors
/// The volume holds more than `LARGEST` bytes, or it cannot be copied, recovered or checked.
pub fn base_of(path: &Path) -> Result<Base> {
    let used = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path)?) * 512;
    ensure!(
        used <= LARGEST,
        "the volume holds {} MiB; at most {} MiB can be certified",
        used >> 20,
        LARGEST >> 20
    );
    let device = MemDevice::load(path).with_context(|| format!("reading {}", path.display()))?;
    copy_of(device)
}

/// Cuts the power at every write while programs work on `on`, or on a new volume with blocks of
/// `block` bytes if there is none. Takes `seconds` in all.
///
/// # Errors
/// A workload failed on a sound device. Broken promises are no errors.
pub fn power_cuts(
    on: Option<&Base>,
    journal: &JournalSpec,
    block: u32,
    seconds: f64,
    seed: u64,
) -> Result<Vec<Cuts>> {
    let shape = Shape {
        block,
        ..Shape::default()
    };
    let made = base(block)?;
    let on = on.unwrap_or(&made);
    let begin = Instant::now();
    let mut all = Vec::new();
    for (done, name) in WORKLOADS.into_iter().enumerate() {
        let case = cases(name, seed)?;
        let case = case
            .first()
            .ok_or_else(|| anyhow!("{name} has no operations"))?;
        let recording = Recording::make_on(on, journal, shape, case, seed)?;
        let left = (seconds - begin.elapsed().as_secs_f64()).max(0.0);
        let config = Config {
            seed,
            // Each workload gets at least a second, though the whole then takes longer.
            seconds: Some((left / (WORKLOADS.len() - done) as f64).max(1.0)),
            ..Config::default()
        };
        let source = Source::Record(&recording);
        let found = explore(&source, &config, &mut Progress::default(), &|_| Ok(()))?;
        let about = NAMES.iter().find(|(n, _)| *n == name);
        all.push(Cuts {
            workload: name.into(),
            about: about.map_or("", |(_, about)| about),
            states: found.states,
            judged: found.judged,
            broken: found.failures,
            fscks: found.fscks,
            recovery_cuts: found.recovery_cuts,
            first: found.findings.first().map(|failure| failure.text()),
        });
    }
    Ok(all)
}

/// The fate of a file whose device failed.
#[derive(Clone, Debug, Serialize)]
pub struct OnError {
    /// The fault.
    pub fault: &'static str,
    /// The answer of the sync that met the fault: `ok`, or an error.
    pub sync: String,
    /// The answer of the next sync.
    pub next_sync: String,
    /// Whether the volume takes changes after that.
    pub read_only: bool,
    /// The file's content when the device works again and the volume is opened anew.
    pub after: &'static str,
    /// Whether a sync was acknowledged whose data is not there.
    pub lied: bool,
}

/// Fails the writes, then the flushes, of a device in memory under a file that is overwritten and
/// synced.
///
/// # Errors
/// The volume could not be made or opened on the sound device.
pub fn device_errors(journal: &JournalSpec, block: u32) -> Result<Vec<OnError>> {
    let faults = [
        ("every write fails with EIO", DeviceOp::Write),
        ("every flush fails with EIO", DeviceOp::Flush),
    ];
    faults
        .into_iter()
        .map(|(fault, op)| fail(journal, block, fault, op))
        .collect()
}

const FILE: &str = "file";
const LEN: usize = 64 << 10;

fn fail(journal: &JournalSpec, block: u32, fault: &'static str, op: DeviceOp) -> Result<OnError> {
    let device = FaultInjector::new(base(block)?.image.fork());
    let machine: Machine<_, MemRegion> = Machine::new(device, None);
    let fs = machine.open(&journal.options)?;
    let mut session = Session::new(&fs, DIRS[0])?;
    let write = |key| Op::Write {
        path: FILE.into(),
        offset: 0,
        len: LEN,
        key,
    };
    let sync = Op::Fsync { path: FILE.into() };
    session.run(&Op::Create {
        path: FILE.into(),
        mode: 0o644,
    })?;
    session.run(&write(1))?;
    session.run(&sync)?;
    machine.device.add(Fault::fail(op, libc::EIO));
    // The sync result says nothing about data that is not written yet.
    let written = session.run(&write(2));
    let (first, second) = (session.run(&sync), session.run(&sync));
    let read_only = session
        .run(&Op::Mkdir {
            path: "later".into(),
            mode: 0o755,
        })
        .is_err();
    drop(session);
    // An error of the unmount repeats those above.
    let _ = fs.unmount();
    drop(fs);
    machine.device.clear();
    let fs = machine.open(&journal.options)?;
    let seen = Seen::capture(&fs).map_err(anyhow::Error::msg)?;
    let held = seen
        .find(&format!("{}/{FILE}", DIRS[0]))
        .and_then(|ino| seen.nodes.get(&ino))
        .map(|node| node.content.as_slice());
    let after = match held {
        Some(held) if held == bytes(1, LEN) => "what was synced before",
        Some(held) if held == bytes(2, LEN) => "what was written last",
        Some(_) => "some of each",
        None => "nothing: the file is gone",
    };
    fs.unmount()?;
    let acknowledged = written.is_ok() && first.is_ok();
    Ok(OnError {
        fault,
        sync: said(&first),
        next_sync: said(&second),
        read_only,
        after,
        lied: held.is_none() || (acknowledged && after != "what was written last"),
    })
}

fn said(result: &Result<(), FsError>) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(e) => std::io::Error::from_raw_os_error(e.errno()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use stetfs::low::preset;

    use super::*;

    #[test]
    fn a_sync_tells_of_the_error_and_nothing_synced_is_lost() {
        for preset in [preset::ORDERED, preset::DATA, preset::LDJ, preset::IJOURNAL] {
            for found in device_errors(&JournalSpec::of(preset), 4096).unwrap() {
                assert_ne!(found.sync, "ok", "{preset}: {found:?}");
                assert!(!found.lied, "{preset}: {found:?}");
            }
        }
    }

    /// Without flushes a cut loses synced data, and the certificate reports it.
    #[test]
    fn cuts_on_a_copy_find_what_a_mount_without_flushes_loses() {
        let mkfs = stetfs_testkit::Mkfs::blocks(4096).journal_mib(4);
        let image = stetfs_testkit::Image::make(24 << 20, &mkfs).unwrap();
        let copy = base_of(image.path()).unwrap();
        let sound = JournalSpec::of(preset::ORDERED);
        let found = power_cuts(Some(&copy), &sound, 4096, 4.0, 1).unwrap();
        assert_eq!(found.len(), WORKLOADS.len());
        assert!(found.iter().all(|cuts| cuts.states > 0), "{found:?}");
        assert!(found.iter().all(|cuts| cuts.broken == 0), "{found:?}");
        let loose: JournalSpec = "ordered,nobarrier".parse().unwrap();
        let found = power_cuts(Some(&copy), &loose, 4096, 4.0, 1).unwrap();
        assert!(found.iter().any(|cuts| cuts.broken > 0), "{found:?}");
    }
}
