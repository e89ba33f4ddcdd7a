//! How far something long is: a bar for who looks on, else a line now and then.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use parking_lot::Mutex;

/// Between two lines where there is no terminal.
const EACH: Duration = Duration::from_secs(60);

/// Tells how far it is, on standard error.
pub(crate) struct Teller {
    bar: ProgressBar,
    /// When a line was told last; `None`: nothing is told.
    told: Option<Mutex<Instant>>,
}

impl Teller {
    pub(crate) fn new(bar: ProgressBar) -> Teller {
        Teller {
            bar,
            told: Some(Mutex::new(Instant::now())),
        }
    }

    /// One that tells nothing.
    pub(crate) fn silent() -> Teller {
        Teller {
            bar: ProgressBar::hidden(),
            told: None,
        }
    }

    /// How far along the bar it is, in the bar's unit.
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

    /// A line that stays.
    pub(crate) fn line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
