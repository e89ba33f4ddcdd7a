//! What journals as the kernel's are made of.

// What registers itself is put into a section of its own, which linkme sees to.
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
    "it goes home before the transaction that makes it reachable",
    Make::Data(DataMode::Ordered),
);

#[linkme::distributed_slice(PARTS)]
static DATA_JOURNAL: Part = part(
    "journal",
    "it is journaled with the metadata",
    Make::Data(DataMode::Journal),
);

#[linkme::distributed_slice(PARTS)]
static DATA_OVERWRITES: Part = part(
    "overwrites",
    "what is overwritten is journaled; new blocks go home first, as with ordered",
    Make::Data(DataMode::Overwrites),
);

#[linkme::distributed_slice(PARTS)]
static DATA_WRITEBACK: Part = part(
    "writeback",
    "it goes home at any time",
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
    "one transaction at a time takes all of them",
    Make::Order(|_| Box::new(OneLane)),
);

#[linkme::distributed_slice(PARTS)]
static RING: Part = part("ring", "in the volume's journal", Make::Medium);

#[linkme::distributed_slice(PARTS)]
static COPY: Part = part(
    "copy",
    "they are written there",
    Make::Home(|_| Box::new(CopyHome)),
);

#[linkme::distributed_slice(PARTS)]
static COMPOUND: Part = part(
    "compound",
    "a commit of all that changed",
    Make::Sync { records: false },
);

#[linkme::distributed_slice(PRESETS)]
static ORDERED_DEF: PresetDef = PresetDef {
    name: "ordered",
    help: "the kernel's default: metadata is journaled, data goes home first",
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
    help: "the kernel's data=writeback: data goes home at any time",
    rank: 30,
    set: &[("data", "writeback"), ("codec", "jbd2")],
};

static CUSTOM_DEF: PresetDef = PresetDef {
    name: "custom",
    help: "what the options say; as `ordered` where they say nothing",
    rank: 1000,
    set: &[],
};

/// jbd2, data goes home before the transaction that makes it reachable (ext4's default).
pub const ORDERED: Preset = Preset(&ORDERED_DEF);
/// jbd2, data is journaled with the metadata.
pub const DATA: Preset = Preset(&DATA_DEF);
/// jbd2, data goes home at any time.
pub const WRITEBACK: Preset = Preset(&WRITEBACK_DEF);
/// Whatever options say.
pub const CUSTOM: Preset = Preset(&CUSTOM_DEF);
