//! A writer that syncs nothing, for others to wait behind.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::compare::Sizes;

/// A call, bytes.
const CALL: usize = 256 << 10;
/// The file is emptied, and begun anew, after so many times what the sequential workload writes: so that it always
/// needs new space, and fits.
const MOST: u64 = 4;

/// A thread that appends to a file of its own.
pub(super) struct Writer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Writer {
    /// Starts to write `rate` MB (of 10⁶ bytes) a second in `dir`, or as fast as that goes.
    pub(super) fn start(dir: &Path, rate: u32, sizes: &Sizes) -> Result<Self> {
        let path = dir.join("beside");
        let file = File::create_new(&path).with_context(|| path.display().to_string())?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let most = MOST * sizes.stream_bytes.max(CALL as u64);
        let thread = thread::spawn(move || write(&file, f64::from(rate) * 1e6, most, &until));
        Ok(Self {
            path,
            stop,
            thread: Some(thread),
        })
    }

    /// Stops it, and removes its file.
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
        // Only after a failure, which is what is told.
        let _ = self.join();
    }
}

fn write(file: &File, rate: f64, most: u64, stop: &AtomicBool) -> Result<()> {
    let call = vec![0xA5; CALL];
    let (begin, mut written, mut at) = (Instant::now(), 0u64, 0);
    while !stop.load(Ordering::Relaxed) {
        if at >= most {
            file.set_len(0)?;
            at = 0;
        }
        file.write_all_at(&call, at)?;
        at += CALL as u64;
        written += CALL as u64;
        let due = Duration::from_secs_f64(written as f64 / rate);
        thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    Ok(())
}
