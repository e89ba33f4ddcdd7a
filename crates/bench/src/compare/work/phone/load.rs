//! The load of a phone application.

use std::ops::RangeInclusive;

use rusqlite::Connection;

/// The load of an application.
pub(in super::super) struct Load {
    /// The title in the report.
    pub(super) title: &'static str,
    /// Makes the tables with their initial content, before the clock starts.
    pub(super) fill: fn(&Connection, &mut fastrand::Rng) -> rusqlite::Result<()>,
    /// Runs one transaction, the `n`th of `of`.
    pub(super) transaction:
        fn(&Connection, &mut fastrand::Rng, n: u32, of: u32) -> rusqlite::Result<()>,
}

/// A random text of letters and digits, of a length in this range.
pub(super) fn letters(rng: &mut fastrand::Rng, bytes: RangeInclusive<usize>) -> String {
    let bytes = rng.usize(bytes);
    std::iter::repeat_with(|| rng.alphanumeric())
        .take(bytes)
        .collect()
}

/// A random item, chosen by weight.
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
