//! Damage that was found: noted in the superblock, then `errors=` decides.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use stetfs_journal::JournalError;
use stetfs_ondisk::ext4::superblock::{State, Superblock};

use super::error_notes::{ErrorNotes, Note};
use super::shared::Volume;
use crate::error::{FsError, Result};
use crate::types::OnError;

/// Error codes of the superblock (`s_first_error_errcode`).
mod code {
    pub(super) const EIO: u8 = 2;
    pub(super) const EFSCORRUPTED: u8 = 16;
    pub(super) const EJOURNAL: u8 = 12;
}

/// Takes over from `before` what it knows of errors: a replayed superblock may be older.
pub(super) fn keep_errors(sb: &mut Superblock, before: &Superblock) {
    if before.error_count.get() <= sb.error_count.get() {
        return;
    }
    sb.set_state(sb.state() | (before.state() & State::ERROR_FS));
    sb.error_count = before.error_count;
    sb.first_error_time = before.first_error_time;
    sb.first_error_time_hi = before.first_error_time_hi;
    sb.first_error_ino = before.first_error_ino;
    sb.first_error_block = before.first_error_block;
    sb.first_error_func = before.first_error_func;
    sb.first_error_line = before.first_error_line;
    sb.first_error_errcode = before.first_error_errcode;
    sb.last_error_time = before.last_error_time;
    sb.last_error_time_hi = before.last_error_time_hi;
    sb.last_error_ino = before.last_error_ino;
    sb.last_error_block = before.last_error_block;
    sb.last_error_func = before.last_error_func;
    sb.last_error_line = before.last_error_line;
    sb.last_error_errcode = before.last_error_errcode;
}

static PANIC_HOOK: OnceLock<fn(&str)> = OnceLock::new();

/// What `errors=panic` does: called with the reason, and not expected to return. Without a hook the
/// process is aborted. Only the first call counts.
pub fn set_panic_hook(hook: fn(&str)) {
    let _ = PANIC_HOOK.set(hook);
}

impl Volume {
    /// Carries out the changes of an operation from the first one on. All was checked and reserved
    /// before: if one fails all the same, because the device does, nothing of the running
    /// transaction may reach the volume any more.
    pub(crate) fn whole<T>(&self, changes: impl FnOnce() -> Result<T>) -> Result<T> {
        changes().inspect_err(|e| self.half_done(e))
    }

    /// The same of changes that pass damage by, which is left to e2fsck.
    pub(crate) fn whole_or_damaged<T>(&self, changes: impl FnOnce() -> Result<T>) -> Result<T> {
        changes().inspect_err(|e| {
            if matches!(e, FsError::Device(_)) {
                self.half_done(e);
            }
        })
    }

    /// An operation failed when some of its changes were made: nothing is committed any more.
    pub(crate) fn half_done(&self, e: &FsError) {
        let why = format!("an operation failed half done: {e}");
        self.journal.abort(JournalError::Aborted(why));
    }

    /// Passes a result on, after taking note of the damage that it tells of
    /// ([`report`](Self::report)).
    pub(crate) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| self.report(e))
    }

    /// Takes note of damage or a failed device, and does what `errors=` asks for. Errors that are
    /// the caller's business (ENOENT …) are not for here, and are ignored. Group and superblock
    /// locks must not be held.
    pub(crate) fn report(&self, e: &FsError) {
        let (block, code) = match e {
            FsError::Corrupt { block, .. } => (*block, code::EFSCORRUPTED),
            FsError::Format(_) | FsError::Foreign(_) | FsError::NoVolume(_) => {
                (0, code::EFSCORRUPTED)
            }
            FsError::Device(e) if e.is_full() => return tracing::error!("{e}"),
            FsError::Device(_) => (0, code::EIO),
            // The journal tells of its own end through `FileState::aborted`.
            FsError::Journal(_)
            | FsError::Errno(_)
            | FsError::Unsupported(_)
            | FsError::JournalDevice(_)
            | FsError::GroupFull { .. }
            | FsError::InUse(_) => return,
        };
        tracing::error!("{e}");
        self.note(e.to_string(), block, code);
        match self.sb.on_error {
            OnError::Continue => {}
            OnError::RemountRo => self.turn_read_only(e),
            OnError::Panic => {
                // The log is left as it is: what was committed is replayed.
                if let Err(e) = self.notes_home() {
                    tracing::error!("the superblock could not be told: {e}");
                }
                let why = e.to_string();
                match PANIC_HOOK.get() {
                    Some(hook) => hook(&why),
                    None => std::process::abort(),
                }
            }
        }
    }

    fn note(&self, what: String, block: u64, code: u8) {
        let at = self.seconds();
        self.sb.notes.lock().add(Note {
            at,
            ino: 0,
            block,
            what,
            code,
        });
        self.sb.noted.store(true, Ordering::Release);
    }

    /// Has `write` put the notes into the superblock that it does not have yet. They stay noted if
    /// that fails.
    pub(super) fn with_notes(
        &self,
        write: impl FnOnce(&mut ErrorNotes) -> Result<()>,
    ) -> Result<()> {
        let mut notes = {
            let mut noted = self.sb.notes.lock();
            self.sb.noted.store(false, Ordering::Release);
            std::mem::take(&mut *noted)
        };
        let kept = notes.clone();
        let written = write(&mut notes);
        if written.is_err() && !kept.is_empty() {
            self.sb.notes.lock().put_back(kept);
            self.sb.noted.store(true, Ordering::Release);
        }
        written
    }

    /// No change is made any more: the journal stops where it is. It stops first: a sync that finds
    /// the volume read-only asks the journal whether it stopped, and is told of success if not.
    fn turn_read_only(&self, e: &FsError) {
        let turns = !self.sb.read_only.load(Ordering::Acquire)
            && !self.sb.turning.swap(true, Ordering::AcqRel);
        if turns {
            tracing::error!("the volume is read-only from now on");
            stetfs_sync::point(self, "turn-read-only");
            self.journal.abort(JournalError::Aborted(e.to_string()));
            // Nobody tells us of the end before the journal knows us.
            self.sb.read_only.store(true, Ordering::Release);
        }
    }

    /// The journal stopped with an error.
    pub(crate) fn journal_stopped(&self, why: &JournalError) {
        let was = self.sb.read_only.swap(true, Ordering::AcqRel);
        if !was && !self.sb.turning.load(Ordering::Acquire) {
            tracing::error!("the volume is read-only from now on: {why}");
            // The journal holds what did not get home, until there is room.
            let full = matches!(why, JournalError::Device(e) if e.is_full());
            if !full && !self.sb.recovering.load(Ordering::Acquire) {
                self.note(format!("journal: {why}"), 0, code::EJOURNAL);
            }
        }
        if let Err(e) = self.notes_home() {
            tracing::error!("the superblock could not be told: {e}");
        }
    }

    /// Writes the notes to the superblock's home, past the journal, which runs no more. Those of a
    /// frozen volume wait for the thaw.
    pub(super) fn notes_home(&self) -> Result<()> {
        if self.is_frozen() || self.opts.read_only {
            return Ok(());
        }
        self.with_notes(|notes| match notes.is_empty() {
            true => Ok(()),
            false => self.patch_super_home(|sb| notes.write_to(sb)),
        })
    }

    /// Writes the notes to the superblock through the journal. No lock may be held.
    pub(super) fn notes_through_journal(&self) -> Result<()> {
        if !self.sb.noted.load(Ordering::Acquire) {
            return Ok(());
        }
        let h = self.journal.begin(1)?;
        self.with_notes(|notes| self.change_super(&h, |sb| notes.write_to(sb)))
    }
}
