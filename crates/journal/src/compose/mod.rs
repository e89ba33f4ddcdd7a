//! The composition of a journal (architecture, "The seam"): for each [`Axis`] a [`Part`], with
//! options of its own. A [`Preset`] is a name for a composition.
//!
//! Parts and presets register themselves in the module or crate that has them ([`PARTS`],
//! [`PRESETS`]). All code that takes, shows or explains journal options reads them from here.

mod help;
mod nearest;
mod part;
mod preset;
pub mod size;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

pub use help::{OptionHelp, options_help};
pub use nearest::{did_you_mean, nearest};
pub use part::{Ability, Axis, DataMode, Make, OptionDef, PARTS, Part, between, one_of};
pub use preset::{PRESETS, Preset, PresetDef};

use crate::log::LogFormat;
use crate::policy::{Home, Ordering};
use part::listed;

/// A composition that is not possible, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Bad(pub String);

/// A journal's parts and options.
#[derive(Clone, PartialEq, Eq)]
pub struct Composition {
    preset: Preset,
    /// The options that the user gave, with their values.
    said: BTreeMap<&'static str, String>,
    /// The parts that the given options need, in place of the preset's.
    implied: BTreeMap<&'static str, &'static str>,
    /// The resulting mode for file data, stored because it is read often.
    data: DataMode,
}

impl From<Preset> for Composition {
    fn from(preset: Preset) -> Composition {
        let mut new = Composition::unsettled(preset);
        // A test checks all presets.
        let settled = new.settle();
        debug_assert!(settled.is_ok(), "{preset}: {settled:?}");
        new.with_data()
    }
}

/// A jbd2 journal with this mode for file data.
impl From<DataMode> for Composition {
    fn from(mode: DataMode) -> Composition {
        let mut new = Composition::from(match mode {
            DataMode::Ordered => crate::jbd2::ORDERED,
            DataMode::Journal | DataMode::Overwrites => crate::jbd2::DATA,
            DataMode::Writeback => crate::jbd2::WRITEBACK,
        });
        if mode == DataMode::Overwrites {
            new.said.insert(Axis::Data.name(), "overwrites".into());
        }
        new.with_data()
    }
}

impl Default for Composition {
    fn default() -> Composition {
        Preset::default().into()
    }
}

/// Whether there is a journal option of this name.
pub fn is_option(name: &str) -> bool {
    find(name).is_some()
}

/// The names of all journal options.
pub fn option_names() -> impl Iterator<Item = &'static str> {
    let of_parts = PARTS.iter().flat_map(|p| p.options).map(|o| o.name);
    Axis::ALL.into_iter().map(Axis::name).chain(of_parts)
}

/// Checks that an option exists and can have this value, regardless of other options.
///
/// # Errors
/// The reason why not.
pub fn check_option(name: &str, value: &str) -> Result<(), Bad> {
    Composition::unsettled(Preset::default()).say(name, value)
}

/// An option: an axis, or an option of a part.
enum Found {
    Axis(Axis),
    Of(&'static OptionDef),
}

/// Whether a preset names this part. Where several parts take an option, it implies such a one.
fn is_of_a_preset(part: &Part) -> bool {
    let named = (part.axis().name(), part.name);
    PRESETS.iter().any(|preset| preset.set.contains(&named))
}

fn find(name: &str) -> Option<Found> {
    let axis = Axis::ALL.into_iter().find(|a| a.name() == name);
    let of_part = || {
        PARTS
            .iter()
            .flat_map(|p| p.options)
            .find(|o| o.name == name)
    };
    axis.map(Found::Axis).or_else(|| of_part().map(Found::Of))
}

impl Composition {
    /// The preset with these options and values; later ones replace earlier ones.
    ///
    /// # Errors
    /// The reason: an option or value that does not exist, or a composition that is not possible.
    pub fn new<'a>(
        preset: Preset,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Composition, Bad> {
        let mut new = Composition::unsettled(preset);
        for (name, value) in options {
            new.say(name, value)?;
        }
        new.settle()?;
        Ok(new.with_data())
    }

    fn unsettled(preset: Preset) -> Composition {
        Composition {
            preset,
            said: BTreeMap::new(),
            implied: BTreeMap::new(),
            data: DataMode::default(),
        }
    }

    /// The same composition with one more option.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(&self, name: &str, value: &str) -> Result<Composition, Bad> {
        let said = self
            .said
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        Composition::new(self.preset, said.chain([(name, value)]))
    }

    fn say(&mut self, name: &str, value: &str) -> Result<(), Bad> {
        let name = match find(name) {
            None => {
                let meant = did_you_mean(name, option_names());
                return Err(Bad(format!("there is no journal option {name:?}{meant}")));
            }
            Some(Found::Axis(axis)) => {
                let parts = Part::of(axis);
                if !parts.iter().any(|p| p.name == value) {
                    let names: Vec<&str> = parts.iter().map(|p| p.name).collect();
                    let meant = did_you_mean(value, names.iter().copied());
                    let names = listed(&names, "or");
                    return Err(Bad(format!("{axis} must be {names}{meant}")));
                }
                axis.name()
            }
            Some(Found::Of(option)) => {
                (option.check)(value).map_err(|why| Bad(format!("{name} {why}")))?;
                option.name
            }
        };
        self.said.insert(name, value.to_owned());
        Ok(())
    }

    /// Implies the parts that given options need, on axes for which the user gave none.
    fn settle(&mut self) -> Result<(), Bad> {
        for name in self.said.keys().copied().collect::<Vec<_>>() {
            let Some(Found::Of(option)) = find(name) else {
                continue;
            };
            let takes = |part: &Part| part.options.iter().any(|o| o.name == option.name);
            if Axis::ALL.iter().any(|axis| takes(self.part(*axis))) {
                continue;
            }
            let mut with: Vec<&Part> = PARTS.iter().filter(|p| takes(p)).collect();
            if with.iter().any(|part| is_of_a_preset(part)) {
                with.retain(|part| is_of_a_preset(part));
            }
            let [part] = with[..] else {
                let names: Vec<String> = with.iter().map(ToString::to_string).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                return Err(Bad(format!("{name} needs {}", listed(&names, "or"))));
            };
            self.imply(part, name)?;
        }
        for axis in Axis::ALL {
            let part = self.part(axis);
            for ability in part.needs.iter() {
                if self.offers(ability) {
                    continue;
                }
                // A part that needs a region is taken only if the user asks for it.
                let able = PARTS.iter().filter(|p| p.offers.contains(ability));
                match able.min_by_key(|p| p.needs.contains(Ability::IN_REGION)) {
                    Some(able) => self.imply(able, &part.to_string())?,
                    None => return Err(Bad(format!("{part} needs {ability}"))),
                }
            }
        }
        self.check_records()
    }

    /// Refuses records of files together with lanes. A record ends when every transaction that was
    /// open beside it is valid. If lanes commit by themselves, one can be valid that holds newer
    /// changes of the file while the record is still alive: a recovery would overwrite them with
    /// older ones.
    fn check_records(&self) -> Result<(), Bad> {
        let (order, sync) = (self.part(Axis::Order), self.part(Axis::Sync));
        match self.has_records() && order.needs.contains(Ability::LANES) {
            true => Err(Bad(format!("{sync} needs order=one, not {order}"))),
            false => Ok(()),
        }
    }

    fn offers(&self, ability: Ability) -> bool {
        Axis::ALL
            .iter()
            .any(|axis| self.part(*axis).offers.contains(ability))
    }

    fn imply(&mut self, part: &'static Part, by: &str) -> Result<(), Bad> {
        let axis = part.axis();
        if let Some(other) = self.said.get(axis.name()) {
            return Err(Bad(format!("{by} needs {part}, not {axis}={other}")));
        }
        if let Some(other) = self.implied.insert(axis.name(), part.name)
            && other != part.name
        {
            return Err(Bad(format!(
                "{by} needs {part}, but {axis}={other} is needed, too"
            )));
        }
        Ok(())
    }

    /// The given parts that replace parts of the preset: each with the preset's part.
    pub fn replaced(&self) -> Vec<(&'static Part, &'static Part)> {
        let preset = Composition::unsettled(self.preset);
        Axis::ALL
            .into_iter()
            .filter(|axis| self.said.contains_key(axis.name()))
            .filter(|axis| {
                let mut named = self.preset.0.set.iter();
                named.any(|(name, _)| *name == axis.name())
            })
            .map(|axis| (self.part(axis), preset.part(axis)))
            .filter(|(said, of_preset)| said.name != of_preset.name)
            .collect()
    }

    /// The preset that the composition is based on.
    pub fn preset(&self) -> Preset {
        self.preset
    }

    /// The value of an option: given by the user, implied by that, or set by the preset.
    pub fn value(&self, option: &str) -> Option<&str> {
        let said = self.said.get(option).map(String::as_str);
        let implied = || self.implied.get(option).copied();
        let of_preset = || {
            let set = self.preset.0.set.iter();
            set.rev()
                .find(|(name, _)| *name == option)
                .map(|(_, value)| *value)
        };
        said.or_else(implied).or_else(of_preset)
    }

    /// The value of an option as a number.
    pub fn number(&self, option: &str) -> Option<u64> {
        self.value(option)?.parse().ok()
    }

    /// The part on an axis.
    pub fn part(&self, axis: Axis) -> &'static Part {
        let name = self.value(axis.name()).unwrap_or(match axis {
            Axis::Data => "ordered",
            Axis::Codec => "jbd2",
            Axis::Order => "one",
            Axis::Medium => "ring",
            Axis::Home => "copy",
            Axis::Sync => "compound",
        });
        let named = |p: &&Part| p.axis() == axis && p.name == name;
        PARTS.iter().find(named).unwrap_or(&NOBODY)
    }

    fn with_data(mut self) -> Composition {
        if let Make::Data(mode) = self.part(Axis::Data).make {
            self.data = mode;
        }
        self
    }

    /// The mode for file data.
    pub fn data(&self) -> DataMode {
        self.data
    }

    /// Whether files are synced by records of their own.
    pub fn has_records(&self) -> bool {
        matches!(self.part(Axis::Sync).make, Make::Sync { records: true })
    }

    /// Whether the log is in a region of persistent memory, so that the journal needs one.
    pub fn is_in_region(&self) -> bool {
        self.part(Axis::Medium).offers.contains(Ability::IN_REGION)
    }

    /// The same composition, but files are synced by commits.
    pub fn without_records(mut self) -> Composition {
        self.said.retain(|name, _| *name != "records");
        self.said.insert(Axis::Sync.name(), "compound".into());
        self
    }

    /// The default preset with the home policy of this composition: it serves to replay a log of
    /// any format.
    pub fn way_home(&self) -> Composition {
        let home = self.part(Axis::Home).name.to_owned();
        let mut new = Composition::default();
        new.said.insert(Axis::Home.name(), home);
        new
    }

    /// The format of the log.
    pub fn format(&self) -> &'static dyn LogFormat {
        match self.part(Axis::Codec).make {
            Make::Codec(format) => format,
            _ => &crate::jbd2::Jbd2Format,
        }
    }

    /// Whether other programs can replay what a crash leaves.
    pub fn is_jbd2(&self) -> bool {
        self.part(Axis::Codec)
            .offers
            .contains(Ability::REPLAYED_BY_OTHERS)
    }

    /// The ordering policy.
    pub fn ordering(&self) -> Box<dyn Ordering> {
        match self.part(Axis::Order).make {
            Make::Order(make) => make(self),
            _ => Box::new(crate::policy::OneLane),
        }
    }

    /// The home policy.
    pub fn home(&self) -> Box<dyn Home> {
        match self.part(Axis::Home).make {
            Make::Home(make) => make(self),
            _ => Box::new(crate::policy::CopyHome),
        }
    }
}

/// A placeholder for a part that a preset names and that is not registered.
static NOBODY: Part = Part {
    name: "none",
    help: "",
    options: &[],
    offers: Ability::empty(),
    needs: Ability::empty(),
    make: Make::Medium,
};

impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.preset)?;
        self.said
            .iter()
            .try_for_each(|(name, value)| write!(f, ",{name}={value}"))
    }
}

impl fmt::Debug for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Composition {
    type Err = Bad;

    /// Parses `PRESET[,OPTION=VALUE…]`.
    fn from_str(text: &str) -> Result<Composition, Bad> {
        let mut words = text.split(',').map(str::trim);
        let preset = words.next().unwrap_or_default().parse()?;
        let options: Result<Vec<_>, Bad> = words
            .map(|word| {
                word.split_once('=')
                    .ok_or_else(|| Bad(format!("there is no journal option {word:?}")))
            })
            .collect();
        Composition::new(preset, options?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<String, String> {
        let journal: Composition = text.parse().map_err(|Bad(why)| why)?;
        let all: Vec<&str> = Axis::ALL.iter().map(|a| journal.part(*a).name).collect();
        Ok(all.join(" "))
    }

    #[test]
    fn presets_are_names_for_parts() {
        assert_eq!(
            parts("ordered").unwrap(),
            "ordered jbd2 one ring copy compound"
        );
        assert_eq!(
            parts("data").unwrap(),
            "journal jbd2 one ring copy compound"
        );
        assert_eq!(
            parts("ldj").unwrap(),
            "journal frames one ring copy compound"
        );
        assert_eq!(
            parts("ijournal").unwrap(),
            "ordered frames one ring copy file"
        );
        assert_eq!(
            parts("custom,codec=frames,sync=file").unwrap(),
            parts("ijournal").unwrap()
        );
        for part in PARTS {
            let of_its_name = Part::of(part.axis())
                .iter()
                .filter(|p| p.name == part.name)
                .count();
            assert_eq!(of_its_name, 1, "{part}");
        }
        for preset in Preset::all() {
            let journal = preset.composition();
            for (name, value) in preset.0.set {
                assert!(
                    journal.clone().with(name, value).is_ok(),
                    "{preset}: {name}={value}"
                );
            }
            for axis in Axis::ALL {
                assert_ne!(journal.part(axis).name, NOBODY.name, "{preset}: {axis}");
            }
            assert_eq!(preset.name().parse(), Ok(journal));
        }
    }

    #[test]
    fn what_is_said_brings_what_it_needs() {
        assert_eq!(
            parts("ordered,compress=lz4").unwrap(),
            "ordered frames one ring copy compound"
        );
        assert_eq!(
            parts("ordered,sync=file").unwrap(),
            "ordered frames one ring copy file"
        );
        assert_eq!(
            parts("ordered,records=2").unwrap(),
            "ordered frames one ring copy file"
        );
        assert_eq!(
            parts("ldj,data=ordered").unwrap(),
            "ordered frames one ring copy compound"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        let why = |text: &str| parts(text).unwrap_err();
        assert!(why("fast").contains("the presets are ordered, data, writeback, ldj"));
        assert!(why("ordered,speed=9").contains("no journal option \"speed\""));
        assert!(why("ordered,warp").contains("no journal option \"warp\""));
        assert!(why("ordered,codec=zip").contains("codec must be changes, frames or jbd2"));
        assert!(why("ldj,compress=zip").contains("none, lz4, zstd or auto"));
        assert!(why("ldj,chunk=1").contains("from 4K"));
        assert_eq!(
            why("custom,codec=jbd2,sync=file"),
            "sync=file needs codec=frames, not codec=jbd2"
        );
        assert_eq!(
            why("custom,codec=jbd2,compress=lz4"),
            "compress needs codec=frames, not codec=jbd2"
        );
        assert_eq!(
            why("ijournal,sync=compound,records=2"),
            "records needs sync=file, not sync=compound"
        );
    }

    /// A part that needs a region is taken only if the user asks for it.
    #[test]
    fn a_log_in_a_region_is_asked_for() {
        let is_in_region = |text: &str| {
            let journal: Composition = text.parse().unwrap();
            journal.is_in_region()
        };
        for text in [
            "nvm",
            "ordered,codec=changes",
            "ijournal,medium=region,codec=changes",
        ] {
            assert!(is_in_region(text), "{text}");
        }
        for text in ["ijournal", "ordered,sync=file", "ordered,records=2"] {
            assert!(!is_in_region(text), "{text}");
        }
        assert!(
            is_in_region("ordered,medium=region"),
            "its codec comes with it"
        );
        let why = |text: &str| parts(text).unwrap_err();
        let frames = why("ordered,medium=region,codec=frames");
        assert!(
            frames.contains("needs codec=changes, not codec=frames"),
            "{frames}"
        );
        let lanes = why("nvm,medium=ring");
        assert!(lanes.contains("needs medium=region"), "{lanes}");
    }

    #[test]
    fn what_takes_the_place_of_a_presets_part_is_known() {
        let replaced = |text: &str| {
            let journal: Composition = text.parse().unwrap();
            let all = journal.replaced();
            all.iter()
                .map(|(said, of)| format!("{said} for {of}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(replaced("ldj,codec=jbd2"), ["codec=jbd2 for codec=frames"]);
        assert_eq!(
            replaced("ijournal,data=journal"),
            ["data=journal for data=ordered"]
        );
        assert!(replaced("ldj,data=journal,compress=zstd").is_empty());
        assert!(replaced("data,sync=file").is_empty());
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in [
            "ordered",
            "ldj,chunk=65536,compress=zstd",
            "ijournal,records=3",
        ] {
            let journal: Composition = text.parse().unwrap();
            assert_eq!(journal.to_string(), text);
        }
        let ldj: Composition = "ldj,compress=none,compress=auto".parse().unwrap();
        assert_eq!(ldj.value("compress"), Some("auto"));
        assert!(
            !"ijournal"
                .parse::<Composition>()
                .unwrap()
                .without_records()
                .has_records()
        );
    }
}
