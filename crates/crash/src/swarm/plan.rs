//! The plan of one run: a value for each dimension.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use anyhow::{Result, bail};
use stetfs::low::{Composition, Preset, check_region};

use super::dimension::{Dimension, FOCUS, JOURNAL, OF_SERVERS, OP, UNSAID, dimensions};
use crate::judge::check_can_mount;

/// A dimension with a fixed value, written `NAME=VALUE`.
pub type Fixed = (String, String);

/// Whether this process can mount by the kernel.
fn can_mount() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(|| check_can_mount().is_ok());
    *CAN
}

/// Number of draws that decide whether two values can meet.
const DRAWS: u64 = 6;

/// The plan of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all draws beside the dimensions.
    pub seed: u64,
    /// The value of each dimension.
    values: BTreeMap<String, String>,
    /// The values that were not drawn.
    fixed: Vec<Fixed>,
}

impl Plan {
    /// The plan of a seed, with some values fixed.
    ///
    /// # Errors
    /// There is no such dimension or value.
    pub fn draw(seed: u64, fixed: &[Fixed]) -> Result<Plan> {
        let all = dimensions();
        let of_focus = |name: &str| -> Option<&str> {
            let said = fixed.iter().find(|(known, _)| known == name);
            let dimension = || all.iter().find(|d| d.name == name);
            said.map(|(_, value)| &**value)
                .or_else(|| Some(dimension()?.draw(seed, &[])))
        };
        let focus: Vec<&str> = FOCUS.into_iter().filter_map(of_focus).collect();
        let mut values: BTreeMap<String, String> = all
            .iter()
            .map(|d| (d.name.clone(), d.draw(seed, &focus).to_owned()))
            .collect();
        for (name, value) in fixed {
            let Some(dimension) = all.iter().find(|d| d.name == *name) else {
                let names: Vec<&str> = all.iter().map(|d| &*d.name).collect();
                bail!(
                    "there is no dimension {name:?}; there are {}",
                    names.join(", ")
                );
            };
            if !dimension.values.iter().any(|(known, _)| known == value) {
                let known: Vec<&str> = dimension.values.iter().map(|(v, _)| &**v).collect();
                bail!("{name} must be {}, not {value:?}", known.join(" or "));
            }
            values.insert(name.clone(), value.clone());
        }
        let mut plan = Plan {
            seed,
            values,
            fixed: fixed.to_vec(),
        };
        plan.settle(all);
        Ok(plan)
    }

    /// Whether two values can be in one plan; decided by a few draws of the other values.
    pub fn can_have(pair: &[Fixed; 2]) -> bool {
        (0..DRAWS).any(|seed| {
            let has = |plan: &Plan| pair.iter().all(|(name, value)| plan.is(name, value));
            Plan::draw(seed, pair).is_ok_and(|plan| has(&plan))
        })
    }

    /// The value of a dimension.
    pub fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", |value| value)
    }

    /// Whether a dimension has this value.
    pub fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == value
    }

    /// The value of a dimension as a number; 0 if it is none.
    pub fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    /// All values, by dimension.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The values that were fixed.
    pub fn fixed(&self) -> &[Fixed] {
        &self.fixed
    }

    /// The journal as text: the preset with the options that are named and go with it.
    pub fn journal(&self) -> String {
        let mut text = self.get("preset").to_owned();
        for (option, value) in self.options() {
            text.push_str(&format!(",{option}={value}"));
        }
        text
    }

    /// The journal options that are named.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let said = self.values().filter(|(_, value)| *value != UNSAID);
        said.filter_map(|(name, value)| Some((name.strip_prefix(JOURNAL)?, value)))
    }

    /// The plan without one journal option, for a volume that cannot carry it. `None`: no option is
    /// named.
    pub(super) fn with_less(&self) -> Option<Plan> {
        let options: Vec<&str> = self.options().map(|(name, _)| name).collect();
        // Lanes take space in the log.
        let lanes = options.iter().find(|name| **name == "lanes");
        let gone = format!("{JOURNAL}{}", lanes.or(options.first())?);
        let mut less = self.clone();
        less.set(&gone, UNSAID);
        less.fixed.retain(|(name, _)| *name != gone);
        less.settle(dimensions());
        Some(less)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.into(), value.into());
    }

    /// Removes values that contradict others; the earlier value stands.
    fn settle(&mut self, all: &[Dimension]) {
        if self.is("inode", "128") {
            // There is no room for either in such an inode.
            self.set("inline", "no");
            if self.is("quota", "project") {
                self.set("quota", "user");
            }
        }
        if self.is("map", "blocks") {
            self.set("width", "32");
            self.set("clusters", "one");
        }
        self.settle_journal(all);
        self.settle_place();
        self.settle_history();
        if self.is("region", "log") && self.number("block") > 16384 {
            self.set("block", "4096");
        }
        if self.is("op-create", "no") {
            // A tree without files finds nothing.
            self.set("op-create", "some");
        }
        // If the journal does not log all data, files can have theirs logged by a flag.
        let whole = self.composition().is_some_and(|j| j.data().keeps_whole());
        let atomic = !self.is("op-atomic", "no") && (whole || !self.is("op-flags", "no"));
        for (op, can) in [
            ("atomic", atomic),
            ("early", atomic),
            ("commit", atomic),
            ("abort", atomic),
            ("limit", !self.is("quota", "no")),
            ("project", self.is("quota", "project")),
        ] {
            if !can {
                self.set(&format!("{OP}{op}"), "no");
            }
        }
        if self.is("mounts", "1") {
            self.set("again", "same");
        }
        if self.is("transport", "library") && OF_SERVERS.contains(&self.get("fault")) {
            self.set("fault", "none");
        }
    }

    /// Settles an external journal, which has to be one of jbd2. mke2fs makes the orphan file only
    /// together with a journal.
    fn settle_place(&mut self) {
        if !self.is("log", "outside") {
            return;
        }
        match self.composition().is_some_and(|journal| journal.is_jbd2()) {
            true => self.set("orphans", "list"),
            false => self.set("log", "small"),
        }
    }

    /// Settles a history by the kernel, which must be able to mount and change the volume, without
    /// the long wait of multiple mount protection.
    fn settle_history(&mut self) {
        let is_kernels = self.is("history", "kernel") || self.is("history", "cut");
        let can = self.number("block") <= 4096 && self.is("quota", "no") && self.is("mmp", "no");
        if is_kernels && !(can && can_mount()) {
            self.set("history", "aged");
        }
    }

    fn settle_journal(&mut self, all: &[Dimension]) {
        if self.is("journal-chunk", "4K") && self.number("block") >= 4096 {
            // A transaction of such chunks is too small for an operation.
            self.set("journal-chunk", "64K");
        }
        let Ok(preset) = self.get("preset").parse::<Preset>() else {
            return;
        };
        let mut journal = Composition::from(preset);
        for dimension in all.iter().filter(|d| d.name.starts_with(JOURNAL)) {
            let value = self.get(&dimension.name).to_owned();
            if value == UNSAID {
                continue;
            }
            let option = &dimension.name[JOURNAL.len()..];
            match journal.with(option, &value) {
                Ok(with) => journal = with,
                Err(_) => self.set(&dimension.name, UNSAID),
            }
        }
        let needs_log = journal.is_in_region();
        match self.get("region") {
            _ if needs_log => self.set("region", "log"),
            "no" => {}
            _ if check_region(&journal).is_err() => self.set("region", "no"),
            _ => self.set("region", "small"),
        }
    }

    /// The journal's composition.
    pub fn composition(&self) -> Option<Composition> {
        let preset: Preset = self.get("preset").parse().ok()?;
        Composition::new(preset, self.options()).ok()
    }
}

impl fmt::Display for Plan {
    /// Formats the seed and the values that are not plain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![format!("seed {}", self.seed)];
        for dimension in dimensions() {
            let value = self.get(&dimension.name);
            if value != dimension.plain() {
                parts.push(format!("{}={value}", dimension.name));
            }
        }
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_plan_has_a_journal_that_makes_sense() {
        for seed in 0..300 {
            let plan = Plan::draw(seed, &[]).unwrap();
            let journal = plan.composition().unwrap_or_else(|| panic!("{plan}"));
            assert!(
                plan.is("region", "no") || check_region(&journal).is_ok(),
                "{plan}"
            );
            assert!(
                !journal.is_in_region() || plan.is("region", "log"),
                "{plan}"
            );
        }
    }

    #[test]
    fn what_is_fixed_stands_and_the_rest_stays() {
        let fixed = [("preset".to_owned(), "stet".to_owned())];
        let (free, held) = (Plan::draw(7, &[]).unwrap(), Plan::draw(7, &fixed).unwrap());
        assert_eq!(held.get("preset"), "stet");
        assert_eq!(free.get("op-create"), held.get("op-create"));
        let wrong = |name: &str, value: &str| {
            let fixed = [(name.to_owned(), value.to_owned())];
            Plan::draw(7, &fixed).unwrap_err().to_string()
        };
        assert!(wrong("preset", "warp").contains("stet"));
        assert!(wrong("warp", "no").contains("preset"));
    }
}
