//! Parts that journals are made of, and the options that parts take.

use std::fmt;

use super::Composition;
use crate::log::LogFormat;
use crate::policy::{Home, Ordering};

/// What a journal does with file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// Data goes home before the transaction that makes it reachable (ext4's `data=ordered`).
    #[default]
    Ordered,
    /// Data is journaled with the metadata (`data=journal`).
    Journal,
    /// What is overwritten is journaled with the metadata. Data in new blocks goes home before the
    /// transaction that makes them reachable, as with [`Ordered`](Self::Ordered): nothing refers
    /// to them until then, so no crash shows them in part.
    Overwrites,
    /// Data goes home at any time (`data=writeback`).
    Writeback,
}

impl DataMode {
    /// Whether a crash leaves data as it was or as it is, block by block and transaction by
    /// transaction: nothing that a valid transaction shows is written over at its home.
    pub fn keeps_whole(self) -> bool {
        matches!(self, DataMode::Journal | DataMode::Overwrites)
    }
}

/// A question about a journal; a [`Part`] is an answer. Each is an option of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// What happens to file data.
    Data,
    /// How a transaction looks in the log.
    Codec,
    /// Which transaction a change belongs to, and what sharing a block means.
    Order,
    /// Where the log lies.
    Medium,
    /// How images reach their homes.
    Home,
    /// What makes a synced file durable.
    Sync,
}

impl Axis {
    /// All of them.
    pub const ALL: [Axis; 6] = [
        Axis::Data,
        Axis::Codec,
        Axis::Order,
        Axis::Medium,
        Axis::Home,
        Axis::Sync,
    ];

    /// The option's name.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Data => "data",
            Axis::Codec => "codec",
            Axis::Order => "order",
            Axis::Medium => "medium",
            Axis::Home => "home",
            Axis::Sync => "sync",
        }
    }

    /// What it asks, for help.
    pub fn help(self) -> &'static str {
        match self {
            Axis::Data => "what happens to file data",
            Axis::Codec => "how the log is written",
            Axis::Order => "how changes become transactions",
            Axis::Medium => "where the log lies",
            Axis::Home => "how logged blocks reach their homes",
            Axis::Sync => "what makes a synced file durable",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

bitflags::bitflags! {
    /// What a log can hold, or a journal be relied on for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Ability: u32 {
        /// Several lanes of transactions, with edges.
        const LANES = 1;
        /// Records of single files.
        const RECORDS = 1 << 1;
        /// The kernel and e2fsck replay it.
        const REPLAYED_BY_OTHERS = 1 << 2;
        /// It is in a region of persistent memory.
        const IN_REGION = 1 << 3;
        /// What changed of each block, not all of it.
        const CHANGES = 1 << 4;
    }
}

impl Ability {
    fn help(self) -> &'static str {
        match self {
            Ability::LANES => "lanes of transactions",
            Ability::RECORDS => "records of files",
            Ability::IN_REGION => "a log in persistent memory",
            Ability::CHANGES => "a log of changes",
            _ => "a log that other programs replay",
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Ability::help).collect();
        f.write_str(&names.join(" and "))
    }
}

/// An option of a part.
#[derive(Debug)]
pub struct OptionDef {
    /// Its name.
    pub name: &'static str,
    /// What it takes, such as `SIZE` or `off|discard|zero`.
    pub values: &'static str,
    /// What it says, in a line.
    pub help: &'static str,
    /// Whether a value can be.
    ///
    /// # Errors
    /// What it should be, as the end of a sentence.
    pub check: fn(&str) -> Result<(), String>,
}

/// What a part is made by.
#[derive(Clone, Copy)]
pub enum Make {
    /// File data.
    Data(DataMode),
    /// A log.
    Codec(&'static dyn LogFormat),
    /// Lanes and sharing.
    Order(fn(&Composition) -> Box<dyn Ordering>),
    /// The volume's journal.
    Medium,
    /// The way home.
    Home(fn(&Composition) -> Box<dyn Home>),
    /// Files are synced by records of their own, or by commits.
    Sync {
        /// By records.
        records: bool,
    },
}

/// One answer to the question of an [`Axis`].
pub struct Part {
    /// The option's value.
    pub name: &'static str,
    /// What it means, in a line.
    pub help: &'static str,
    /// Options that only this part takes.
    pub options: &'static [OptionDef],
    /// What it can do for others.
    pub offers: Ability,
    /// What others must be able to.
    pub needs: Ability,
    /// How it is made.
    pub make: Make,
}

impl Part {
    /// The question that it answers.
    pub fn axis(&self) -> Axis {
        match self.make {
            Make::Data(_) => Axis::Data,
            Make::Codec(_) => Axis::Codec,
            Make::Order(_) => Axis::Order,
            Make::Medium => Axis::Medium,
            Make::Home(_) => Axis::Home,
            Make::Sync { .. } => Axis::Sync,
        }
    }

    /// All parts that answer a question, by name.
    pub fn of(axis: Axis) -> Vec<&'static Part> {
        let mut parts: Vec<_> = PARTS.iter().filter(|p| p.axis() == axis).collect();
        parts.sort_unstable_by_key(|p| p.name);
        parts
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.axis(), self.name)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.axis(), self.name)
    }
}

/// The parts there are: each scheme's folder adds its own.
#[linkme::distributed_slice]
pub static PARTS: [Part];

/// For options that take one of a few words.
///
/// # Errors
/// The words.
pub fn one_of(words: &[&str], value: &str) -> Result<(), String> {
    match words.contains(&value) {
        true => Ok(()),
        false => Err(format!("must be {}", listed(words, "or"))),
    }
}

/// For options that take a number between two, both included.
///
/// # Errors
/// The bounds.
pub fn between(least: u64, most: u64, value: &str) -> Result<(), String> {
    match value.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(()),
        _ => Err(format!("must be a number from {least} to {most}")),
    }
}

/// `a, b and c`.
pub(super) fn listed(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}
