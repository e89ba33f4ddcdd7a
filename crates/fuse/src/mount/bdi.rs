//! Limits of a mount's backing device in the kernel: read-ahead and dirty memory. Root only;
//! failures are harmless.

use std::fs::File;
use std::io::Write;

use crate::mount::mountinfo::MountEntry;

/// Share of the memory for dirty pages that a mount may take, in percent: all of it, as for other
/// file systems. FUSE's default is 1, with which a program that maps files, or that writes with the
/// write-back cache, soon waits for each page.
const MAX_RATIO: u32 = 100;

/// The open attribute files of a mount. They are opened while the process may do so, and written
/// once the kernel has the answer to INIT.
#[derive(Debug, Default)]
pub(crate) struct Knobs(Vec<(String, u32, File)>);

impl Knobs {
    /// Opens those of a mount, for a read-ahead of `readahead_kib`. The request in FUSE's INIT is
    /// limited by this attribute, which starts at 128 KiB.
    pub(crate) fn open(entry: &MountEntry, readahead_kib: u32) -> Knobs {
        let kind = if entry.fstype.starts_with("fuseblk") {
            "-fuseblk"
        } else {
            ""
        };
        let knobs = [
            ("read_ahead_kb", readahead_kib),
            // FUSE enforces its share even while there is memory enough (Linux 6.2 allows a
            // change).
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
