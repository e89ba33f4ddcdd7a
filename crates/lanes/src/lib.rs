//! A scheme for tests (`journal=lanes`): several lanes of transactions over the StetFS log, chosen
//! by thread.
//!
//! It shows that a scheme is a folder that registers itself, and it exercises the engine's rules
//! for blocks that lanes share. The scheme for production use is `zjournal`.

#![forbid(unsafe_code)]

use stetfs_journal::compose::{
    Ability, Composition, Make, OptionDef, PARTS, PRESETS, Part, Preset, PresetDef, between,
};
use stetfs_journal::policy::Ordering;
use stetfs_journal::{Lane, Near};
use stetfs_sync::thread_number;

/// The default number of lanes.
const LANES: u16 = 2;

/// The ordering by thread: threads are assigned to lanes in the order in which they came.
struct ByThread(u16);

impl Ordering for ByThread {
    fn lanes(&self) -> u16 {
        self.0
    }

    fn commits_apart(&self) -> bool {
        true
    }

    fn lane(&self, _near: Option<Near>) -> Lane {
        Lane(thread_number() % self.0)
    }
}

fn lanes(journal: &Composition) -> u16 {
    let said = journal.number("lanes").and_then(|n| u16::try_from(n).ok());
    said.unwrap_or(LANES)
}

#[linkme::distributed_slice(PARTS)]
static THREADS: Part = Part {
    name: "threads",
    help: "a lane of transactions for each thread (for tests)",
    options: &[OptionDef {
        name: "lanes",
        values: "N",
        help: "lanes (2)",
        check: |value| between(1, 64, value),
    }],
    offers: Ability::empty(),
    needs: Ability::LANES,
    make: Make::Order(|journal| Box::new(ByThread(lanes(journal)))),
};

#[linkme::distributed_slice(PRESETS)]
static LANES_DEF: PresetDef = PresetDef {
    name: "lanes",
    help: "as ordered, with lanes of transactions by thread (for tests)",
    rank: 900,
    set: &[("data", "ordered"), ("order", "threads")],
};

/// Ordered data, and lanes of transactions by thread.
pub const PRESET: Preset = Preset(&LANES_DEF);

#[cfg(test)]
mod tests {
    use super::*;
    use stetfs_journal::compose::Axis;

    #[test]
    fn it_is_there_without_being_named_elsewhere() {
        assert_eq!("lanes".parse(), Ok(PRESET));
        assert!(Preset::all().contains(&PRESET));
        let journal: Composition = "lanes,lanes=8".parse().unwrap_or_default();
        assert_eq!(journal.ordering().lanes(), 8);
        assert_eq!(journal.part(Axis::Codec).name, "frames");
        let refused = "lanes,codec=jbd2".parse::<Composition>();
        assert!(refused.is_err_and(|e| e.to_string().contains("order=threads needs codec=frames")));
    }
}
