//! What the kernel allows the backing device of a mount: how far it reads ahead, and how much memory may wait to be written.
//! Root only, and no harm where it fails.

use crate::mountinfo::MountEntry;

/// Share of the memory for dirty pages that a mount may take, percent: all of it, as other file systems. FUSE begins with 1, so
/// that a program that maps files, or writes with the write-back cache, soon waits for each page.
const MAX_RATIO: u32 = 100;

/// Sets the limits of the mount, with so many KiB read ahead. FUSE's own request for that is bounded by this knob, which starts
/// at 128 KiB.
pub(crate) fn set_limits(entry: &MountEntry, readahead_kib: u32) {
    let kind = if entry.fstype.starts_with("fuseblk") {
        "-fuseblk"
    } else {
        ""
    };
    let knobs = [
        ("read_ahead_kb", readahead_kib),
        // FUSE keeps to its share also while there is memory enough (Linux 6.2 lets that be changed).
        ("strict_limit", 0),
        ("max_ratio", MAX_RATIO),
    ];
    for (name, value) in knobs {
        let knob = format!("/sys/class/bdi/{}{kind}/{name}", entry.dev);
        match std::fs::write(&knob, value.to_string()) {
            Ok(()) => tracing::debug!("{knob}: {value}"),
            Err(e) => tracing::debug!("cannot set {knob}: {e}"),
        }
    }
}
