//! Ends the test program when something hangs, and says what.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// What is under way, since when, and how long it may take.
static CASES: Mutex<Vec<(u64, String, Instant, Duration)>> = Mutex::new(Vec::new());

/// Watches one case until dropped.
pub struct Watched(u64);

/// Begins to watch: a case that takes longer than `timeout` ends the program.
pub fn watch(what: impl Into<String>, timeout: Duration) -> Watched {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU64, Ordering};
    static START: Once = Once::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    START.call_once(|| {
        thread::spawn(look);
    });
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    CASES
        .lock()
        .unwrap()
        .push((id, what.into(), Instant::now(), timeout));
    Watched(id)
}

fn look() {
    loop {
        thread::sleep(Duration::from_millis(500));
        let cases = CASES.lock().unwrap();
        if let Some((_, what, since, _)) = cases
            .iter()
            .find(|(_, _, since, timeout)| since.elapsed() > *timeout)
        {
            eprintln!("HANGS, for {:?} now: {what}", since.elapsed());
            // A thread that hangs cannot be ended from another.
            std::process::abort();
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Ok(mut cases) = CASES.lock() {
            cases.retain(|(id, ..)| *id != self.0);
        }
    }
}
