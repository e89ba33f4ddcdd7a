//! How large figures are.

use std::path::PathBuf;

use super::card::Card;

/// How large.
#[derive(Clone, Debug, Default)]
pub struct Scale {
    /// A first look: a part of the traces, and fewer sizes.
    pub quick: bool,
    /// The seed of the traces.
    pub seed: u64,
    /// How many seeds are run from that one on, where traces are; at least one.
    pub seeds: u64,
    /// Where traces end beside their own ends, 0 to 1.
    pub cuts: Vec<f64>,
    /// Whether a trace is first run until its device is in a steady state.
    pub steady: bool,
    /// The devices of figures that run on both; none are all.
    pub cards: Vec<Card>,
    /// A directory of recorded traces: those of held-out, in place of what is generated; for the
    /// fitted costs to be judged by, too.
    pub recorded: Option<PathBuf>,
    /// Where each point of a matrix is kept as soon as it is done, and looked for.
    pub save: Option<PathBuf>,
}

impl Scale {
    /// The devices of a figure that runs on both.
    pub(super) fn cards(&self) -> &[Card] {
        match self.cards.as_slice() {
            [] => &Card::ALL,
            some => some,
        }
    }
}
