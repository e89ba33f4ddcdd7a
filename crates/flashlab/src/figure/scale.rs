//! The scale of figures: the number and the size of runs.

use std::path::PathBuf;

use stetfs_flash::ftl::FtlKind;

use super::card::{Card, Target};
use crate::generate::Workload;

/// The scale of a computation.
#[derive(Clone, Debug, Default)]
pub struct Scale {
    /// A first look: parts of the traces, and fewer sizes.
    pub quick: bool,
    /// The seed of the traces.
    pub seed: u64,
    /// Number of seeds to run, from `seed` on; at least one.
    pub seeds: u64,
    /// Parts of the traces at which results are also taken, 0 to 1.
    pub cuts: Vec<f64>,
    /// Whether a trace first runs until its device is in a steady state.
    pub steady: bool,
    /// The devices for figures that run on both; empty: all.
    pub cards: Vec<Card>,
    /// The translation layer of the card in place of FAST. With it, figures that run on both
    /// devices run on the card only.
    pub layer: Option<FtlKind>,
    /// Sizes of the cache in MiB; empty: five of the device's.
    pub caches: Vec<u64>,
    /// The generated traces of the figure of layers; empty: all.
    pub traces: Vec<Workload>,
    /// A directory of recorded traces: for held-out in place of the generated ones, for fitted as
    /// further traces to judge by, and for layers beside the others.
    pub recorded: Option<PathBuf>,
    /// The directory in which the points of a matrix are saved, and looked up.
    pub save: Option<PathBuf>,
}

impl Scale {
    /// The devices of a figure that runs on both.
    pub(super) fn targets(&self) -> Vec<Target> {
        match (self.layer, self.cards.as_slice()) {
            (Some(layer), _) => vec![Target::card(layer)],
            (None, []) => Card::ALL.map(Target::usual).into(),
            (None, some) => some.iter().copied().map(Target::usual).collect(),
        }
    }

    /// The card with its layer.
    pub(super) fn card(&self) -> Target {
        self.layer
            .map_or(Target::usual(Card::Microsd), Target::card)
    }

    /// Sizes of the cache in MiB on a device.
    pub(super) fn sizes(&self, target: Target) -> Vec<u64> {
        match self.caches.as_slice() {
            [] => target.card.sizes(self.quick),
            some => some.to_vec(),
        }
    }
}
