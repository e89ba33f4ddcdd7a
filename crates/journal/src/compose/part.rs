//! The parts of journals, and the options of the parts.

use std::fmt;

use super::Composition;
use crate::log::LogFormat;
use crate::policy::{Home, Ordering};

/// The treatment of file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// Data is written home before the transaction that makes it reachable (ext4's `data=ordered`).
    #[default]
    Ordered,
    /// Data is journaled with the metadata (`data=journal`).
    Journal,
    /// Overwritten data is journaled with the metadata. Data in new blocks is written home before
    /// the transaction that makes it reachable, as with [`Ordered`](Self::Ordered): nothing refers
    /// to the blocks until then, so no crash shows them in part.
    Overwrites,
    /// Data is written home at any time (`data=writeback`).
    Writeback,
}

impl DataMode {
    /// Whether a crash leaves each block either with its old or with its new data, and so each
    /// transaction: data that a valid transaction shows is never overwritten at home directly.
    pub fn keeps_whole(self) -> bool {
        matches!(self, DataMode::Journal | DataMode::Overwrites)
    }
}

/// A question about a journal, which a [`Part`] answers. Each axis is an option of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// The treatment of file data.
    Data,
    /// The format of a transaction in the log.
    Codec,
    /// The transaction that a change belongs to, and the meaning of a block shared between lanes.
    Order,
    /// The location of the log.
    Medium,
    /// The way of images to their home locations.
    Home,
    /// The way a synced file becomes durable.
    Sync,
}

impl Axis {
    /// All axes.
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

    /// The question, for help texts.
    pub fn help(self) -> &'static str {
        match self {
            Axis::Data => "what happens to file data",
            Axis::Codec => "how the log is written",
            Axis::Order => "how changes become transactions",
            Axis::Medium => "where the log lies",
            Axis::Home => "how logged blocks reach their home locations",
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
    /// An ability of a log or a journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Ability: u32 {
        /// Several lanes of transactions, with edges.
        const LANES = 1;
        /// Records of single files.
        const RECORDS = 1 << 1;
        /// The kernel and e2fsck can replay the log.
        const REPLAYED_BY_OTHERS = 1 << 2;
        /// The log is in a region of persistent memory.
        const IN_REGION = 1 << 3;
        /// Logging of the changes of a block instead of the whole block.
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
    /// The name.
    pub name: &'static str,
    /// The syntax of the value, such as `SIZE` or `off|discard|zero`.
    pub values: &'static str,
    /// The description, in one line.
    pub help: &'static str,
    /// Checks a value.
    ///
    /// # Errors
    /// The end of a sentence that says what the value must be.
    pub check: fn(&str) -> Result<(), String>,
}

/// The function or value that makes a part, by axis.
#[derive(Clone, Copy)]
pub enum Make {
    /// The treatment of file data.
    Data(DataMode),
    /// A log format.
    Codec(&'static dyn LogFormat),
    /// An ordering policy.
    Order(fn(&Composition) -> Box<dyn Ordering>),
    /// The medium, which the codec makes.
    Medium,
    /// A home policy.
    Home(fn(&Composition) -> Box<dyn Home>),
    /// The sync of files.
    Sync {
        /// Whether files are synced by records of their own, not by commits.
        records: bool,
    },
}

/// One answer to the question of an [`Axis`].
pub struct Part {
    /// The option's value.
    pub name: &'static str,
    /// The description, in one line.
    pub help: &'static str,
    /// Options that only this part takes.
    pub options: &'static [OptionDef],
    /// The abilities it has.
    pub offers: Ability,
    /// The abilities it needs from other parts.
    pub needs: Ability,
    /// The maker of the part.
    pub make: Make,
}

impl Part {
    /// The axis on which the part is.
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

    /// All parts on an axis, by name.
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

/// All registered parts: each scheme's folder adds its own.
#[linkme::distributed_slice]
pub static PARTS: [Part];

/// Checks the value of an option that takes one of a few words.
///
/// # Errors
/// The end of a sentence that lists the words.
pub fn one_of(words: &[&str], value: &str) -> Result<(), String> {
    match words.contains(&value) {
        true => Ok(()),
        false => Err(format!("must be {}", listed(words, "or"))),
    }
}

/// Checks the value of an option that takes a number from `least` to `most`, both included.
///
/// # Errors
/// The end of a sentence that gives the bounds.
pub fn between(least: u64, most: u64, value: &str) -> Result<(), String> {
    match value.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(()),
        _ => Err(format!("must be a number from {least} to {most}")),
    }
}

/// The words as a list: `a, b and c`, with `last` before the last word.
pub(super) fn listed(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}
