//! Waiting for asynchronous events.

use std::time::{Duration, Instant};

/// Waits until `is_so` returns true, calling it every 2 ms.
///
/// # Panics
/// After a minute, with a message that `what` did not happen.
#[track_caller]
pub fn wait_until(what: impl std::fmt::Display, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
