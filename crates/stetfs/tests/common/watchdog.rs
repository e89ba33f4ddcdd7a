//! A watchdog that ends the test program when a case hangs, and names the case.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// The running cases: number, name, start, and time limit.
static CASES: Mutex<Vec<(u64, String, Instant, Duration)>> = Mutex::new(Vec::new());

/// Watches a case until it is dropped.
pub struct Watched(u64);

/// Begins to watch a case: if it takes longer than `timeout` the program ends.
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
            // Another thread that hangs cannot be ended alone.
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
