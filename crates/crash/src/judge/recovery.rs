//! Recoveries for the oracles: whole, cut, and recorded.

use std::sync::Arc;

use stetfs::low::{BlockDevice, Fs, FsOptions};
use stetfs_block::{FaultInjector, Log};
use stetfs_nvm::{Region, RegionLog, RegionRecorder, RegionReplay};

use super::finding::{Finding, Oracle, gone};
use crate::machine::{Crashed, Machine};
use crate::tree::Seen;

/// Options with which opening only replays the journal.
pub(super) fn replay_only(options: &FsOptions) -> FsOptions {
    FsOptions {
        read_only: true,
        leave_orphans: true,
        ..options.clone()
    }
}

/// Opens the volume of a machine.
pub(super) fn opened<D: BlockDevice + 'static, R: Region + 'static>(
    machine: &Machine<D, R>,
    options: &FsOptions,
) -> Result<Arc<Fs>, Finding> {
    let opened = machine.open(options);
    opened.map_err(|e| Oracle::Opens.says(format!("cannot be opened: {e}")))
}

/// Records what the recovery of a crashed volume does to device and region.
///
/// # Errors
/// The volume cannot be opened.
pub fn record_recovery(
    crashed: &Crashed,
    options: &FsOptions,
) -> Result<(Log, RegionLog), Finding> {
    let machine = crashed.recorded(|device| device);
    gone(opened(&machine, options)?)?;
    Ok(machine.take_logs())
}

/// The machine after a recovery whose power is cut after `cut` writes to the device, and whether
/// the recovery was complete by then.
pub(super) fn cut_recovery(
    crashed: &Crashed,
    options: &FsOptions,
    cut: u64,
) -> Result<(Crashed, bool), Finding> {
    let device = Arc::new(FaultInjector::new(crashed.device.fork()));
    device.power_off_after(cut);
    // Stores to the region arrive until the cut.
    let region = crashed.fork_region().map(|region| {
        let device = Arc::clone(&device);
        let recorder = RegionRecorder::beside(region, move || device.is_off().into());
        Arc::new(recorder)
    });
    let machine = Machine { device, region };
    let opened = machine.open(options);
    let finished = opened.is_ok() && !machine.device.is_off();
    if let Ok(fs) = opened {
        gone(fs)?;
    }
    let region = crashed.region.as_ref().zip(machine.region.as_ref());
    let region = region.map(|(base, recorder)| {
        let log = recorder.take_log();
        let mut replay = RegionReplay::new(base, &log);
        replay.advance_to(log.position_at(1));
        replay.everything()
    });
    let left = Machine::new(machine.device.inner().fork(), region);
    Ok((left, finished))
}

/// The machine after the volume was opened and then dropped as in a crash.
pub(super) fn recovered(crashed: &Crashed, options: &FsOptions) -> Result<Crashed, Finding> {
    let machine = crashed.fork();
    gone(opened(&machine, options)?)?;
    Ok(machine.fork())
}

/// The tree of the volume after its recovery.
pub(crate) fn tree(crashed: &Crashed, options: &FsOptions) -> Result<Seen, Finding> {
    let fs = opened(&crashed.fork(), options)?;
    let seen = Seen::capture(&fs).map_err(|e| Oracle::Opens.says(e));
    gone(fs)?;
    seen
}
