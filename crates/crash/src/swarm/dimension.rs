//! The dimensions in which runs differ, with the values of each.
//!
//! Presets and journal options come from the registry, and operations from the generator. So a new
//! one is drawn without being named here.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use stetfs::low::{PolicyKind, Preset, check_option, options_help};

use crate::canary;
use crate::workload::{Deed, Family};

/// A dimension: a choice that each run makes.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// The name of the dimension.
    pub name: String,
    /// The values with their weights. The first value is the plain one, which needs no particular
    /// value of another dimension.
    pub values: Vec<(String, u32)>,
    /// The family of an operation; the operations of a family are drawn together.
    pub family: Option<Family>,
}

/// The value of an option that the mount does not name.
pub const UNSAID: &str = "unsaid";
/// Prefix of the names of journal options.
pub const JOURNAL: &str = "journal-";
/// Prefix of the names of operations.
pub const OP: &str = "op-";

/// Dimensions of the volume: arguments of mke2fs, and changes before the work.
const VOLUME: &[(&str, &[(&str, u32)])] = &[
    (
        "block",
        &[
            ("1024", 4),
            ("2048", 2),
            ("4096", 4),
            ("16384", 1),
            ("32768", 1),
        ],
    ),
    ("inode", &[("256", 3), ("128", 1)]),
    ("inline", &[("no", 3), ("yes", 1)]),
    ("map", &[("extents", 3), ("blocks", 1)]),
    ("clusters", &[("one", 4), ("four", 1), ("sixteen", 1)]),
    ("values", &[("blocks", 3), ("inodes", 1)]),
    ("orphans", &[("list", 1), ("file", 1)]),
    ("width", &[("64", 2), ("32", 1)]),
    ("sums", &[("yes", 3), ("no", 1)]),
    ("quota", &[("no", 3), ("user", 2), ("project", 1)]),
    ("groups", &[("default", 2), ("small", 1)]),
    ("layout", &[("flexible", 2), ("rigid", 1), ("meta", 1)]),
    ("log", &[("small", 3), ("large", 1), ("outside", 1)]),
    ("mmp", &[("no", 7), ("yes", 1)]),
    (
        "history",
        &[("none", 4), ("aged", 1), ("kernel", 1), ("cut", 1)],
    ),
    (
        "fullness",
        &[
            ("empty", 3),
            ("half", 1),
            ("near", 2),
            ("full", 2),
            ("inodes", 1),
        ],
    ),
];

/// Dimensions of the mount options, and of the device below.
const OPTIONS: &[(&str, &[(&str, u32)])] = &[
    ("async_commit", &[("no", 3), ("yes", 1)]),
    ("discard", &[("no", 3), ("yes", 1)]),
    ("sync", &[("no", 9), ("yes", 1)]),
    ("dirsync", &[("no", 9), ("yes", 1)]),
    ("lazytime", &[("no", 3), ("yes", 1)]),
    ("strictatime", &[("no", 3), ("yes", 1)]),
    ("errors", &[("continue", 2), ("remount-ro", 1)]),
    ("data_err", &[("ignore", 2), ("abort", 1)]),
    // The time at which unsynced data is written back.
    ("expire", &[("late", 3), ("soon", 1)]),
    ("cache", &[("4", 2), ("1", 2), ("16", 1)]),
    ("fua", &[("no", 2), ("yes", 1)]),
    ("batches", &[("torn", 3), ("atomic", 1)]),
    ("region", &[("no", 3), ("small", 1), ("log", 1)]),
    ("transport", &[("library", 3), ("nbd", 1)]),
    ("fault", FAULTS),
];

/// The values of the dimension `fault`.
const FAULTS: &[(&str, u32)] = &[
    ("none", 24),
    ("flush-once", 1),
    ("flush-on", 1),
    ("flush-inside", 1),
    ("write-once", 1),
    ("write-on", 1),
    ("write-range", 1),
    ("full-for-now", 1),
    ("full-on", 1),
    ("read-once", 1),
    ("read-range", 1),
    ("forgetful", 2),
    ("dies", 1),
    // A deliberate fault that the lab must find; it is never drawn.
    ("careless", 0),
];

/// Faults of a server; they need a transport with one.
pub(super) const OF_SERVERS: [&str; 3] = ["forgetful", "dies", "careless"];

/// Dimensions of the work.
const WORK: &[(&str, &[(&str, u32)])] = &[
    ("threads", &[("1", 3), ("2", 2), ("3", 1)]),
    ("length", &[("60", 2), ("15", 2), ("200", 1)]),
    ("mounts", &[("1", 3), ("2", 1), ("3", 1)]),
    ("again", &[("same", 1), ("other", 1)]),
    ("tree", &[("small", 1), ("large", 1)]),
    // Whether most operations repeat the place and the kind of former ones.
    ("habits", &[("weak", 1), ("strong", 1)]),
    ("names", &[("mixed", 2), ("long", 1)]),
    ("sizes", &[("small", 1), ("large", 1)]),
    // How many changes are synced at once, if files are synced.
    ("syncs", &[("third", 2), ("each", 1), ("seldom", 1)]),
    ("user", &[("root", 1), ("other", 1)]),
    ("recovery", &[("whole", 2), ("cut", 2), ("cut-twice", 1)]),
    // Number of kinds of operations; with few kinds each order of some of them occurs soon.
    ("kinds", &[("many", 1), (FEW, 1)]),
];

const FEW: &str = "few";

/// Weights of an operation's frequencies. Most operations are left out of most runs, so that the
/// others meet.
const OFTEN: &[(&str, u32)] = &[("no", 6), ("some", 3), ("much", 1)];
/// Weights of an operation whose family is in focus.
const IN_FOCUS: &[(&str, u32)] = &[("no", 1), ("some", 2), ("much", 2)];
/// Weights in a run with few kinds of operations: for families outside the focus, for those in
/// focus, and for operations that nearly all others need.
const FEW_OFTEN: &[(&str, u32)] = &[("no", 24), ("some", 2), ("much", 1)];
const FEW_IN_FOCUS: &[(&str, u32)] = &[("no", 2), ("some", 2), ("much", 1)];
const FEW_NEEDED: &[(&str, u32)] = &[("no", 1), ("some", 2), ("much", 1)];
const NEEDED: [&str; 3] = ["op-create", "op-write", "op-fsync"];
/// Dimensions that choose the families in focus; operations on the same thing are drawn together.
const FAMILIES: [&str; 2] = ["focus", "beside"];
/// Dimensions that the draws of operations depend on.
pub const FOCUS: [&str; 3] = ["focus", "beside", "kinds"];

fn of_table(table: &[(&str, &[(&str, u32)])]) -> Vec<Dimension> {
    let each = table.iter().map(|(name, values)| Dimension {
        name: (*name).into(),
        values: owned(values),
        family: None,
    });
    each.collect()
}

fn owned(values: &[(&str, u32)]) -> Vec<(String, u32)> {
    let each = values
        .iter()
        .map(|(value, weight)| ((*value).into(), *weight));
    each.collect()
}

/// The values to try of an option: those that its help names, or numbers or sizes.
fn values_of(name: &str, help: &str) -> Vec<String> {
    let tried: Vec<&str> = match help {
        "N" => vec!["1", "2", "3", "8"],
        "SIZE" => vec!["4K", "64K", "1M"],
        words => words.split('|').collect(),
    };
    let can = |value: &&str| check_option(name, value).is_ok();
    tried.into_iter().filter(can).map(String::from).collect()
}

fn journal() -> Vec<Dimension> {
    let presets = Preset::all().into_iter().map(|p| (p.name().to_owned(), 1));
    let mut all = vec![Dimension {
        name: "preset".into(),
        values: presets.collect(),
        family: None,
    }];
    let mut options: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for option in options_help() {
        if let Some((name, help)) = option.usage.split_once('=') {
            let values = options.entry(name.to_owned()).or_default();
            values.extend(values_of(name, help));
        }
    }
    for (name, mut values) in options {
        values.sort_unstable();
        values.dedup();
        // Most options are left to the preset, so that the ones that are named go together.
        let unsaid = (UNSAID.to_owned(), 8 * values.len() as u32);
        let said = values.into_iter().map(|value| (value, 1));
        all.push(Dimension {
            name: format!("{JOURNAL}{name}"),
            values: std::iter::once(unsaid).chain(said).collect(),
            family: None,
        });
    }
    all
}

/// The dimension of cache replacement policies.
fn policies() -> Dimension {
    let plain = PolicyKind::default();
    let others = PolicyKind::ALL.into_iter().filter(|kind| *kind != plain);
    let others = others.map(|kind| (kind.name().to_owned(), 1));
    Dimension {
        name: "policy".into(),
        values: std::iter::once((plain.name().to_owned(), 12))
            .chain(others)
            .collect(),
        family: None,
    }
}

/// The dimension of canaries. None is ever drawn; a search of the lab's own tests fixes one.
fn canaries() -> Dimension {
    let faults = canary::all().map(|fault| (fault.name.to_owned(), 0));
    Dimension {
        name: "canary".into(),
        values: std::iter::once(("no".to_owned(), 1))
            .chain(faults)
            .collect(),
        family: None,
    }
}

/// All dimensions.
pub fn dimensions() -> &'static [Dimension] {
    static ALL: LazyLock<Vec<Dimension>> = LazyLock::new(all);
    &ALL
}

fn all() -> Vec<Dimension> {
    let mut all = of_table(VOLUME);
    all.extend(journal());
    all.extend(of_table(OPTIONS));
    all.push(policies());
    all.extend(of_table(WORK));
    all.push(canaries());
    let families = || Family::ALL.into_iter().map(|family| (family.name(), 1));
    all.extend(FAMILIES.map(|name| {
        Dimension {
            name: name.into(),
            values: std::iter::once(("none".to_owned(), 2))
                .chain(families())
                .collect(),
            family: None,
        }
    }));
    all.extend(Deed::ALL.into_iter().map(|deed| Dimension {
        name: format!("{OP}{}", deed.name()),
        values: owned(OFTEN),
        family: Some(deed.family()),
    }));
    all
}

impl Dimension {
    /// Whether more than one value can be drawn.
    pub fn is_drawn(&self) -> bool {
        self.values.iter().filter(|(_, weight)| *weight > 0).count() > 1
    }

    /// The plain value, which needs no particular value of another dimension.
    pub fn plain(&self) -> &str {
        self.values.first().map_or("", |(value, _)| value)
    }

    /// The weights of an operation's values in a run with this focus; `None` for other dimensions.
    fn often(&self, focus: &[&str]) -> Option<&'static [(&'static str, u32)]> {
        let family = self.family?;
        let is_near = focus.contains(&&*family.name());
        match (focus.contains(&FEW), is_near) {
            (true, _) if NEEDED.contains(&&*self.name) => Some(FEW_NEEDED),
            (true, true) => Some(FEW_IN_FOCUS),
            (true, false) => Some(FEW_OFTEN),
            (false, true) => Some(IN_FOCUS),
            (false, false) => None,
        }
    }

    /// The value that a seed gives. `focus` holds the values of the dimensions [`FOCUS`], the only
    /// ones that influence the draw.
    pub fn draw(&self, seed: u64, focus: &[&str]) -> &str {
        let of_name = xxhash_rust::xxh3::xxh3_64(self.name.as_bytes());
        let mut rng = fastrand::Rng::with_seed(seed ^ of_name);
        let often = self.often(focus);
        let weight = |i: usize| match often {
            Some(often) => often.get(i).map_or(0, |(_, weight)| *weight),
            None => self.values.get(i).map_or(0, |(_, weight)| *weight),
        };
        let total: u32 = (0..self.values.len()).map(weight).sum();
        let mut at = rng.u32(0..total.max(1));
        for (i, (value, _)) in self.values.iter().enumerate() {
            if at < weight(i) {
                return value;
            }
            at -= weight(i);
        }
        self.plain()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use stetfs::low::option_names;

    use super::*;
    use crate::workload::model::State;
    use crate::workload::{Bounds, Generator, Op, text};

    #[test]
    fn each_option_of_a_journal_is_drawn() {
        for option in option_names() {
            let name = format!("{JOURNAL}{option}");
            let dimension = dimensions().iter().find(|d| d.name == name);
            let values = &dimension.unwrap_or_else(|| panic!("{name}")).values;
            assert!(values.len() > 1, "{name} has no value that it takes");
        }
    }

    #[test]
    fn a_run_of_few_kinds_has_few_outside_of_its_families() {
        let drawn = |focus: &[&str], name: &str| -> usize {
            let dimension = dimensions().iter().find(|d| d.name == name).unwrap();
            let is_drawn = |seed: &u64| dimension.draw(*seed, focus) != "no";
            (0..400).filter(is_drawn).count()
        };
        let (many, few) = (["names", "none", "many"], ["names", "none", FEW]);
        assert!(drawn(&few, "op-trim") * 2 < drawn(&many, "op-trim"));
        assert!(drawn(&few, "op-mkdir") > 200);
        // Without these operations a crash finds nothing.
        assert!(NEEDED.iter().all(|name| drawn(&few, name) > 250));
    }

    #[test]
    fn each_operation_of_scripts_is_drawn() {
        let weights = Deed::ALL.map(|deed| (deed, 4)).to_vec();
        let mut generator = Generator::drawing(1, weights, Bounds::default());
        let mut state = State::new(4096, true);
        let mut drawn = BTreeSet::new();
        for at in 1..6000 {
            let op = match state.is_frozen() {
                true => generator.frozen(),
                false => generator.allowed(&state).unwrap_or(Op::SyncAll),
            };
            state.apply(&op, at);
            let line = op.to_string();
            drawn.insert(line.split(' ').next().unwrap().to_owned());
        }
        // These are made by the feed or by the run, or are other names of operations.
        let others = ["act", "append", "refused", "remount", "thread"];
        let syntax = text::SYNTAX.split(['|', '\n']);
        let verbs = syntax.filter_map(|usage| usage.split_whitespace().next());
        for verb in verbs.filter(|v| v.starts_with(|c: char| c.is_ascii_lowercase())) {
            assert!(
                drawn.contains(verb) || others.contains(&verb),
                "{verb} is never drawn"
            );
        }
    }
}
