//! The oracles by name, their findings, and the choice of checks.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stetfs::low::Fs;

/// The oracle that a finding comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Oracle {
    /// The volume opens, can be walked, used and closed.
    Opens,
    /// 1: e2fsck finds nothing.
    Fsck,
    /// 2 and 3: synced changes are there, and content is one that the file had.
    Promise,
    /// 5: recovering again, or after a crash inside the recovery, has the same result.
    Again,
    /// 6: e2fsck's replay results in the same volume.
    Replay,
    /// 7: free counts, bitmaps and files agree.
    Space,
    /// Each step ends.
    Hang,
    /// Without a crash: operations succeed, and reads return what was written.
    Live,
    /// 8: a volume that is marked clean is complete without a replay, and a frozen one is marked
    /// clean.
    Clean,
    /// 9: the kernel's ext4 shows the same tree.
    Kernel,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Oracle::Opens => "the volume opens and works",
            Oracle::Fsck => "oracle 1, e2fsck finds nothing",
            Oracle::Promise => "oracles 2 and 3, what was synced stands",
            Oracle::Again => "oracle 5, a second recovery changes nothing",
            Oracle::Replay => "oracle 6, all replay alike",
            Oracle::Space => "oracle 7, space is accounted for",
            Oracle::Hang => "each step ends",
            Oracle::Live => "what a program reads is what it wrote",
            Oracle::Clean => "oracle 8, what is marked clean needs no replay",
            Oracle::Kernel => "oracle 9, the kernel shows the same",
        })
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The oracle that found it.
    pub oracle: Oracle,
    /// The actual state.
    pub detail: String,
}

impl Finding {
    pub(crate) fn because(self, what: impl fmt::Display) -> Finding {
        Finding {
            detail: format!("{what}: {}", self.detail),
            ..self
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.oracle)
    }
}

impl Oracle {
    pub(crate) fn says(self, detail: impl fmt::Display) -> Finding {
        Finding {
            oracle: self,
            detail: detail.to_string(),
        }
    }
}

/// The comparisons with the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByKernel {
    /// None.
    #[default]
    No,
    /// Compare the tree of the recovered volume.
    Shown,
    /// Compare that, and the tree after the kernel's own recovery of the crashed volume.
    Recovered,
}

/// The optional checks of a state; the tree and the free counts are always checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Use the recovered volume: let files grow, create new ones.
    pub in_use: bool,
    /// Run e2fsck after the volume is closed.
    pub fsck: bool,
    /// Recover again, and compare.
    pub again: bool,
    /// Compare with e2fsck's replay.
    pub replay: bool,
    /// Compare with the kernel's tree; needs root.
    pub kernel: ByKernel,
}

impl Checks {
    /// All checks that do not need root.
    pub const ALL: Checks = Checks {
        in_use: true,
        fsck: true,
        again: true,
        replay: true,
        kernel: ByKernel::No,
    };
    /// All checks but the comparison with another program's replay.
    pub const OURS: Checks = Checks {
        replay: false,
        ..Checks::ALL
    };
}

/// Drops a volume as a crash does, and checks that no reference to it remains.
pub(crate) fn gone(fs: Arc<Fs>) -> Result<(), Finding> {
    let weak = Arc::downgrade(&fs);
    drop(fs);
    // A thread of the journal may hold a reference for a moment.
    let mut pause = Duration::from_micros(20);
    for _ in 0..24 {
        if weak.strong_count() == 0 {
            return Ok(());
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
    Err(Oracle::Opens.says("a closed volume stays in memory"))
}
