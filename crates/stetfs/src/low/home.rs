//! The method by which checkpoints write logged blocks to their home locations, and the reason for
//! it.

use serde::Serialize;
use stetfs_journal::Composition;
use stetfs_journal::compose::Axis;

use super::part::OpenDisk;

/// The method by which checkpoints write logged blocks to their home locations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HomeInfo {
    /// `share` or `copy`.
    pub by: &'static str,
    /// The layer that shares the blocks, or the reason why they are copied.
    pub why: String,
}

impl HomeInfo {
    fn copy(why: impl Into<String>) -> HomeInfo {
        HomeInfo {
            by: "copy",
            why: why.into(),
        }
    }

    /// The method that results from `home=` of a journal, on this disk with blocks of `block`
    /// bytes.
    pub(super) fn of(
        journal: &Composition,
        disk: &OpenDisk,
        is_journal_elsewhere: bool,
        block: u32,
    ) -> HomeInfo {
        match journal.part(Axis::Home).name {
            "share" => HomeInfo::of_sharing(disk, is_journal_elsewhere, block),
            _ => HomeInfo::copy("home=share is not set"),
        }
    }

    /// The method that results from `home=share`, on this disk with blocks of `block` bytes.
    pub(super) fn of_sharing(disk: &OpenDisk, is_journal_elsewhere: bool, block: u32) -> HomeInfo {
        if is_journal_elsewhere {
            return HomeInfo::copy("the journal is on another device");
        }
        let shared = match disk.host.sharing() {
            Ok(shared) => shared,
            Err(why) => return HomeInfo::copy(why),
        };
        let unit = shared.unit.max(1);
        let start = disk.span.map_or(0, |span| span.start);
        if !block.is_multiple_of(unit) {
            return HomeInfo::copy(format!(
                "blocks of {block} bytes are smaller than the unit of sharing ({unit} bytes)"
            ));
        }
        if !start.is_multiple_of(unit.into()) {
            return HomeInfo::copy(format!(
                "the part of the image begins at byte {start}, not a multiple of the unit of \
                 sharing ({unit} bytes)"
            ));
        }
        HomeInfo {
            by: "share",
            why: format!("by {}, in units of {unit} bytes", shared.who),
        }
    }
}
