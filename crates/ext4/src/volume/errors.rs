//! Handling of damage: it is noted in the superblock, and `errors=` decides what follows.

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

/// Takes over the errors noted in `before`: the replayed superblock may be older.
pub(crate) fn keep_errors(sb: &mut Superblock, before: &Superblock) {
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

/// Sets the action of `errors=panic`: the hook is called with the reason and is not expected to
/// return. Without a hook the process aborts. Only the first call counts.
pub fn set_panic_hook(hook: fn(&str)) {
    let _ = PANIC_HOOK.set(hook);
}

impl Volume {
    /// Makes the changes of an operation, after all checks and reservations. If a change fails all
    /// the same, for example because the device fails, the journal stops: nothing of the running
    /// transaction may reach the volume any more.
    pub(crate) fn whole<T>(&self, changes: impl FnOnce() -> Result<T>) -> Result<T> {
        changes().inspect_err(|e| self.half_done(e))
    }

    /// Like [`whole`](Self::whole), for changes that skip damage and leave it to e2fsck.
    pub(crate) fn whole_or_damaged<T>(&self, changes: impl FnOnce() -> Result<T>) -> Result<T> {
        changes().inspect_err(|e| {
            if matches!(e, FsError::Device(_)) {
                self.half_done(e);
            }
        })
    }

    /// Stops the journal after an operation failed with some of its changes made, so that nothing
    /// is committed any more.
    pub(crate) fn half_done(&self, e: &FsError) {
        let why = format!("an operation failed after some of its changes: {e}");
        self.journal.abort(JournalError::Aborted(why));
    }

    /// Passes a result on, and notes damage in it ([`report`](Self::report)).
    pub(crate) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| self.report(e))
    }

    /// Notes damage or a failed device, and does what `errors=` asks for. Errors that only concern
    /// the caller (ENOENT …) are ignored. The caller must not hold group or superblock locks.
    pub(crate) fn report(&self, e: &FsError) {
        let (block, code) = match e {
            FsError::Corrupt { block, .. } => (*block, code::EFSCORRUPTED),
            FsError::Format(_) | FsError::Foreign(_) | FsError::NoVolume(_) => {
                (0, code::EFSCORRUPTED)
            }
            FsError::Device(e) if e.is_full() => return tracing::error!("{e}"),
            FsError::Device(_) => (0, code::EIO),
            // The journal reports its own stop through `FileState::aborted`.
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
                // The log stays as it is: the next opening replays what was committed.
                if let Err(e) = self.notes_home() {
                    tracing::error!("the superblock could not be updated: {e}");
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

    /// Lets `write` put the pending notes into the superblock. The notes stay pending if that
    /// fails.
    pub(crate) fn with_notes(
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

    /// Ends all changes: stops the journal, then marks the volume read-only. The order matters: a
    /// sync on a read-only volume asks the journal whether it stopped, and reports success if not.
    fn turn_read_only(&self, e: &FsError) {
        let turns = !self.sb.read_only.load(Ordering::Acquire)
            && !self.sb.turning.swap(true, Ordering::AcqRel);
        if turns {
            tracing::error!("the volume is read-only from now on");
            stetfs_sync::point(self, "turn-read-only");
            self.journal.abort(JournalError::Aborted(e.to_string()));
            // While the volume is being opened, the journal cannot report its stop yet.
            self.sb.read_only.store(true, Ordering::Release);
        }
    }

    /// Reacts to a journal that stopped with an error.
    pub(crate) fn journal_stopped(&self, why: &JournalError) {
        let was = self.sb.read_only.swap(true, Ordering::AcqRel);
        if !was && !self.sb.turning.load(Ordering::Acquire) {
            tracing::error!("the volume is read-only from now on: {why}");
            // The host has no space left for the image: the log holds what was not written back,
            // until there is space.
            let full = matches!(why, JournalError::Device(e) if e.is_full());
            if !full && !self.sb.recovering.load(Ordering::Acquire) {
                self.note(format!("journal: {why}"), 0, code::EJOURNAL);
            }
        }
        if let Err(e) = self.notes_home() {
            tracing::error!("the superblock could not be updated: {e}");
        }
    }

    /// Writes the notes to the superblock's home location, past the journal, which has stopped. The
    /// notes of a frozen volume wait for the thaw.
    pub(crate) fn notes_home(&self) -> Result<()> {
        if self.is_frozen() || self.opts.read_only {
            return Ok(());
        }
        self.with_notes(|notes| match notes.is_empty() {
            true => Ok(()),
            false => self.patch_super_home(|sb| notes.write_to(sb)),
        })
    }

    /// Writes the notes to the superblock through the journal. No lock may be held.
    pub(crate) fn notes_through_journal(&self) -> Result<()> {
        if !self.sb.noted.load(Ordering::Acquire) {
            return Ok(());
        }
        let h = self.journal.begin(1)?;
        self.with_notes(|notes| self.change_super(&h, |sb| notes.write_to(sb)))
    }
}
