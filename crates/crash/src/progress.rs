//! The progress of a long task: a bar on a terminal, else a line every minute.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use parking_lot::Mutex;

/// Time between two lines where there is no terminal.
const EACH: Duration = Duration::from_secs(60);

/// Reports progress on standard error.
pub(crate) struct Teller {
    bar: ProgressBar,
    /// Time of the last line; `None`: no lines.
    told: Option<Mutex<Instant>>,
}

impl Teller {
    pub(crate) fn new(bar: ProgressBar) -> Teller {
        Teller {
            bar,
            told: Some(Mutex::new(Instant::now())),
        }
    }

    /// A teller that prints nothing.
    pub(crate) fn silent() -> Teller {
        Teller {
            bar: ProgressBar::hidden(),
            told: None,
        }
    }

    /// Moves the bar, in the bar's unit.
    pub(crate) fn position(&self, position: u64) {
        self.bar.set_position(position);
    }

    pub(crate) fn say(&self, message: String) {
        if let (true, Some(told)) = (self.bar.is_hidden(), &self.told) {
            let mut told = told.lock();
            if told.elapsed() >= EACH {
                *told = Instant::now();
                eprintln!("{message}");
            }
        }
        self.bar.set_message(message);
        self.bar.tick();
    }

    /// Prints a line that stays.
    pub(crate) fn line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
