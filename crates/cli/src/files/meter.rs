//! Progress of a command: counts for the progress line and for programs that read JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::left_out::LeftOut;
use super::troubles::Troubles;
use crate::failure::{Code, Failure, Result};

/// The pause between two updates of the line.
const PAUSE: Duration = Duration::from_millis(100);

/// Counts, which are shown while there is a terminal.
pub(super) struct Meter {
    /// Files of any kind, directories included.
    entries: u64,
    /// Bytes of file data, without holes.
    bytes: u64,
    left_out: LeftOut,
    /// Files that could not be copied as they are.
    pub(super) troubles: Troubles,
    began: Instant,
    shown: Instant,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
}

impl Meter {
    /// Starts counting. From now on Ctrl-C ends the command at a place where the volume can be
    /// closed.
    pub(super) fn start() -> Meter {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}{msg}, {elapsed}") {
            bar.set_style(style);
        }
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            if let Err(e) = signal_hook::flag::register(signal, Arc::clone(&interrupted)) {
                tracing::warn!("Ctrl-C ends the command at once: {e}");
            }
        }
        Meter {
            entries: 0,
            bytes: 0,
            left_out: LeftOut::default(),
            troubles: Troubles::default(),
            began: Instant::now(),
            shown: Instant::now(),
            bar,
            interrupted,
        }
    }

    /// Counts a file.
    pub(super) fn entry(&mut self) {
        self.entries += 1;
        self.show();
    }

    /// Counts `n` bytes.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(super) fn bytes(&mut self, n: u64) -> Result {
        self.bytes += n;
        self.show();
        self.go_on()
    }

    /// Begins to count again; troubles stay.
    pub(super) fn restart(&mut self) {
        (self.entries, self.bytes) = (0, 0);
        self.left_out = LeftOut::default();
    }

    /// Shows this before the counts.
    pub(super) fn doing(&self, what: &'static str) {
        self.bar.set_prefix(what);
    }

    /// Notes what was left out.
    pub(super) fn left_out(&mut self, what: LeftOut) {
        self.left_out += what;
    }

    /// Checks for Ctrl-C.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(super) fn go_on(&self) -> Result {
        match self.interrupted.load(Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let entries = self.entries;
                let message = format!("interrupted; {entries} files and directories were done");
                Err(Failure::new(Code::Interrupted, message))
            }
        }
    }

    fn show(&mut self) {
        if self.shown.elapsed() < PAUSE {
            return;
        }
        self.shown = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let rate = HumanBytes((self.bytes as f64 / seconds) as u64);
        let (entries, bytes) = (self.entries, HumanBytes(self.bytes));
        self.bar
            .set_message(format!("{entries} files, {bytes}, {rate}/s"));
        self.bar.tick();
    }

    /// Removes the line; reports what was left out, and with `json` the counts.
    pub(super) fn end(&self, json: bool) {
        self.bar.finish_and_clear();
        if let Some(said) = self.left_out.said() {
            tracing::warn!("{said}");
        }
        if json {
            outln!("{}", self.to_json());
        }
    }

    /// The counts and the errors.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "entries": self.entries,
            "bytes": self.bytes,
            "seconds": self.began.elapsed().as_secs_f64(),
            "left_out": self.left_out.to_json(),
            "errors": self.troubles.to_json(),
        })
    }
}
