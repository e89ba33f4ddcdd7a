//! What an application does.

use std::ops::RangeInclusive;

use rusqlite::Connection;

/// What an application does.
pub(in super::super) struct Load {
    /// For the report.
    pub(super) title: &'static str,
    /// Makes tables with what is there before the clock starts.
    pub(super) fill: fn(&Connection, &mut fastrand::Rng) -> rusqlite::Result<()>,
    /// One transaction, the `n`th of `of`.
    pub(super) transaction:
        fn(&Connection, &mut fastrand::Rng, n: u32, of: u32) -> rusqlite::Result<()>,
}

/// Letters and digits, so many.
pub(super) fn letters(rng: &mut fastrand::Rng, bytes: RangeInclusive<usize>) -> String {
    let bytes = rng.usize(bytes);
    std::iter::repeat_with(|| rng.alphanumeric())
        .take(bytes)
        .collect()
}

/// One of the things, each as often as the number beside it says.
pub(super) fn weighed<T: Copy>(rng: &mut fastrand::Rng, things: &[(T, u32)]) -> Option<T> {
    let mut at = rng.u32(..things.iter().map(|(_, weight)| weight).sum::<u32>().max(1));
    for (thing, weight) in things {
        if at < *weight {
            return Some(*thing);
        }
        at -= weight;
    }
    None
}
