//! Directory blocks: chains of `ext4_dir_entry_2` ("Linear (Classic) Directories" in the ext4
//! documentation).
//!
//! The entries of a block cover it without gaps: `rec_len` leads from one to the next, and the last
//! one ends at the end of the block or, with `metadata_csum`, at its 12-byte tail. Room for a new
//! name is an entry with inode 0, or the slack of an entry that is longer than its name needs.
//!
//! Functions that change a block check the chain before they touch a byte; after an error the block
//! is unchanged. They do not update the checksum: call [`update_checksum`] after a change.

mod change;
mod entry;
mod read;
mod tail;
#[cfg(test)]
mod tests;

pub use change::{delete, fill, init_dots, init_empty, insert, set_inode};
pub use entry::{
    DirLayout, Entry, FileType, NAME_MAX, TAIL_LEN, decode_rec_len, encode_rec_len, min_rec_len,
    valid_name,
};
pub use read::{Entries, check, entries, find, find_room, inline_entries};
pub use tail::{checksum, has_tail, update_checksum, verify_checksum};
