//! How checkpoints bring logged blocks to their homes, and why so.

use serde::Serialize;
use stetfs_journal::Composition;
use stetfs_journal::compose::Axis;

use super::part::OpenDisk;

/// How checkpoints bring logged blocks to their homes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HomeInfo {
    /// `share` or `copy`.
    pub by: &'static str,
    /// By whom they are shared, or why they are not.
    pub why: String,
}

impl HomeInfo {
    fn copy(why: impl Into<String>) -> HomeInfo {
        HomeInfo {
            by: "copy",
            why: why.into(),
        }
    }

    /// What `home=` of a journal comes to on this disk, with blocks of so many bytes.
    pub(super) fn of(
        journal: &Composition,
        disk: &OpenDisk,
        is_journal_elsewhere: bool,
        block: u32,
    ) -> HomeInfo {
        match journal.part(Axis::Home).name {
            "share" => HomeInfo::of_sharing(disk, is_journal_elsewhere, block),
            _ => HomeInfo::copy("nobody asked for home=share"),
        }
    }

    /// What `home=share` comes to on this disk, with blocks of so many bytes.
    pub(super) fn of_sharing(disk: &OpenDisk, is_journal_elsewhere: bool, block: u32) -> HomeInfo {
        if is_journal_elsewhere {
            return HomeInfo::copy("the journal is on a device of its own");
        }
        let shared = match disk.host.sharing() {
            Ok(shared) => shared,
            Err(why) => return HomeInfo::copy(why),
        };
        let unit = shared.unit.max(1);
        let start = disk.span.map_or(0, |span| span.start);
        if !block.is_multiple_of(unit) {
            return HomeInfo::copy(format!(
                "blocks of {block} bytes are smaller than what is shared as a whole ({unit} bytes)"
            ));
        }
        if !start.is_multiple_of(unit.into()) {
            return HomeInfo::copy(format!(
                "the part of the image begins at byte {start}, no multiple of what is shared as a whole ({unit} bytes)"
            ));
        }
        HomeInfo {
            by: "share",
            why: format!("by {}, in units of {unit} bytes", shared.who),
        }
    }
}
