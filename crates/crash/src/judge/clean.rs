//! What the superblock says of a volume that a crash left: one that is marked clean is as after an
//! unmount, whatever its log and its region hold, and a frozen one is marked so.

use stetfs::low::{BlockDevice, FsOptions, MemDevice};
use stetfs_ondisk::ext4::features::{Compat, Incompat};
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};

use super::finding::{Finding, Oracle, gone};
use super::promise::{self, Promise, Rules};
use super::recovery::opened;
use crate::machine::Crashed;
use crate::tree::Seen;
use crate::volume::{DIRS, fsck};
use crate::work::{Progresses, Work};
use crate::workload::script::Progress;

impl Work {
    /// Whether a script held the volume frozen at this moment: its freeze had returned, the thaw
    /// not begun. The end of a script is not counted, for the unmount follows.
    fn is_frozen(&self, progress: &Progresses) -> bool {
        self.scripts.iter().zip(progress).any(|(script, p)| {
            let frozen = |n: usize| script.states[n].is_frozen();
            p.acked < script.ops.len() && frozen(p.acked) && frozen(p.begun)
        })
    }

    /// A frozen volume is marked clean, has every change without its log, and e2fsck, which would
    /// not replay anything, finds nothing; files without a name wait on the list of orphans, as
    /// after a crash. Nothing is looked at if it is not frozen.
    ///
    /// # Errors
    /// What is not so.
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
        // What other scripts have begun waits.
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
        fsck(&crashed.device).map_err(|e| frozen(Oracle::Clean.says(e)))
    }

    /// A volume that is marked clean has what was promised without its log and its region.
    ///
    /// # Errors
    /// What was promised, and what was found.
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
        let says =
            |e: String| Oracle::Clean.says(format!("marked clean, and without a replay {e}"));
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

/// Whether the superblock says that nothing is to be replayed or repaired.
fn is_marked_clean(device: &MemDevice) -> Result<bool, Finding> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = device.read(SUPERBLOCK_OFFSET, &mut bytes);
    read.map_err(|e| Oracle::Opens.says(e))?;
    let sb = Superblock::decode_unchecked(&bytes).map_err(|e| Oracle::Opens.says(e))?;
    let replays = sb.incompat().contains(Incompat::RECOVER);
    let has_journal = sb.compat().contains(Compat::HAS_JOURNAL);
    Ok(!replays && (has_journal || sb.state().contains(State::VALID_FS)))
}
