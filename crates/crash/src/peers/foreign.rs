//! Crashes of the kernel's ext4, recovered by StetFS, by e2fsck and by the kernel: what one of them
//! brings back, StetFS must.
//!
//! The journals are of others: their compound transactions, and their fast commits.

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

/// Records `workload` on a mount of the kernel, and has crash states of it recovered by all
/// readers.
///
/// # Errors
/// Not root, something is not installed, or the workload failed.
pub fn foreign(volume: &Volume, workload: &str, limits: Limits) -> Result<ForeignRow> {
    let begin = Instant::now();
    let task = Task::of(workload, limits.seed)?;
    let base = volume.make()?;
    let system = volume.kernel();
    // Nothing is mounted by StetFS here.
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

/// Has a state recovered by all, and puts what came of it into the row.
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

/// Whether the journal holds fast commits that count.
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
