//! Notes of damage that the superblock on the volume does not contain yet.

use stetfs_ondisk::ext4::superblock::{State, Superblock};

use crate::types::Ino;

/// One error, as the superblock remembers it.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) at: u64,
    pub(super) ino: Ino,
    pub(super) block: u64,
    pub(super) what: String,
    pub(super) code: u8,
}

/// Errors since the volume was opened that the superblock does not contain yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorNotes {
    count: u32,
    first: Option<Note>,
    last: Option<Note>,
}

impl ErrorNotes {
    pub(super) fn add(&mut self, note: Note) {
        self.count = self.count.saturating_add(1);
        self.first.get_or_insert_with(|| note.clone());
        self.last = Some(note);
    }

    /// Puts back older notes that could not be written to the superblock.
    pub(super) fn put_back(&mut self, older: ErrorNotes) {
        self.count = self.count.saturating_add(older.count);
        self.first = older.first.or(self.first.take());
        self.last = self.last.take().or(older.last);
    }

    /// Whether there are no notes.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Moves the notes into the superblock.
    pub(crate) fn write_to(&mut self, sb: &mut Superblock) {
        let (Some(first), Some(last)) = (self.first.take(), self.last.take()) else {
            return;
        };
        sb.set_state(sb.state() | State::ERROR_FS);
        if sb.error_count.get() == 0 {
            sb.set_first_error_at(first.at);
            sb.first_error_ino.set(first.ino);
            sb.first_error_block.set(first.block);
            sb.first_error_func = name(&first.what);
            sb.first_error_line.set(0);
            sb.first_error_errcode = first.code;
        }
        sb.set_last_error_at(last.at);
        sb.last_error_ino.set(last.ino);
        sb.last_error_block.set(last.block);
        sb.last_error_func = name(&last.what);
        sb.last_error_line.set(0);
        sb.last_error_errcode = last.code;
        sb.error_count
            .set(sb.error_count.get().saturating_add(self.count));
        self.count = 0;
    }
}

/// The text cut to the 32 bytes of an error's origin (`s_first_error_func`).
fn name(text: &str) -> [u8; 32] {
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(text.bytes().take(31)) {
        *to = from;
    }
    out
}
