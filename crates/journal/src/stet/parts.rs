//! The registration of the parts and presets with the StetFS log.

// Registered parts are placed in a linker section by linkme, which takes `unsafe` code.
#![allow(unsafe_code)]

use super::compress::Compression;
use super::log::StetFormat;
use super::options::StetOptions;
use super::trim::Trim;
use crate::compose::{
    Ability, Composition, DataMode, Make, OptionDef, PARTS, PRESETS, Part, Preset, PresetDef,
    between, one_of, size,
};
use crate::policy::WORD;

#[linkme::distributed_slice(PARTS)]
static CODEC: Part = Part {
    name: "frames",
    help: "StetFS's own log, one flush a commit; while mounted, and after a crash until it is recovered, other \
           programs refuse the volume",
    options: &[
        OptionDef {
            name: "compress",
            values: "none|lz4|zstd|auto",
            help: "how the log is compressed (none; with ldj lz4)",
            check: |value| value.parse::<Compression>().map(drop),
        },
        OptionDef {
            name: "chunk",
            values: "SIZE",
            help: "bytes compressed at once (128K)",
            check: |value| size::chunk(value).map(drop),
        },
        OptionDef {
            name: "trim",
            values: "off|discard|zero",
            help: "what is done with log space that is free again (off)",
            check: |value| one_of(&["off", "discard", "zero"], value),
        },
    ],
    offers: Ability::LANES.union(Ability::RECORDS),
    needs: Ability::empty(),
    make: Make::Codec(&StetFormat),
};

#[linkme::distributed_slice(PARTS)]
static CHANGES: Part = Part {
    name: "changes",
    help: "logs only the changes of each block; other programs refuse the volume as with frames",
    options: &[OptionDef {
        name: "unit",
        values: "8|64|256|block",
        help: "granularity of logged changes in bytes: a word, a line, an inode, a block (8)",
        check: |value| one_of(&["8", "64", "256", "block"], value),
    }],
    offers: Ability::RECORDS.union(Ability::CHANGES),
    needs: Ability::IN_REGION,
    make: Make::Codec(&StetFormat),
};

#[linkme::distributed_slice(PARTS)]
static REGION: Part = Part {
    name: "region",
    help: "in a region of persistent memory (nvm=PATH): a commit waits for no device",
    options: &[],
    offers: Ability::IN_REGION,
    needs: Ability::CHANGES,
    make: Make::Medium,
};

#[linkme::distributed_slice(PARTS)]
static FILE: Part = Part {
    name: "file",
    help: "a record of the file, so that a sync waits for no other",
    options: &[OptionDef {
        name: "records",
        values: "N",
        help: "lanes for file records (the processors, at most 8)",
        check: |value| between(1, 64, value),
    }],
    offers: Ability::empty(),
    needs: Ability::RECORDS,
    make: Make::Sync { records: true },
};

#[linkme::distributed_slice(PRESETS)]
static LDJ_DEF: PresetDef = PresetDef {
    name: "ldj",
    help: "data and metadata in one compressed frame and one flush a commit",
    rank: 40,
    set: &[
        ("data", "journal"),
        ("codec", "frames"),
        ("compress", "lz4"),
    ],
};

#[linkme::distributed_slice(PRESETS)]
static IJOURNAL_DEF: PresetDef = PresetDef {
    name: "ijournal",
    help: "as ordered, with a record of its own for each file that is synced",
    rank: 50,
    set: &[("data", "ordered"), ("codec", "frames"), ("sync", "file")],
};

#[linkme::distributed_slice(PRESETS)]
static STET_DEF: PresetDef = PresetDef {
    name: "stet",
    help: "as ldj, with a record of its own, data included, for each file that is synced",
    rank: 55,
    set: &[
        ("data", "overwrites"),
        ("codec", "frames"),
        ("compress", "lz4"),
        ("sync", "file"),
    ],
};

#[linkme::distributed_slice(PRESETS)]
static NVM_DEF: PresetDef = PresetDef {
    name: "nvm",
    help: "as ijournal, with the whole log in persistent memory (nvm=PATH): only the changes of \
         each block",
    rank: 80,
    set: &[
        ("data", "ordered"),
        ("codec", "changes"),
        ("medium", "region"),
        ("sync", "file"),
    ],
};

/// The StetFS log, data and metadata in one compressed frame and one flush a commit (LDJ, Kang's
/// dissertation ch. 4).
pub const LDJ: Preset = Preset(&LDJ_DEF);
/// The StetFS log, ordered data, and a record of its own for each file that is synced (iJournaling,
/// ATC 2017).
pub const IJOURNAL: Preset = Preset(&IJOURNAL_DEF);
/// LDJ's log with iJournaling's records: a synced file takes one write and one flush, whatever
/// other threads write.
pub const STET: Preset = Preset(&STET_DEF);
/// Transactions as changed bytes, and records of files, both in persistent memory (after Han, KCA
/// 2020).
pub const NVM: Preset = Preset(&NVM_DEF);

/// The blocks that the largest of the usual operations on names changes: making a directory when
/// two blocks of the parent's index are split.
const OPERATION: u64 = 82;
/// The bytes that one write changes at once. If data goes through the log, one lane must hold all
/// of them.
const WRITE: u64 = 1 << 20;

/// The most lanes for records of files by default; up to that there is one per processor.
const RECORD_LANES: u16 = 8;

fn record_lanes() -> u16 {
    u16::try_from(stetfs_sync::processors()).map_or(RECORD_LANES, |n| n.min(RECORD_LANES))
}

impl StetOptions {
    /// The options of a composition for a log in blocks of `block` bytes.
    pub fn of(journal: &Composition, block: u32) -> StetOptions {
        let defaults = StetOptions::default();
        let number = |option| journal.number(option).and_then(|n| u16::try_from(n).ok());
        let ordering = journal.ordering();
        let written = match journal.data() {
            // A write may begin and end within a block.
            DataMode::Journal | DataMode::Overwrites => WRITE / u64::from(block.max(1)) + 1,
            DataMode::Ordered | DataMode::Writeback => 0,
        };
        StetOptions {
            lanes: ordering.lanes(),
            least: OPERATION,
            most: OPERATION + written,
            fewer: ordering.may_be_fewer(),
            compression: parsed(journal, "compress").unwrap_or(defaults.compression),
            chunk: journal
                .value("chunk")
                .and_then(|v| size::chunk(v).ok())
                .unwrap_or(defaults.chunk),
            trim: parsed::<Trim>(journal, "trim").unwrap_or(defaults.trim),
            changes: journal.is_in_region().then(|| change_unit(journal, block)),
            file_lanes: match journal.has_records() {
                true => number("records").unwrap_or_else(record_lanes),
                false => 0,
            },
        }
    }
}

/// The unit of logged changes, in bytes, for blocks of `block` bytes.
fn change_unit(journal: &Composition, block: u32) -> usize {
    match journal.value("unit") {
        Some("block") => block as usize,
        Some(unit) => unit.parse().unwrap_or(WORD),
        None => WORD,
    }
}

fn parsed<T: std::str::FromStr>(journal: &Composition, option: &str) -> Option<T> {
    journal.value(option)?.parse().ok()
}
