//! A background writer without syncs, beside which workloads run.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::compare::Sizes;

/// The data of a write call.
static CALL: [u8; 256 << 10] = [0xA5; 256 << 10];
/// Size of the file at which it is begun anew, in multiples of the sequential workload's bytes, so
/// that it fits.
const MOST: u64 = 4;
/// The suffix of a [`Beside`] whose file is not emptied.
const IN_PLACE: &str = "-in-place";

/// The background writer of a workload, which does not sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Rate in MB (of 10⁶ bytes) per second; 0: no writer.
    pub rate: u32,
    /// At its end the file is overwritten in place, as fio does. Otherwise it is emptied, so that
    /// writes always need new space.
    pub in_place: bool,
}

impl Beside {
    /// No writer.
    pub const ALONE: Self = Self::appending(0);

    /// A writer that always needs new space.
    pub const fn appending(rate: u32) -> Self {
        Self {
            rate,
            in_place: false,
        }
    }

    /// A writer that overwrites its file in place.
    pub const fn in_place(rate: u32) -> Self {
        Self {
            rate,
            in_place: true,
        }
    }
}

impl FromStr for Beside {
    type Err = std::num::ParseIntError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let rate = s.strip_suffix(IN_PLACE);
        Ok(Self {
            rate: rate.unwrap_or(s).parse()?,
            in_place: rate.is_some(),
        })
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.in_place { " in place" } else { "" };
        write!(f, "{} MB/s{how}", self.rate)
    }
}

/// A thread that writes to a file of its own.
pub(super) struct Writer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Writer {
    /// Writes the whole file at full speed, and then starts a thread that writes it again in `dir`,
    /// at the rate of `beside` or slower.
    ///
    /// A virtual machine waits milliseconds for memory that it gave back to its host. The first
    /// pass keeps these waits out of the measurement, for all file systems alike.
    pub(super) fn start(dir: &Path, beside: Beside, sizes: &Sizes) -> Result<Self> {
        let path = dir.join("beside");
        let file = File::create_new(&path).with_context(|| path.display().to_string())?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let most = MOST * sizes.stream_bytes.max(CALL.len() as u64);
        for at in (0..most).step_by(CALL.len()) {
            file.write_all_at(&CALL, at)?;
        }
        let thread = thread::spawn(move || write(&file, beside, most, &until));
        Ok(Self {
            path,
            stop,
            thread: Some(thread),
        })
    }

    /// Stops the thread, and removes its file.
    pub(super) fn stop(mut self) -> Result<()> {
        self.join()?;
        fs::remove_file(&self.path).with_context(|| format!("removing {}", self.path.display()))
    }

    fn join(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let wrote = thread.join().map_err(|_| anyhow!("the writer panicked"))?;
        wrote.context("the writer beside")
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Reached only after a failure, which is reported instead.
        let _ = self.join();
    }
}

fn write(file: &File, beside: Beside, most: u64, stop: &AtomicBool) -> Result<()> {
    let rate = f64::from(beside.rate) * 1e6;
    let (begin, mut written, mut at) = (Instant::now(), 0u64, most);
    while !stop.load(Ordering::Relaxed) {
        if at >= most {
            if !beside.in_place {
                file.set_len(0)?;
            }
            at = 0;
        }
        file.write_all_at(&CALL, at)?;
        at += CALL.len() as u64;
        written += CALL.len() as u64;
        let due = Duration::from_secs_f64(written as f64 / rate);
        thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_given() {
        assert_eq!("200".parse(), Ok(Beside::appending(200)));
        assert_eq!("500-in-place".parse(), Ok(Beside::in_place(500)));
        assert_eq!(Beside::in_place(500).to_string(), "500 MB/s in place");
        assert!("fast".parse::<Beside>().is_err());
    }
}
