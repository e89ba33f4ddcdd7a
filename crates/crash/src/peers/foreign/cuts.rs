//! Power cuts inside recoveries by StetFS and by the kernel.

use std::path::Path;
use std::sync::Arc;

use stetfs::low::{MemDevice, preset};
use stetfs_block::{Log, Recorder, Replay};

use super::difference::difference;
use super::reader::{Reader, Volume};
use crate::judge;
use crate::peers::crashes::candidates;
use crate::peers::recorded::Mounted;
use crate::peers::served::Served;
use crate::peers::system::System;
use crate::state::StateId;
use crate::tree::Seen;
use crate::volume::fsck;

/// Number of cuts tried of one recovery.
const CUTS: usize = 3;

/// The log of a recovery by StetFS.
fn our_recovery(image: &MemDevice) -> Result<Log, String> {
    let device = Arc::new(Recorder::new(image.fork()));
    let options = crate::volume::options(preset::ORDERED);
    let fs = crate::volume::open(&device, &options).map_err(|e| e.to_string())?;
    fs.unmount().map_err(|e| e.to_string())?;
    judge::gone(fs).map_err(|e| e.to_string())?;
    Ok(device.take_log())
}

/// The log of a mount by the kernel, even if the mount fails.
fn kernel_recovery(image: &MemDevice, volume: &Volume) -> Result<Log, String> {
    let system = volume.kernel();
    let recorded = Served::record(image, |file, _| {
        match Mounted::new(&system, file, Path::new("")) {
            Ok(mount) => mount.umount(),
            Err(_) => Ok(()),
        }
    });
    recorded.map_err(|e| format!("{e:#}"))
}

/// The results of cutting one reader's recovery.
pub(super) struct Cuts {
    pub(super) by: Reader,
    /// Number of cuts.
    pub(super) tried: usize,
    /// The cuts after which the result differs from that of the whole recovery.
    pub(super) broken: Vec<String>,
}

/// Cuts the recoveries by StetFS and by the kernel; `whole` is the tree after StetFS's uncut
/// recovery.
///
/// # Errors
/// A recovery could not be recorded.
pub(super) fn cut_all(
    image: &MemDevice,
    volume: &Volume,
    state: &StateId,
    whole: &Seen,
) -> Result<Vec<Cuts>, String> {
    let rng = || fastrand::Rng::with_seed(state.event as u64);
    let ours = cut(Reader::Stetfs, image, &our_recovery(image)?, whole, rng());
    let log = kernel_recovery(image, volume)?;
    Ok(vec![ours, cut(Reader::Kernel, image, &log, whole, rng())])
}

/// Cuts a recovery, and has StetFS recover the image that the cut leaves.
fn cut(by: Reader, image: &MemDevice, log: &Log, whole: &Seen, mut rng: fastrand::Rng) -> Cuts {
    let mut states = candidates(image, log, rng.u64(..));
    rng.shuffle(&mut states);
    states.truncate(CUTS);
    states.sort_by_key(|s| s.event);
    let mut replay = Replay::new(image, log);
    let mut broken = Vec::new();
    for state in &states {
        let left = state.make(&mut replay);
        let what = match System::Stetfs(preset::ORDERED).recover(&left) {
            Err(why) => Some(why),
            Ok((seen, after)) => difference(&seen, whole).or(fsck(&after).err()),
        };
        broken.extend(what.map(|what| format!("at {state}: {what}")));
    }
    Cuts {
        by,
        tried: states.len(),
        broken,
    }
}
