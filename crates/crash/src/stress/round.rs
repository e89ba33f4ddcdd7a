//! One stress round: its settings, and its threads at work.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use stetfs::low::{Ctx, Fs, FsError, FsOptions, OpenRef, Wait};

use super::blocks::{self, PER_FILE, Slot};
use crate::setup::JournalSpec;
use crate::volume::DIRS;
use crate::workload::script::Script;
use crate::workload::session::{Session, awaited};

/// Operations in the script of a changing thread; more than it can do in a round.
const CHANGES: usize = 3000;
/// Number of failures after which a thread takes the volume to be stopped.
const FAILURES: u32 = 8;

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The process that works on an image file is killed.
    Kill,
    /// Flushes of the device fail, and drop the writes since the last good one.
    Flush,
    /// Writes to the device fail, and then the power is cut.
    Write,
    /// The power is cut, at several moments of one recording.
    Cut,
}

/// How an overwriting thread syncs its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SyncBy {
    /// fsync(2).
    Fsync,
    /// fdatasync(2).
    Fdatasync,
    /// write(2) to a file opened with O_SYNC.
    Osync,
    /// syncfs(2).
    Syncfs,
    /// No sync; the next sync of the file covers the write.
    None,
}

/// The settings of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// How it ends.
    pub end: End,
    /// The journal, as `PRESET[,option…]`.
    pub journal: String,
    /// Bytes in a block.
    pub block: u32,
    /// Size of the journal in MiB.
    pub journal_mib: u64,
    /// Bytes of the region for sync records; `None` without one.
    #[serde(default)]
    pub region: Option<u64>,
    /// Number of overwriting threads.
    pub writers: usize,
    /// Number of threads that change names, sizes and content.
    pub changers: usize,
    /// Number of preallocated files, of [`PER_FILE`] blocks each.
    pub files: usize,
    /// Whether [`PER_FILE`] threads overwrite each file, a block each; otherwise each thread has
    /// files of its own.
    pub shared: bool,
    /// The ways to sync; a way that is listed several times is more frequent.
    pub syncs: Vec<SyncBy>,
    /// Longest time until the end in ms.
    pub millis: u64,
    /// Number of requests in a row that fail, for [`End::Flush`] and [`End::Write`].
    pub failing: u64,
    /// Seed of all draws.
    pub seed: u64,
}

impl fmt::Display for Round {
    /// Formats the round as options of `stetfs crash stress`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |value: &dyn fmt::Debug| format!("{value:?}").to_lowercase();
        let syncs: Vec<String> = self.syncs.iter().map(|s| named(s)).collect();
        write!(
            f,
            "--end {} --journal {} --block {} --journal-mib {} --region {} --writers {} --changers {} --files {} \
             --shared {} --sync {} --millis {} --failing {} --seed {}",
            named(&self.end),
            self.journal,
            self.block,
            self.journal_mib,
            self.region.unwrap_or(0),
            self.writers,
            self.changers,
            self.files,
            self.shared,
            syncs.join(","),
            self.millis,
            self.failing,
            self.seed
        )
    }
}

/// A sink for notes of the threads: slot, whether it is begun (or acknowledged), and the version or
/// operation. The slots are those of the scripts, then those of the blocks.
pub(super) trait Notes: Sync {
    /// Takes a note.
    fn note(&self, slot: usize, begun: bool, n: u32);
}

impl Round {
    /// The options to open the volume with.
    ///
    /// # Errors
    /// The settings of the round or the options of the journal are wrong.
    pub(super) fn options(&self) -> Result<FsOptions> {
        ensure!(
            self.changers <= DIRS.len(),
            "at most {} threads can change names",
            DIRS.len()
        );
        ensure!(
            self.writers > 0 && self.files >= self.writers && !self.syncs.is_empty(),
            "at least one thread overwrites, with a file and a way to sync it"
        );
        let defaults = |preset: stetfs::low::Preset| FsOptions {
            journal: preset.into(),
            ..FsOptions::default()
        };
        Ok(JournalSpec::read(&self.journal, &defaults)
            .map_err(|e| anyhow!(e))?
            .options)
    }

    /// The blocks of an overwriting thread: its first file, the distance to its next file, and the
    /// range of blocks in each. No block belongs to two threads.
    fn part(&self, thread: usize) -> (usize, usize, Range<usize>) {
        if !self.shared {
            return (thread, self.writers, 0..PER_FILE);
        }
        let block = thread % PER_FILE;
        let step = self.writers.div_ceil(PER_FILE);
        (thread / PER_FILE, step, block..block + 1)
    }

    /// The scripts of the changing threads.
    pub(super) fn scripts(&self, options: &FsOptions) -> Vec<Script> {
        (0..self.changers as u64)
            .map(|i| {
                let seed = self.seed.wrapping_mul(DIRS.len() as u64).wrapping_add(i);
                let (block, data) = (self.block.into(), options.journal.data());
                Script::changing(seed, CHANGES, block, data)
            })
            .collect()
    }

    /// Runs all threads until `stop` is set, or until the volume fails.
    ///
    /// # Errors
    /// The first error of any thread.
    pub(super) fn work<N: Notes>(
        &self,
        fs: &Arc<Fs>,
        scripts: &[Script],
        notes: &N,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        thread::scope(|scope| {
            let overwriting = (0..self.writers).map(|i| {
                let writer = Writer {
                    round: self,
                    fs,
                    notes,
                    stop,
                    slots: scripts.len(),
                };
                scope.spawn(move || writer.run(i).map_err(|e| format!("overwriting: {e}")))
            });
            let changing = scripts
                .iter()
                .enumerate()
                .map(|(i, script)| scope.spawn(move || change(fs, i, script, notes, stop)));
            let threads: Vec<_> = overwriting.collect::<Vec<_>>();
            let threads = threads.into_iter().chain(changing.collect::<Vec<_>>());
            let ended = threads.map(|t| t.join().unwrap_or_else(|_| Err("a panic".into())));
            ended.fold(Ok(()), Result::and)
        })
    }
}

fn change<N: Notes>(
    fs: &Arc<Fs>,
    thread: usize,
    script: &Script,
    notes: &N,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut session = Session::new(fs, DIRS[thread]).map_err(|e| e.to_string())?;
    for (i, op) in script.ops.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let n = i as u32 + 1;
        notes.note(thread, true, n);
        session.run(op).map_err(|e| format!("{op:?}: {e}"))?;
        notes.note(thread, false, n);
    }
    Ok(())
}

struct Writer<'a, N> {
    round: &'a Round,
    fs: &'a Arc<Fs>,
    notes: &'a N,
    stop: &'a AtomicBool,
    /// Number of slots before those of the blocks.
    slots: usize,
}

/// The unsynced writes of each file: slot of the block, version.
type Unsynced = BTreeMap<usize, Vec<(Slot, u32)>>;

impl<N: Notes> Writer<'_, N> {
    fn run(&self, thread: usize) -> Result<(), FsError> {
        let round = self.round;
        let mut rng = fastrand::Rng::with_seed(round.seed ^ (thread as u64 + 1) << 40);
        let (first, step, blocks) = round.part(thread);
        let files: Vec<(usize, OpenRef)> = (first..round.files)
            .step_by(step)
            .map(|file| Ok((file, blocks::open(self.fs, file, libc::O_RDWR)?)))
            .collect::<Result<_, FsError>>()?;
        let mut versions: BTreeMap<Slot, u32> = BTreeMap::new();
        let mut unsynced = Unsynced::new();
        let mut failures = (0, Ok(()));
        while !self.stop.load(Ordering::Relaxed) && failures.0 < FAILURES {
            let Some((file, open)) = rng.choice(&files) else {
                break;
            };
            let slot = file * PER_FILE + rng.usize(blocks.clone());
            let version = versions.entry(slot).or_insert(0);
            *version += 1;
            let by = *rng.choice(&round.syncs).unwrap_or(&SyncBy::Fsync);
            let done = self.overwrite((*file, open), (slot, *version), by, &mut unsynced, &mut rng);
            if let Err(e) = done {
                failures = (failures.0 + 1, Err(e));
            }
        }
        failures.1
    }

    fn overwrite(
        &self,
        (file, open): (usize, &OpenRef),
        (slot, version): (Slot, u32),
        by: SyncBy,
        unsynced: &mut Unsynced,
        rng: &mut fastrand::Rng,
    ) -> Result<(), FsError> {
        let fs = self.fs;
        let opened = match by {
            SyncBy::Osync => Some(blocks::open(fs, file, libc::O_RDWR | libc::O_SYNC)?),
            _ => None,
        };
        self.notes.note(self.slots + slot, true, version);
        let content = blocks::content(slot, version, self.round.block);
        let at = (slot % PER_FILE) as u64 * u64::from(self.round.block);
        let to = opened.as_ref().unwrap_or(open);
        let n = fs.write(&Ctx::default(), to, at, &content, false)?;
        if n < content.len() {
            return Err(FsError::Errno(libc::EIO));
        }
        let pending = unsynced.entry(file).or_default();
        pending.retain(|(other, _)| *other != slot);
        pending.push((slot, version));
        // Removed before the sync: after an error none of these writes is promised.
        let covered = match by {
            SyncBy::None => return Ok(()),
            SyncBy::Syncfs => std::mem::take(unsynced).into_values().flatten().collect(),
            // O_SYNC does not cover writes through other open files.
            SyncBy::Osync => unsynced
                .get_mut(&file)
                .and_then(Vec::pop)
                .into_iter()
                .collect(),
            SyncBy::Fsync | SyncBy::Fdatasync => unsynced.remove(&file).unwrap_or_default(),
        };
        match by {
            SyncBy::Syncfs => awaited(|done| fs.sync_all(done)),
            SyncBy::Fsync if rng.bool() => {
                awaited(|done| fs.fsync(open, false, Wait::Inline, done))
            }
            SyncBy::Fsync => awaited(|done| fs.fsync(open, false, Wait::Deferred, done)),
            SyncBy::Fdatasync if rng.bool() => {
                awaited(|done| fs.fsync(open, true, Wait::Inline, done))
            }
            SyncBy::Fdatasync => awaited(|done| fs.fsync(open, true, Wait::Deferred, done)),
            // The kernel follows such a write with an fsync.
            SyncBy::Osync => awaited(|done| fs.fsync(to, false, Wait::Inline, done)),
            SyncBy::None => Ok(()),
        }?;
        for (slot, version) in covered {
            self.notes.note(self.slots + slot, false, version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::Settings;

    /// The notes of a block are those of one thread.
    #[test]
    fn every_block_is_of_one_thread() {
        for (writers, shared) in [(1, true), (2, true), (5, true), (8, true), (4, false)] {
            let settings = Settings {
                writers: vec![writers],
                shared: vec![shared],
                ..Settings::default()
            };
            let round = settings.round(1, 0);
            let mut slots = BTreeSet::new();
            let mut files = BTreeSet::new();
            for thread in 0..writers {
                let (first, step, blocks) = round.part(thread);
                for file in (first..round.files).step_by(step) {
                    files.insert((file, thread));
                    for block in blocks.clone() {
                        assert!(slots.insert((file, block)), "{writers} threads, {shared}");
                    }
                }
            }
            let twice = files.len() > round.files;
            assert_eq!(twice, shared && writers > 1, "{writers} threads, {shared}");
        }
    }
}
