//! The oracles: check that a crash left what was promised.
//!
//! Their numbers are those of docs/crash.md.

mod clean;
mod finding;
mod kernel;
mod left;
pub mod promise;
mod records;
mod recovery;
mod rest;
pub mod space;
mod synced;
mod torn;

use std::sync::Arc;

use stetfs::low::{BlockDevice, Ctx, Fs, FsError, MemDevice, SetAttr};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::superblock::Superblock;
use stetfs_ondisk::jbd2::block::read_header;
use stetfs_ondisk::jbd2::{BlockType, commit};

use crate::machine::{Crashed, Machine};
use crate::tree::{Seen, read};
use crate::volume::{DIRS, by_e2fsck, fsck, makes_wait, sums};
use crate::work::{Progresses, Work};
use crate::workload::op::{Op, bytes};
use crate::workload::session::Session;
pub(crate) use finding::gone;
pub use finding::{ByKernel, Checks, Finding, Oracle};
pub(crate) use kernel::abilities;
pub use kernel::check_can_mount;
pub(crate) use left::{attributes, is_as_left};
use promise::Rules;
pub use recovery::record_recovery;
pub(crate) use recovery::tree;
use recovery::{cut_recovery, opened, recovered, replay_only};

pub use torn::Cuts;

impl Work {
    /// Recovers the volume and checks all promises.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn check(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
        checks: Checks,
    ) -> Result<(), Finding> {
        self.check_frozen(crashed, progress)?;
        self.check_left(crashed, progress, checks)
    }

    /// Recovers and checks what a crash inside a recovery left; after that a frozen volume is no
    /// longer frozen.
    fn check_left(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
        checks: Checks,
    ) -> Result<(), Finding> {
        self.check_with(crashed, progress, checks, &mut |_| Ok(()))
    }

    /// Recovers the volume and checks all promises; `also` gets the recovered tree first.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub(crate) fn check_with(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
        checks: Checks,
        also: &mut dyn FnMut(&Seen) -> Result<(), Finding>,
    ) -> Result<(), Finding> {
        self.check_clean(crashed, progress)?;
        let machine = crashed.fork();
        let fs = opened(&machine, &self.options)?;
        // A mount whose device failed has noted that in the superblock. Its orphans are then left
        // to e2fsck, as with the kernel, and their space is checked after e2fsck has run.
        let is_left_to_e2fsck = fs.orphans_finished().left > 0;
        let result = self.check_open(&fs, progress, checks, also);
        gone(fs)?;
        let seen = result?;
        if is_left_to_e2fsck {
            let repaired = by_e2fsck(&machine.device, &["-fy"]);
            let (repaired, told) = repaired.map_err(|e| Oracle::Fsck.says(e))?;
            if loses_values(&machine.device, &told).map_err(|e| Oracle::Fsck.says(e))? {
                return Ok(());
            }
            let repaired = Machine::new(repaired, machine.fork_region());
            let again = self.check_with(&repaired, progress, checks, also);
            return again
                .map_err(|e| e.because(format!("finished by e2fsck, which said {told:?}")));
        }
        space::check(&machine.device).map_err(|e| Oracle::Space.says(e))?;
        if checks.fsck {
            fsck(&machine.device).map_err(|e| Oracle::Fsck.says(e))?;
        }
        if checks.again {
            self.check_again(crashed, &seen)?;
        }
        let is_slow = makes_wait(&crashed.device);
        if checks.replay && self.is_replayed_by_others() && !is_slow {
            self.check_replay(crashed, &seen)?;
        }
        if checks.kernel != ByKernel::No {
            self.check_kernel(crashed, &machine, checks.kernel)?;
        }
        Ok(())
    }

    /// Checks the open volume. Gives its tree, as it was before it was used.
    fn check_open(
        &self,
        fs: &Arc<Fs>,
        progress: &Progresses,
        checks: Checks,
        also: &mut dyn FnMut(&Seen) -> Result<(), Finding>,
    ) -> Result<Seen, Finding> {
        let seen = Seen::capture(fs).map_err(|e| Oracle::Opens.says(e))?;
        also(&seen)?;
        self.judge(&seen, progress)?;
        self.check_rest(&seen)?;
        let sums = sums(fs, &seen);
        let expected = (self.base.blocks, self.base.inodes);
        if self.base.is_closed && sums != expected && fs.orphans_finished().left == 0 {
            return Err(Oracle::Space.says(format!(
                "blocks and inodes, free and used, are {sums:?}, but were {expected:?}"
            )));
        }
        // A volume that e2fsck has to finish first is judged, and used, after that.
        if checks.in_use && fs.orphans_finished().left == 0 && has_room(fs) {
            use_it(fs, &seen)
                .map_err(|e| Oracle::Opens.says(format!("in use after the recovery: {e}")))?;
        }
        fs.unmount()
            .map_err(|e| Oracle::Opens.says(format!("cannot be unmounted: {e}")))?;
        Ok(seen)
    }

    /// Checks a tree against the promises at this progress of the scripts.
    ///
    /// # Errors
    /// The promise, and the actual state.
    pub fn judge(&self, seen: &Seen, progress: &Progresses) -> Result<(), Finding> {
        for ((script, progress), dir) in self.scripts.iter().zip(progress).zip(DIRS) {
            promise::judge(seen, dir, script, *progress, self.rules())
                .map_err(|e| Oracle::Promise.says(e))?;
        }
        Ok(())
    }

    fn rules(&self) -> Rules {
        Rules {
            data: self.options.journal.data(),
            records: self.options.journal.has_records(),
            sync: self.options.sync,
            promise: self.promise,
        }
    }

    /// Whether the volume can be opened at all.
    pub fn opens(&self, crashed: &Crashed) -> bool {
        recovered(crashed, &self.options).is_ok()
    }

    /// Checks that a second recovery has the same result; the first one gave the tree `first`.
    ///
    /// # Errors
    /// The difference.
    fn check_again(&self, crashed: &Crashed, first: &Seen) -> Result<(), Finding> {
        let replay = replay_only(&self.options);
        let once = recovered(crashed, &replay)?;
        let twice = recovered(&once, &replay)?;
        same(&once, &twice, "a second replay")?;
        if *first != tree(&recovered(crashed, &self.options)?, &self.options)? {
            return Err(Oracle::Again.says("a second recovery results in a different tree"));
        }
        Ok(())
    }

    /// Checks that e2fsck's replay of the journal leaves the same tree as `ours`. e2fsck 1.47,
    /// unlike the kernel and StetFS, ends the log at a commit block of which only the sector with
    /// the record was written; then e2fsck runs again with the rest of that block set to zero.
    ///
    /// # Errors
    /// e2fsck cannot replay the journal, or the result differs.
    fn check_replay(&self, crashed: &Crashed, ours: &Seen) -> Result<(), Finding> {
        let Some(differs) = self.differs_by_e2fsck(crashed, ours)? else {
            return Ok(());
        };
        let mended = with_whole_commits(&crashed.device).map_err(|e| Oracle::Replay.says(e))?;
        match mended.map(Crashed::of) {
            Some(mended) if self.differs_by_e2fsck(&mended, ours)?.is_none() => Ok(()),
            _ => Err(Oracle::Replay.says(differs)),
        }
    }

    /// The difference between `ours` and the tree after e2fsck's replay.
    fn differs_by_e2fsck(&self, crashed: &Crashed, ours: &Seen) -> Result<Option<String>, Finding> {
        let replayed = replayed_by_e2fsck(&crashed.device).map_err(|e| Oracle::Replay.says(e))?;
        let Some((by_e2fsck, truncated)) = replayed else {
            return Ok(None);
        };
        let mut theirs = tree(&Crashed::of(by_e2fsck), &self.options)?;
        // e2fsck 1.47 removes the attribute block of a file whose truncation it completes; the
        // kernel does not.
        for ino in truncated {
            if let (Some(our), Some(their)) = (ours.nodes.get(&ino), theirs.nodes.get_mut(&ino)) {
                their.xattrs.clone_from(&our.xattrs);
                their.blocks = our.blocks;
            }
        }
        if *ours == theirs {
            return Ok(None);
        }
        let differs = ours
            .nodes
            .iter()
            .find(|(ino, node)| theirs.nodes.get(ino) != Some(*node))
            .map(|(ino, _)| *ino);
        Ok(Some(format!(
            "e2fsck's replay results in a different tree; ours has {} inodes, theirs {}, the first \
             that differs is {differs:?}",
            ours.nodes.len(),
            theirs.nodes.len()
        )))
    }

    /// Cuts the recovery after each of its writes; the next recovery must have the same result.
    /// Then tries crashes that lose what a recovery did not flush, and what the recovery after that
    /// did not.
    ///
    /// # Errors
    /// The first cut after which the result differs.
    pub fn check_cut_recovery(
        &self,
        crashed: &Crashed,
        progress: &Progresses,
    ) -> Result<Cuts, Finding> {
        let replay = replay_only(&self.options);
        let whole = recovered(crashed, &replay)?;
        let mut cut = 0;
        loop {
            let (left, finished) = cut_recovery(crashed, &replay, cut)?;
            let again = recovered(&left, &replay)?;
            let what = format!("a replay cut after {cut} writes");
            if !self.rules().records {
                same(&whole, &again, &what)?;
            } else if tree(&whole, &self.options)? != tree(&again, &self.options)? {
                // Records are applied as operations, which may allocate other blocks when some of
                // them are done already.
                return Err(Oracle::Again.says(format!("{what} results in a different tree")));
            }
            if finished {
                break;
            }
            cut += 1;
        }
        let replays = cut;
        cut = 0;
        loop {
            let (left, finished) = cut_recovery(crashed, &self.options, cut)?;
            self.check_left(&left, progress, Checks::default())
                .map_err(|e| e.because(format!("a recovery cut after {cut} writes")))?;
            if finished {
                break;
            }
            cut += 1;
        }
        let mut cuts = self.check_torn_recovery(crashed, progress)?;
        cuts.first += replays + cut;
        Ok(cuts)
    }
}

/// Whether e2fsck 1.47 left value inodes behind, by its output. It deletes an orphan without the
/// inodes that hold values of its attributes; then it finds these in no directory, and links them
/// into lost+found.
fn loses_values(volume: &MemDevice, told: &str) -> Result<bool, String> {
    let mut head = vec![0; 1024];
    volume.read(1024, &mut head).map_err(|e| e.to_string())?;
    let sb = Superblock::decode_unchecked(&head).map_err(|e| e.to_string())?;
    let deletes = ["Clearing orphaned inode", "Deleted inode "];
    let deletes = deletes.iter().any(|what| told.contains(what));
    Ok(sb.incompat().contains(Incompat::EA_INODE) && deletes)
}

/// The volume after e2fsck's replay, and the named inodes that e2fsck found on the orphan list.
/// `None`: e2fsck cannot do it ([`loses_values`]).
fn replayed_by_e2fsck(crashed: &MemDevice) -> Result<Option<(MemDevice, Vec<u32>)>, String> {
    let (volume, told) = by_e2fsck(crashed, &["-fy", "-E", "journal_only"])?;
    if loses_values(crashed, &told)? {
        return Ok(None);
    }
    let truncated = told
        .lines()
        .filter_map(|line| line.strip_prefix("Truncating orphaned inode "))
        .filter_map(|rest| rest.split(' ').next()?.parse().ok())
        .collect();
    Ok(Some((volume, truncated)))
}

/// The volume with zeroes behind the record in each commit block; `None` if they were there
/// already.
fn with_whole_commits(crashed: &MemDevice) -> Result<Option<MemDevice>, String> {
    let mut image = crashed.to_vec();
    let sb = image.get(1024..2048).unwrap_or_default();
    let sb = Superblock::decode_unchecked(sb).map_err(|e| e.to_string())?;
    let block_size = sb.geometry().map_err(|e| e.to_string())?.block_size;
    let mut cut = false;
    for block in image.chunks_exact_mut(block_size as usize) {
        if let Some((BlockType::Commit, _)) = read_header(block)
            && let Some(rest) = block.get_mut(commit::LEN..)
        {
            cut |= rest.iter().any(|byte| *byte != 0);
            rest.fill(0);
        }
    }
    Ok(cut.then(|| MemDevice::from_image(&image)))
}

fn same(a: &Crashed, b: &Crashed, what: &str) -> Result<(), Finding> {
    let Some(how) = a.differs(b) else {
        return Ok(());
    };
    Err(Oracle::Again.says(format!("{what} results in a different image: {how}")))
}

/// Flags that forbid changes.
const GUARDS: u32 = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND).bits();

/// Number of files that are created on a recovered volume, and the bytes of each.
const AFTER: (u64, usize) = (5, 9000);

/// Whether there are blocks and inodes for the files of [`use_it`], with what directories and maps
/// take.
fn has_room(fs: &Fs) -> bool {
    let (free, (files, size)) = (fs.statfs(), AFTER);
    let each = (size as u64).div_ceil(free.block_size.into()) + 3;
    free.bavail >= files * each + 16 && free.ffree >= files
}

/// Uses a recovered volume: files grow with zeroes, new ones can be written and synced.
pub(crate) fn use_it(fs: &Arc<Fs>, seen: &Seen) -> Result<(), String> {
    let ctx = Ctx::default();
    let said = |e: FsError| e.to_string();
    let files = seen
        .nodes
        .iter()
        .filter(|(_, n)| n.kind == stetfs::low::FileType::Regular && n.flags & GUARDS == 0);
    for (ino, node) in files.take(8) {
        let size = node.size + 5000;
        fs.setattr(
            &ctx,
            *ino,
            &SetAttr {
                size: Some(size),
                ..SetAttr::default()
            },
        )
        .map_err(said)?;
        let file = fs.open_inode(&ctx, *ino, libc::O_RDWR).map_err(said)?;
        let content = read(fs, &file, size).map_err(said)?;
        let (old, new) = content
            .split_at_checked(node.content.len())
            .ok_or_else(|| format!("inode {ino} is shorter than before it grew"))?;
        if old != node.content || new.iter().any(|b| *b != 0) {
            return Err(format!(
                "inode {ino} of {} bytes grew with something else than zeroes",
                node.size
            ));
        }
    }
    let mut session = Session::new(fs, DIRS[0]).map_err(said)?;
    let (files, len) = AFTER;
    for i in 0..files {
        let path = format!("after-{i}");
        let ops = [
            Op::Create {
                path: path.clone(),
                mode: 0o644,
            },
            Op::Write {
                path: path.clone(),
                offset: 0,
                len,
                key: i,
            },
            Op::Fsync { path: path.clone() },
        ];
        ops.iter()
            .try_for_each(|op| session.run(op))
            .map_err(said)?;
        let written = Seen::capture(fs)?;
        let ino = written
            .find(&format!("{}/{path}", DIRS[0]))
            .ok_or("the new file is not there")?;
        if written.nodes[&ino].content != bytes(i, len) {
            return Err("a new file has wrong content".into());
        }
    }
    Ok(())
}
