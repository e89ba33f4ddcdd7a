//! Helpers of the crash tests: a watchdog, and numbers from the environment. Further ones are in
//! `stetfs_crash`.

#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(unreachable_pub, reason = "the test program is the whole crate")]
#![allow(clippy::unwrap_used)]

pub mod watchdog;

/// A number from the environment.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")),
    )
}

/// Whether the long mode is on: `STETFS_LONG=1`.
pub fn long() -> bool {
    number("STETFS_LONG").is_some_and(|n| n > 0)
}
