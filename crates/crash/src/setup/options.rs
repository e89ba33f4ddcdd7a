//! The options of a [`JournalSpec`]: those of a volume's file system, and the laboratory's own.

use std::str::FromStr;

use stetfs::low::options::Value::{Flag, Text};
use stetfs::low::options::{Concern, OptionRow, Remount, VOLUME_OPTIONS, VolumeRequest, names};
use stetfs::low::options::{set, split};
use stetfs::low::{FsOptions, OnError, Preset, did_you_mean};

use super::spec::JournalSpec;
use crate::canary::{Fault, find};
use crate::volume::options;

/// The options as they were said.
struct SpecRequest {
    volume: VolumeRequest,
    canaries: Vec<&'static Fault>,
}

/// The options of volumes that a specification takes. The laboratory itself decides where a volume
/// is, and what it is opened for.
const OF_VOLUMES: &[Concern] = &[Concern::FileSystem];

/// The options of the laboratory.
static LAB_OPTIONS: &[OptionRow<SpecRequest>] = &[
    OptionRow {
        words: &[("async_commit", Flag(|o| o.volume.fs.async_commit = true))],
        default: "",
        help: "journal_async_commit",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "cache",
            Text {
                form: "MIB",
                set: set_cache,
            },
        )],
        default: "",
        help: "MiB of the cache",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("prove", Flag(|o| o.volume.fs.proves_records = true))],
        default: "",
        help: "apply each record of a file to a copy of the volume before the sync is answered",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "canary",
            Text {
                form: "NAME",
                set: set_canary,
            },
        )],
        default: "",
        help: "a deliberate fault, which the laboratory must find",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
];

fn set_cache(o: &mut SpecRequest, text: &str) -> Result<(), String> {
    let mib: Option<u64> = text.parse().ok().filter(|n| (1..=100_000).contains(n));
    let mib = mib.ok_or("cache must be a number of MiB from 1 to 100000")?;
    o.volume.cache = Some(mib << 20);
    Ok(())
}

fn set_canary(o: &mut SpecRequest, name: &str) -> Result<(), String> {
    o.canaries.push(find(name)?);
    o.volume.fs.proves_records = false;
    Ok(())
}

/// The options as help and messages list them.
pub fn usages() -> String {
    let of_volumes = VOLUME_OPTIONS.iter().filter(|row| {
        OF_VOLUMES.contains(&row.concern) && row.words.iter().all(|(name, _)| *name != "cache")
    });
    let usages = LAB_OPTIONS.iter().map(OptionRow::usage);
    let usages: Vec<_> = of_volumes.map(OptionRow::usage).chain(usages).collect();
    format!(
        "{}, and the journal's options (`stetfs mount --help` tells of them all; errors=panic is \
         refused here; `stetfs crash canaries --list` names the deliberate faults that the lab must \
         find)",
        usages.join(", ")
    )
}

impl SpecRequest {
    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = split(option);
        let of_lab = set(LAB_OPTIONS, self, name, value);
        let done = of_lab.or_else(|| self.volume.set(OF_VOLUMES, name, value));
        done.unwrap_or_else(|| {
            let known = names(LAB_OPTIONS).chain(VolumeRequest::names(OF_VOLUMES));
            Err(format!(
                "there is no journal option {option:?}{}; there are {}",
                did_you_mean(name, known),
                usages()
            ))
        })?;
        match self.volume.fs.on_error {
            Some(OnError::Panic) => {
                Err("errors must be continue or remount-ro: panic ends the laboratory".into())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for JournalSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<JournalSpec, String> {
        JournalSpec::read(text, &options)
    }
}

impl JournalSpec {
    /// Reads `PRESET[,option…]`. Options that `text` does not name are as in `defaults`.
    ///
    /// # Errors
    /// A text that names the wrong part of `text` and the possible ones.
    pub fn read(text: &str, defaults: &dyn Fn(Preset) -> FsOptions) -> Result<JournalSpec, String> {
        let mut parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        let name = parts.next().unwrap_or_default();
        let preset: Preset = name.parse().map_err(|e| format!("{e}"))?;
        let mut spec = JournalSpec::of(preset);
        let mut request = SpecRequest {
            volume: VolumeRequest {
                fs: defaults(preset),
                preset: Some(preset),
                ..VolumeRequest::default()
            },
            canaries: Vec::new(),
        };
        for part in parts {
            request.set(part)?;
            spec.text = format!("{},{part}", spec.text);
        }
        spec.options = request.volume.fs_options(request.volume.composition()?);
        for canary in request.canaries {
            (canary.set)(&mut spec);
        }
        Ok(spec)
    }
}
