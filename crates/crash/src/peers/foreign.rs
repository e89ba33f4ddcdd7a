//! Crashes of the kernel's ext4, recovered by StetFS, e2fsck and the kernel: StetFS must bring back
//! everything that one of the others does.
//!
//! This tests recovery of journals that StetFS did not write, with the kernel's compound
//! transactions and fast commits.

mod cuts;
mod difference;
mod reader;
mod row;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use stetfs::low::{JournalRecord, JournalRecordKind, MemDevice};

use self::cuts::cut_all;
use self::reader::Outcome;
pub use self::reader::{Reader, Volume};
pub use self::row::{ForeignRow, Readings};
use super::crashes::{Crashes, Limits, candidates, choose};
use super::recorded::{Task, record};
use crate::state::StateId;
use crate::workload::Progress;

/// Records `workload` on a mount by the kernel, and has all readers recover crash states of the
/// recording.
///
/// # Errors
/// The process is not root, a program is missing, or the workload failed.
pub fn foreign(volume: &Volume, workload: &str, limits: Limits) -> Result<ForeignRow> {
    let begin = Instant::now();
    let task = Task::of(workload, limits.seed)?;
    let base = volume.make()?;
    let system = volume.kernel();
    // StetFS mounts nothing here, so the path of its program is empty.
    let log = record(&system, &task, &base, Path::new(""))
        .with_context(|| format!("recording {workload} on {volume:?}"))?;
    let chosen = choose(&base, &log, candidates(&base, &log, limits.seed), limits);
    let row = Mutex::new(ForeignRow {
        volume: format!(
            "{} -b {} -o {}",
            volume.features, volume.block, volume.options
        ),
        workload: workload.into(),
        ..ForeignRow::default()
    });
    let crashes = Crashes {
        base: &base,
        log: &log,
        chosen,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    crashes.each(threads, begin, limits, &|_, state, image, told| {
        look(volume, &task, state, image, told, &row)
    })?;
    let mut row = row.into_inner();
    row.seconds = begin.elapsed().as_secs_f64();
    Ok(row)
}

/// Has all readers recover a state, and adds the results to the row.
fn look(
    volume: &Volume,
    task: &Task,
    state: &StateId,
    image: &MemDevice,
    told: Progress,
    row: &Mutex<ForeignRow>,
) -> Result<(), String> {
    let fast = fast_commits(image);
    let outcomes = Reader::ALL.map(|by| Outcome::of(by, image, volume, task, told));
    let [ours, others @ ..] = &outcomes;
    let cuts = match &ours.reading {
        Ok(reading) if fast => cut_all(image, volume, state, &reading.seen)?,
        _ => Vec::new(),
    };
    let mut row = row.lock();
    row.distinct += 1;
    row.fast += usize::from(fast);
    let mut examples = row.count_cuts(&cuts);
    examples.extend(row.count_readers(&outcomes));
    examples.extend(row.compare(ours, others));
    if let Some(dir) = volume.keep.as_ref().filter(|_| !examples.is_empty()) {
        let path = dir.join(format!("{state}.img"));
        let said = |e: std::io::Error| format!("{}: {e}", path.display());
        image.save(&path).map_err(said)?;
    }
    let after = told.acked;
    row.examples.extend(
        examples
            .into_iter()
            .map(|(who, what)| format!("crash {state}, after operation {after}: {who:?}: {what}")),
    );
    Ok(())
}

/// Whether the journal holds fast commits that recovery has to apply.
fn fast_commits(image: &MemDevice) -> bool {
    let found = stetfs::low::inspect(Arc::new(image.fork()), None).ok();
    let Some(log) = found.and_then(|found| found.log) else {
        return false;
    };
    let mut any = false;
    let walked = log.walk(&mut |record| {
        let kind = JournalRecord::from(record).kind;
        any |= matches!(kind, JournalRecordKind::FastCommit { .. });
        Ok(())
    });
    walked.is_ok() && any
}
