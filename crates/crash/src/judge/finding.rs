//! What is checked, and what is found.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stetfs::low::Fs;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Oracle {
    /// The volume opens, can be walked, used and closed.
    Opens,
    /// 1: e2fsck finds nothing.
    Fsck,
    /// 2 and 3: what was synced is there, and content was there once.
    Promise,
    /// 5: recovering again, or after a crash inside the recovery, gives the same.
    Again,
    /// 6: e2fsck's replay gives the same volume.
    Replay,
    /// 7: free counts, bitmaps and files agree.
    Space,
    /// Each step ends.
    Hang,
    /// Without a crash: what is done succeeds, and what is read is what was written.
    Live,
    /// 8: a volume that is marked clean has all without a replay; a frozen one is marked so.
    Clean,
    /// 9: the kernel's ext4 shows the same.
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
    /// Which.
    pub oracle: Oracle,
    /// What was found instead.
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

/// What the kernel is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByKernel {
    /// Nothing.
    #[default]
    No,
    /// What it shows of the recovered volume.
    Shown,
    /// The same, and what it shows when it has recovered the crashed one by itself.
    Recovered,
}

/// What is checked of a state beyond the tree and the free counts, which always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Use the recovered volume: grow files, make new ones.
    pub in_use: bool,
    /// e2fsck after the volume was closed.
    pub fsck: bool,
    /// Recover again, and compare.
    pub again: bool,
    /// Compare with e2fsck's replay.
    pub replay: bool,
    /// Compare with what the kernel shows, which takes root.
    pub kernel: ByKernel,
}

impl Checks {
    /// All of them that take no root.
    pub const ALL: Checks = Checks {
        in_use: true,
        fsck: true,
        again: true,
        replay: true,
        kernel: ByKernel::No,
    };
    /// All but the comparison with another program's replay.
    pub const OURS: Checks = Checks {
        replay: false,
        ..Checks::ALL
    };
}

/// Drops a volume as a crash does, and sees that nothing of it stays behind.
pub(crate) fn gone(fs: Arc<Fs>) -> Result<(), Finding> {
    let weak = Arc::downgrade(&fs);
    drop(fs);
    // A thread of the journal's may hold it for a moment.
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
