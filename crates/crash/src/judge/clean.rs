//! Oracle 8, the mark "clean" in the superblock. A crashed volume that is marked clean must be
//! complete without its log and its region, and a frozen volume must be marked clean.

use stetfs::low::{FsOptions, MemDevice};
use stetfs_ondisk::ext4::features::{Compat, Incompat};
use stetfs_ondisk::ext4::superblock::State;

use super::finding::{Finding, Oracle, gone};
use super::promise::{self, Promise, Rules};
use super::recovery::opened;
use crate::machine::Crashed;
use crate::outside::superblock;
use crate::tree::Seen;
use crate::volume::{DIRS, fsck, released};
use crate::work::{Progresses, Work};
use crate::workload::script::Progress;

impl Work {
    /// Whether a script held the volume frozen at this moment: its freeze had returned, and no thaw
    /// had begun. The end of a script does not count, because the unmount follows.
    fn is_frozen(&self, progress: &Progresses) -> bool {
        self.scripts.iter().zip(progress).any(|(script, p)| {
            let frozen = |n: usize| script.states[n].is_frozen();
            p.acked < script.ops.len() && frozen(p.acked) && frozen(p.begun)
        })
    }

    /// Checks a frozen volume: it is marked clean, it has every change without its log, and e2fsck,
    /// which would not replay anything, finds nothing. e2fsck does not run while nameless files are
    /// on the orphan list, where they stand as after a crash. Checks nothing if the volume is not
    /// frozen.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub(super) fn check_frozen(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
    ) -> Result<(), Finding> {
        if !self.is_frozen(progress) {
            return Ok(());
        }
        let frozen = |e: Finding| e.because("the volume is frozen");
        if !is_marked_clean(&crashed.device).map_err(frozen)? {
            return Err(frozen(Oracle::Clean.says("it is not marked clean")));
        }
        let rules = Rules {
            promise: Promise::Everything,
            ..self.rules()
        };
        // Operations of other scripts that have begun wait for the thaw.
        let done = |p: &Progress| Progress {
            begun: p.acked,
            ..*p
        };
        let done = progress.iter().map(done).collect();
        self.judge_unreplayed(crashed, &done, rules)
            .map_err(frozen)?;
        let states = self.scripts.iter().zip(progress);
        if states
            .into_iter()
            .any(|(s, p)| s.states[p.acked].has_nameless())
        {
            return Ok(());
        }
        let released = released(&crashed.device);
        let released = released.map_err(|e| frozen(Oracle::Clean.says(e)))?;
        fsck(&released).map_err(|e| frozen(Oracle::Clean.says(e)))
    }

    /// Checks a volume that is marked clean: everything promised is there without its log and its
    /// region.
    ///
    /// # Errors
    /// The promise, and the actual state.
    pub(super) fn check_clean(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
    ) -> Result<(), Finding> {
        match is_marked_clean(&crashed.device)? {
            true => self.judge_unreplayed(crashed, progress, self.rules()),
            false => Ok(()),
        }
    }

    fn judge_unreplayed(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
        rules: Rules,
    ) -> Result<(), Finding> {
        let says = |e: String| {
            Oracle::Clean.says(format!(
                "marked clean, but not complete without a replay: {e}"
            ))
        };
        let alone = Crashed::of(crashed.device.fork());
        let options = FsOptions {
            read_only: true,
            no_recovery: true,
            ..self.options.clone()
        };
        let fs = opened(&alone, &options).map_err(|e| says(e.detail))?;
        let seen = Seen::capture(&fs).map_err(says);
        gone(fs)?;
        let seen = seen?;
        let mut all = self.scripts.iter().zip(progress).zip(DIRS);
        all.try_for_each(|((script, p), dir)| promise::judge(&seen, dir, script, *p, rules))
            .map_err(says)
    }
}

/// Whether the superblock says that there is nothing to replay or repair.
fn is_marked_clean(device: &MemDevice) -> Result<bool, Finding> {
    let sb = superblock(device).map_err(|e| Oracle::Opens.says(e))?;
    let replays = sb.incompat().contains(Incompat::RECOVER);
    let has_journal = sb.compat().contains(Compat::HAS_JOURNAL);
    Ok(!replays && (has_journal || sb.state().contains(State::VALID_FS)))
}
