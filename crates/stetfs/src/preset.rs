//! Names for combinations of journal policies (`journal=`).

use std::fmt;
use std::str::FromStr;

use stetfs_ext4::DataMode;
use stetfs_journal::LogFormat;
use stetfs_journal::stet::{Compression, StetOptions};

/// A journal preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// jbd2, data goes home before the transaction that makes it reachable (ext4's default).
    #[default]
    Ordered,
    /// jbd2, data is journaled with the metadata.
    Data,
    /// jbd2, data goes home at any time.
    Writeback,
    /// The StetFS log, data and metadata in one compressed frame and one flush a commit (LDJ, Kang's
    /// dissertation ch. 4).
    Ldj,
    /// The StetFS log, ordered data, and a record of its own for each file that is synced (iJournaling, ATC 2017).
    Ijournal,
}

/// Lanes for file-level records: one per processor, up to this.
const FILE_LANES: u16 = 8;

/// As many lanes for file-level records as there are processors, within bounds.
pub fn file_lanes() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(processors).map_or(FILE_LANES, |n| n.min(FILE_LANES))
}

impl Preset {
    /// All presets, as `journal=` names them.
    pub const ALL: [Preset; 5] = [
        Preset::Ordered,
        Preset::Data,
        Preset::Writeback,
        Preset::Ldj,
        Preset::Ijournal,
    ];

    /// The name `journal=` takes.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Ordered => "ordered",
            Preset::Data => "data",
            Preset::Writeback => "writeback",
            Preset::Ldj => "ldj",
            Preset::Ijournal => "ijournal",
        }
    }

    /// How the journal is written.
    pub fn log_format(self) -> LogFormat {
        match self {
            Preset::Ordered | Preset::Data | Preset::Writeback => LogFormat::Jbd2,
            Preset::Ldj => LogFormat::Stet(StetOptions {
                compression: Compression::Lz4,
                ..StetOptions::default()
            }),
            Preset::Ijournal => LogFormat::Stet(StetOptions {
                file_lanes: file_lanes(),
                ..StetOptions::default()
            }),
        }
    }

    /// Whether other programs can replay what a crash leaves.
    pub fn is_jbd2(self) -> bool {
        self.log_format() == LogFormat::Jbd2
    }

    /// What the journal does with file data.
    pub fn data_mode(self) -> DataMode {
        match self {
            Preset::Ordered | Preset::Ijournal => DataMode::Ordered,
            Preset::Data | Preset::Ldj => DataMode::Journal,
            Preset::Writeback => DataMode::Writeback,
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no journal preset {0:?}; the presets are ordered, data, writeback, ldj and ijournal"
)]
pub struct UnknownPreset(pub String);

impl FromStr for Preset {
    type Err = UnknownPreset;

    /// Takes the preset's name, or `journal` for [`Preset::Data`] as ext4's `data=` has it.
    fn from_str(s: &str) -> Result<Preset, UnknownPreset> {
        match s {
            "journal" => Ok(Preset::Data),
            _ => Preset::ALL
                .into_iter()
                .find(|p| p.name() == s)
                .ok_or_else(|| UnknownPreset(s.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_presets() {
        for preset in Preset::ALL {
            assert_eq!(preset.to_string().parse(), Ok(preset));
        }
        assert_eq!("journal".parse(), Ok(Preset::Data));
        let error = "fast".parse::<Preset>().map_err(|e| e.to_string());
        assert!(error.is_err_and(|e| e.contains("ordered, data, writeback, ldj and ijournal")));
    }
}
