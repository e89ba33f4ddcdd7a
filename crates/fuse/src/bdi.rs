//! What the kernel allows the backing device of a mount: how far it reads ahead, and how much
//! memory may wait to be written. Root only, and no harm where it fails.

use std::fs::File;
use std::io::Write;

use crate::mountinfo::MountEntry;

/// Share of the memory for dirty pages that a mount may take, percent: all of it, as other file
/// systems. FUSE begins with 1, so that a program that maps files, or writes with the write-back
/// cache, soon waits for each page.
const MAX_RATIO: u32 = 100;

/// The knobs of a mount, open: by who may, to be turned once the kernel has our answer to INIT.
#[derive(Debug, Default)]
pub(crate) struct Knobs(Vec<(String, u32, File)>);

impl Knobs {
    /// Opens those of a mount, for so many KiB to be read ahead. FUSE's own request for that is
    /// bounded by this knob, which starts at 128 KiB.
    pub(crate) fn open(entry: &MountEntry, readahead_kib: u32) -> Knobs {
        let kind = if entry.fstype.starts_with("fuseblk") {
            "-fuseblk"
        } else {
            ""
        };
        let knobs = [
            ("read_ahead_kb", readahead_kib),
            // FUSE keeps to its share also while there is memory enough (Linux 6.2 lets that be
            // changed).
            ("strict_limit", 0),
            ("max_ratio", MAX_RATIO),
        ];
        let open = |(name, value)| {
            let knob = format!("/sys/class/bdi/{}{kind}/{name}", entry.dev);
            match File::options().write(true).open(&knob) {
                Ok(file) => Some((knob, value, file)),
                Err(e) => {
                    tracing::debug!("cannot set {knob}: {e}");
                    None
                }
            }
        };
        Knobs(knobs.into_iter().filter_map(open).collect())
    }

    /// Sets the limits.
    pub(crate) fn turn(self) {
        for (knob, value, mut file) in self.0 {
            match file.write_all(value.to_string().as_bytes()) {
                Ok(()) => tracing::debug!("{knob}: {value}"),
                Err(e) => tracing::debug!("cannot set {knob}: {e}"),
            }
        }
    }
}
