//! Marks of the volume's use in the superblock, written past the journal: at the begin and the end
//! of a mount and of a freeze.

use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::{State, Superblock};
use stetfs_ondisk::num::bounded32;

use crate::error::Result;
use crate::fs::Fs;
use crate::volume::error_notes::ErrorNotes;

/// The most mounts between checks if the volume names no number, as the kernel writes it.
const NO_MAX_MOUNTS: u16 = u16::MAX;

impl Fs {
    /// Marks the volume as mounted, before its first transaction.
    pub(crate) fn mark_mounted(&self) -> Result<()> {
        let now = self.vol.seconds();
        self.vol.write_super(|sb| {
            self.say_in_use(sb);
            if self.vol.geo.compat.contains(Compat::DIR_INDEX) {
                sb.flags.set(sb.flags().with_signedness().bits());
            }
            if sb.max_mnt_count.get() == 0 {
                sb.max_mnt_count.set(NO_MAX_MOUNTS);
            }
            sb.mnt_count.set(sb.mnt_count.get().saturating_add(1));
            sb.set_mount_time(now);
            self.say_what_is_free(sb, now);
        })
    }

    /// Marks the volume as in use again.
    pub(crate) fn mark_in_use(&self) -> Result<()> {
        self.vol.write_super(|sb| self.say_in_use(sb))
    }

    /// Marks the volume as clean, and adds notes of errors that the superblock does not contain
    /// yet. Everything is written back, and the log is empty.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let now = self.vol.seconds();
        let no_orphans = self.inodes.orphans().file_is_empty(self.vol.geo.block_size);
        let mark = |notes: &mut ErrorNotes, sb: &mut Superblock| {
            notes.write_to(sb);
            sb.set_incompat(sb.incompat() - Incompat::RECOVER);
            if self.vol.sb.was_valid {
                sb.set_state(sb.state() | State::VALID_FS);
            }
            if no_orphans {
                sb.set_ro_compat(sb.ro_compat() - RoCompat::ORPHAN_PRESENT);
            }
            self.say_what_is_free(sb, now);
        };
        self.vol
            .with_notes(|notes| self.vol.write_super(|sb| mark(notes, sb)))
    }

    fn say_in_use(&self, sb: &mut Superblock) {
        if self.vol.geo.compat.contains(Compat::HAS_JOURNAL) {
            sb.set_incompat(sb.incompat() | Incompat::RECOVER);
        } else {
            // Without a log, this tells the next user of a crash.
            sb.set_state(sb.state() - State::VALID_FS);
        }
        if self.inodes.orphans().has_file() {
            sb.set_ro_compat(sb.ro_compat() | RoCompat::ORPHAN_PRESENT);
        }
    }

    /// Sums over the descriptors. The sums in the superblock are not maintained in between.
    fn say_what_is_free(&self, sb: &mut Superblock, now: u64) {
        let clusters = self.space.free_blocks_count();
        sb.set_free_blocks_count(clusters * u64::from(self.vol.geo.ratio()));
        let inodes = bounded32(self.space.free_inodes_count());
        sb.free_inodes_count.set(inodes);
        sb.set_write_time(now);
    }
}
