//! The registration of the parts and presets of jbd2 journals.

// Registered parts are placed in a linker section by linkme, which takes `unsafe` code.
#![allow(unsafe_code)]

use super::log::Jbd2Format;
use crate::compose::{Ability, DataMode, Make, PARTS, PRESETS, Part, Preset, PresetDef};
use crate::policy::{CopyHome, OneLane};

const NONE: Ability = Ability::empty();

const fn part(name: &'static str, help: &'static str, make: Make) -> Part {
    Part {
        name,
        help,
        options: &[],
        offers: NONE,
        needs: NONE,
        make,
    }
}

#[linkme::distributed_slice(PARTS)]
static DATA_ORDERED: Part = part(
    "ordered",
    "data is written to its home location before the transaction that makes it reachable",
    Make::Data(DataMode::Ordered),
);

#[linkme::distributed_slice(PARTS)]
static DATA_JOURNAL: Part = part(
    "journal",
    "data is journaled with the metadata",
    Make::Data(DataMode::Journal),
);

#[linkme::distributed_slice(PARTS)]
static DATA_OVERWRITES: Part = part(
    "overwrites",
    "overwritten data is journaled; new blocks are written first, as with ordered",
    Make::Data(DataMode::Overwrites),
);

#[linkme::distributed_slice(PARTS)]
static DATA_WRITEBACK: Part = part(
    "writeback",
    "data is written to its home location at any time",
    Make::Data(DataMode::Writeback),
);

#[linkme::distributed_slice(PARTS)]
static CODEC: Part = Part {
    offers: Ability::REPLAYED_BY_OTHERS,
    ..part(
        "jbd2",
        "as the kernel writes it; the kernel and e2fsck replay it",
        Make::Codec(&Jbd2Format),
    )
};

#[linkme::distributed_slice(PARTS)]
static ONE: Part = part(
    "one",
    "one running transaction takes all changes",
    Make::Order(|_| Box::new(OneLane)),
);

#[linkme::distributed_slice(PARTS)]
static RING: Part = part("ring", "in the volume's journal", Make::Medium);

#[linkme::distributed_slice(PARTS)]
static COPY: Part = part(
    "copy",
    "blocks are written to their home locations",
    Make::Home(|_| Box::new(CopyHome)),
);

#[linkme::distributed_slice(PARTS)]
static COMPOUND: Part = part(
    "compound",
    "a commit of all changes",
    Make::Sync { records: false },
);

#[linkme::distributed_slice(PRESETS)]
static ORDERED_DEF: PresetDef = PresetDef {
    name: "ordered",
    help: "the kernel's default: metadata is journaled, data is written first",
    rank: 10,
    set: &[("data", "ordered"), ("codec", "jbd2")],
};

#[linkme::distributed_slice(PRESETS)]
static DATA_DEF: PresetDef = PresetDef {
    name: "data",
    help: "the kernel's data=journal: data is journaled with the metadata",
    rank: 20,
    set: &[("data", "journal"), ("codec", "jbd2")],
};

#[linkme::distributed_slice(PRESETS)]
static WRITEBACK_DEF: PresetDef = PresetDef {
    name: "writeback",
    help: "the kernel's data=writeback: data is written at any time",
    rank: 30,
    set: &[("data", "writeback"), ("codec", "jbd2")],
};

static CUSTOM_DEF: PresetDef = PresetDef {
    name: "custom",
    help: "set by options; as `ordered` for the rest",
    rank: 1000,
    set: &[],
};

/// jbd2; data is written home before the transaction that makes it reachable (ext4's default).
pub const ORDERED: Preset = Preset(&ORDERED_DEF);
/// jbd2; data is journaled with the metadata.
pub const DATA: Preset = Preset(&DATA_DEF);
/// jbd2; data is written home at any time.
pub const WRITEBACK: Preset = Preset(&WRITEBACK_DEF);
/// The preset that is made up of options; as `ordered` for axes without one.
pub const CUSTOM: Preset = Preset(&CUSTOM_DEF);
