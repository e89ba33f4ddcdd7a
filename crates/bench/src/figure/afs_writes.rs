//! AFS, figures 3-5 and 3-6: random writes of 8 KiB by threads that sync after a fixed number of
//! writes.
//!
//! Threads are simulated: all of them write and then sync at the same time, because only the
//! device's simulated time counts, not the host's.

use anyhow::Result;
use stetfs::low::{Fs, MemDevice, OpenRef, ROOT_INO};
use stetfs_flash::Model;

use super::args::FigureArgs;
use super::modes::{self, Mode, Points, root, sync_all};
use super::part::Part;
use crate::compare::Outcome;

pub(super) const SMALL_JOURNAL: &str = "\
figure 3-5, a journal of 128 MB: a notable gap, AFS below ordered mode (bars without numbers in the text), for its checkpoints are \
frequent; the aims here: bytes at most .55 times those of data, checkpoints at most .2 times its time";
pub(super) const LARGE_JOURNAL: &str = "\
figure 3-6, a journal of 1 GB: (a) one thread, AFS about as fast as ordered mode; (b) ten threads, AFS up to 2.16 times as fast as ordered \
mode; the aims here: the best 2.16 at least, bytes at most .55 times those of data, checkpoints at most .2 times its time";

/// Size of the journal in figure 3-5, MiB.
pub(super) const SMALL: u64 = 128;
/// Size of the journal in figure 3-6, MiB.
pub(super) const LARGE: u64 = 1024;
/// The best ratio of AFS's rate to that of ordered mode in figure 3-6.
const BEST: f64 = 2.16;
/// Numbers of threads, each with a file of its own.
const THREADS: [u64; 2] = [1, 10];
/// Writes between two fsyncs of a thread.
const INTERVALS: [u64; 5] = [8, 16, 32, 64, 128];
const QUICK_INTERVALS: [u64; 3] = [8, 32, 128];
/// Size of a write, bytes.
const WRITE: u64 = 8 << 10;
/// Size of all files, MiB; twice as much is written. The paper has 10 GB.
const FILES: u64 = 1024;
/// The divisor of all sizes with --quick, also of the journal.
const QUICK: u64 = 8;

/// The amount of work of a figure.
struct Size {
    journal_mib: u64,
    files_mib: u64,
    intervals: &'static [u64],
}

pub(super) fn measure(args: &FigureArgs, journal_mib: u64) -> Result<Vec<Part>> {
    let size = match args.quick {
        true => Size {
            journal_mib: journal_mib / QUICK,
            files_mib: FILES / QUICK,
            intervals: &QUICK_INTERVALS,
        },
        false => Size {
            journal_mib,
            files_mib: FILES,
            intervals: &INTERVALS,
        },
    };
    let wanted = args.wanted_threads(&THREADS)?;
    let mut parts = Vec::new();
    for model in args.flash() {
        let title = format!("{}, a journal of {} MiB", model.name, size.journal_mib);
        let mut points = Points::new(args, title, wanted.len() * size.intervals.len())?;
        for &threads in &wanted {
            let volume = laid_out(&size, threads)?;
            // The paper does not say at which of its points the best ratio is.
            let paper = (threads > 1 && journal_mib == LARGE).then_some(BEST);
            for &interval in size.intervals {
                let point = Point { threads, interval };
                let title = format!("threads {threads}, fsync each {interval}");
                points.add("fio", &title, paper, |mode| {
                    point.run(&size, &volume, model, &title, mode)
                })?;
            }
        }
        parts.push(points.finish());
    }
    Ok(parts)
}

/// A volume with a file for each thread, written once in sequence.
fn laid_out(size: &Size, threads: u64) -> Result<MemDevice> {
    let text = crate::compare::text(1 << 20);
    let each = file_bytes(size, threads);
    modes::volume(size.files_mib << 20, size.journal_mib, |fs| {
        for n in 0..threads {
            let (_, file) = fs.create(&root(), ROOT_INO, &name(n), 0o644, 0, libc::O_RDWR)?;
            for at in (0..each).step_by(text.len()) {
                let len = (each - at).min(text.len() as u64) as usize;
                let data = text.get(..len).unwrap_or_default();
                fs.write(&root(), &file, at, data, false)?;
            }
        }
        Ok(())
    })
}

fn file_bytes(size: &Size, threads: u64) -> u64 {
    (size.files_mib << 20) / threads / WRITE * WRITE
}

fn name(thread: u64) -> Vec<u8> {
    format!("file{thread}").into_bytes()
}

/// A point of the figure: a group of bars.
struct Point {
    threads: u64,
    interval: u64,
}

impl Point {
    fn run(
        &self,
        size: &Size,
        volume: &MemDevice,
        model: Model,
        title: &str,
        mode: &Mode,
    ) -> Result<Outcome> {
        // Files and all blocks that wait for a checkpoint stay in memory: there are no reads, and
        // checkpoints happen only because of the log.
        let cache = (size.files_mib + 2 * size.journal_mib) << 20;
        mode.run(volume, model, cache, (title, "IOPS"), |fs| {
            let files = (0..self.threads).map(|n| {
                let ino = fs.lookup(ROOT_INO, &name(n))?.ino;
                Ok(fs.open_inode(&root(), ino, libc::O_RDWR)?)
            });
            let files = files.collect::<Result<Vec<OpenRef>>>()?;
            self.write(fs, &files, size)
        })
    }

    /// Returns the number of writes.
    fn write(&self, fs: &Fs, files: &[OpenRef], size: &Size) -> Result<u64> {
        let writes = ((2 * size.files_mib) << 20) / WRITE;
        let places = file_bytes(size, self.threads) / WRITE;
        let text = crate::compare::text(1 << 20);
        let mut rng = fastrand::Rng::with_seed(7);
        let mut done = 0;
        while done < writes {
            for file in files {
                for _ in 0..self.interval {
                    let from = rng.usize(0..text.len() - WRITE as usize);
                    let data = text.get(from..from + WRITE as usize).unwrap_or_default();
                    fs.write(&root(), file, rng.u64(0..places) * WRITE, data, false)?;
                    done += 1;
                }
            }
            sync_all(fs, files)?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::modes::{AFS, BYTES, CHECKPOINTS, DATA, MODES, NUMBERS};
    use super::*;

    #[test]
    fn a_point_tells_modes_apart() {
        let size = Size {
            journal_mib: 8,
            files_mib: 16,
            intervals: &[8],
        };
        let volume = laid_out(&size, 2).unwrap();
        let point = Point {
            threads: 2,
            interval: 8,
        };
        let model = "sata-ssd".parse().unwrap();
        let run = |mode: usize| {
            let outcome = point.run(&size, &volume, model, "test", &MODES[mode]);
            outcome.unwrap()
        };
        let (data, afs, copied) = (run(DATA), run(AFS), run(AFS + 1));
        assert_eq!(data.len(), NUMBERS);
        // Written once and not twice, and checkpointed in little time.
        assert!(afs[BYTES].value < 0.7 * data[BYTES].value);
        assert!(afs[CHECKPOINTS].value < data[CHECKPOINTS].value);
        assert!(copied[BYTES].value > 0.9 * data[BYTES].value);
    }
}
