//! Presets: names for compositions.

use std::fmt;
use std::str::FromStr;

use super::part::{DataMode, listed};
use super::{Bad, Composition, did_you_mean};
use crate::jbd2::CUSTOM;

/// The definition of a preset.
#[derive(Debug)]
pub struct PresetDef {
    /// The name that `journal=` takes.
    pub name: &'static str,
    /// The description, in one line.
    pub help: &'static str,
    /// The position in lists.
    pub rank: u32,
    /// The composition: options and their values, as a user would write them.
    pub set: &'static [(&'static str, &'static str)],
}

/// A preset: a name for a composition.
#[derive(Clone, Copy)]
pub struct Preset(pub &'static PresetDef);

/// All registered presets: each scheme's folder adds its own.
#[linkme::distributed_slice]
pub static PRESETS: [PresetDef];

impl Preset {
    /// All presets.
    pub fn all() -> Vec<Preset> {
        let mut all: Vec<Preset> = PRESETS.iter().map(Preset).collect();
        all.sort_unstable_by_key(|p| (p.0.rank, p.0.name));
        all
    }

    /// The presets whose log is on a device: they need no region of persistent memory.
    pub fn on_a_device() -> Vec<Preset> {
        let mut presets = Preset::all();
        presets.retain(|preset| !preset.composition().is_in_region());
        presets
    }

    /// The name that `journal=` takes.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The description, in one line.
    pub fn help(self) -> &'static str {
        self.0.help
    }

    /// The preset's composition, with no further options.
    pub fn composition(self) -> Composition {
        Composition::from(self)
    }

    /// Whether other programs can replay what a crash leaves.
    pub fn is_jbd2(self) -> bool {
        self.composition().is_jbd2()
    }

    /// The preset's mode for file data.
    pub fn data_mode(self) -> DataMode {
        self.composition().data()
    }
}

impl Default for Preset {
    fn default() -> Preset {
        crate::jbd2::ORDERED
    }
}

impl PartialEq for Preset {
    fn eq(&self, other: &Preset) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Preset {}

impl fmt::Debug for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = Bad;

    /// Parses a preset's name; `journal` stands for `data`, as in ext4's `data=`.
    fn from_str(text: &str) -> Result<Preset, Bad> {
        let name = if text == "journal" { "data" } else { text };
        if name == CUSTOM.name() {
            return Ok(CUSTOM);
        }
        let all = Preset::all();
        all.iter()
            .find(|p| p.name() == name)
            .copied()
            .ok_or_else(|| {
                let names = all.iter().chain([&CUSTOM]);
                let names: Vec<&str> = names.map(|p| p.name()).collect();
                let meant = did_you_mean(text, names.iter().copied());
                let names = listed(&names, "and");
                Bad(format!(
                    "there is no journal preset {text:?}; the presets are {names}{meant}"
                ))
            })
    }
}
