//! StetFS beside other file systems: each works on a mount over a recorded device and recovers its
//! own crash states, StetFS by its library, the others by the kernel's mount.
//!
//! Needs root, FUSE and loop devices, and the file systems' `mkfs`.

pub mod classify;
mod crashes;
pub mod cut;
pub mod cut_command;
pub mod foreign;
mod mapped;
pub mod posix;
pub mod programs;
mod recorded;
pub mod served;
mod system;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde::Serialize;
use stetfs::low::MemDevice;

use self::classify::classify;
pub use self::crashes::Limits;
use self::crashes::{Crashes, candidates, choose};
pub(crate) use self::recorded::Binary;
use self::recorded::{Task, record};
pub use self::system::System;
use crate::state::StateId;
use crate::volume::{DIRS, fsck};
use crate::workload::Progress;

/// The counts for one file system.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The file system.
    pub system: String,
    /// The workload.
    pub workload: String,
    /// Events of the recording.
    pub events: usize,
    /// States tried.
    pub states: usize,
    /// Different images among them, each recovered.
    pub distinct: usize,
    /// Images that could not be mounted.
    pub unmountable: usize,
    /// Images in which synced data, or data that a program was told is durable, is gone.
    pub lost: usize,
    /// Images with names that are not those of any single moment.
    pub names: usize,
    /// Images with content that a file never had.
    pub versions: usize,
    /// Images that e2fsck checked, and those with errors.
    pub fscks: (usize, usize),
    /// Time in seconds.
    pub seconds: f64,
    /// The first example of each kind.
    pub examples: Vec<String>,
}

/// Records `workload` on a file system and judges its crash states.
///
/// # Errors
/// The process is not root, a program is missing, or the workload failed.
pub fn compare_one(system: &System, workload: &str, limits: Limits, binary: &Path) -> Result<Row> {
    let begin = Instant::now();
    let task = Task::of(workload, limits.seed)?;
    let base = system.make()?;
    let log = record(system, &task, &base, binary)
        .with_context(|| format!("recording {workload} on {system}"))?;
    let mut row = Row {
        system: system.to_string(),
        workload: workload.into(),
        events: log.len(),
        ..Row::default()
    };
    let candidates = candidates(&base, &log, limits.seed);
    row.states = candidates.len();
    let chosen = choose(&base, &log, candidates, limits);
    let row = Mutex::new(row);
    let crashes = Crashes {
        base: &base,
        log: &log,
        chosen,
    };
    crashes.each(system.threads(), begin, limits, &|i, state, image, told| {
        let e2fsck = system.is_ext4() && i.is_multiple_of(10);
        look(system, &task, state, image, told, e2fsck, &row)
    })?;
    let mut row = row.into_inner();
    row.seconds = begin.elapsed().as_secs_f64();
    Ok(row)
}

/// Recovers a state and adds its damage to the row.
fn look(
    system: &System,
    task: &Task,
    state: &StateId,
    image: &MemDevice,
    told: Progress,
    e2fsck: bool,
    row: &Mutex<Row>,
) -> Result<(), String> {
    let recovered = system.recover(image);
    let (seen, after) = match recovered {
        Ok(ok) => ok,
        Err(why) => {
            let mut row = row.lock();
            row.distinct += 1;
            row.unmountable += 1;
            if row.unmountable == 1 {
                row.examples.push(format!("crash {state}: {why}"));
            }
            return Ok(());
        }
    };
    let unsound = e2fsck.then(|| fsck(&after).err());
    let mut broken = classify::Broken::default();
    match task {
        Task::Script(script) => broken = classify(&seen, DIRS[0], script, told),
        Task::Program(p) => {
            broken.lost = (p.check)(&seen, DIRS[0], (told.begun, told.acked)).err();
        }
    }
    let mut row = row.lock();
    let Row {
        distinct,
        lost,
        names,
        versions,
        fscks,
        examples,
        ..
    } = &mut *row;
    *distinct += 1;
    fscks.0 += usize::from(unsound.is_some());
    let all = [
        (&mut fscks.1, unsound.flatten()),
        (lost, broken.lost),
        (names, broken.names),
        (versions, broken.versions),
    ];
    for (count, why) in all {
        if let Some(why) = why {
            *count += 1;
            if *count == 1 {
                examples.push(format!(
                    "crash {state}, after operation {}: {why}",
                    told.acked
                ));
            }
        }
    }
    Ok(())
}
