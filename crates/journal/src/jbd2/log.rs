//! A jbd2 log before a journal runs in it: superblock, features, fast-commit area.

use std::sync::Arc;

use stetfs_cache::Page;
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::jbd2::fast_commit::{End, FastCommit};
use stetfs_ondisk::jbd2::{CompatFlags, IncompatFlags, JournalSuperblock};

use super::area::LogArea;
use super::codec::Jbd2Codec;
use super::ring::Jbd2Ring;
use super::walk::Record;
use crate::canary::Canary;
use crate::compose::Composition;
use crate::error::Result;
use crate::log::{LogFormat, OpenLog};
use crate::policy::{CopyHome, OneLane, Scheme};
use crate::region::{RegionSource, RegionUse};

/// The features that the volume needs of its log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// Metadata checksums: the log has them, too (v3).
    pub checksums: bool,
    /// 64-bit block numbers.
    pub wide: bool,
    /// Commits with one flush, in which the commit block alone proves nothing.
    pub async_commit: bool,
}

/// The contents of a log's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSummary {
    /// The number of log blocks.
    pub blocks: u64,
    /// The size of a log block, in bytes.
    pub block_size: u32,
    /// The format's name: `jbd2` or `stetfs`.
    pub format: &'static str,
    /// The ring: its first block and the one past its last.
    pub ring: (u64, u64),
    /// The tid of the oldest (or next) transaction.
    pub sequence: u32,
    /// The log block where that starts; 0 if the log is empty.
    pub start: u64,
    /// The features by name.
    pub features: String,
    /// The error that the last user of the log recorded.
    pub errno: i32,
    /// The number of fast-commit blocks behind the ring.
    pub fc_blocks: u32,
    /// UUID.
    pub uuid: [u8; 16],
    /// The number of volumes that share the log; 0 if the superblock does not say.
    pub users: u32,
}

/// An opened jbd2 log.
pub struct Jbd2Log {
    area: LogArea,
    sb: JournalSuperblock,
    canary: Canary,
}

impl Jbd2Log {
    /// Reads and checks the journal superblock.
    ///
    /// # Errors
    /// The device's; `Corrupt` or `Unsupported` for the superblock's contents.
    pub fn open(area: LogArea, canary: Canary) -> Result<Jbd2Log> {
        let pages = area.read(std::iter::once(0))?;
        let bytes = pages.first().map_or(&[][..], |p| &p[..]);
        let sb = JournalSuperblock::decode(bytes, area.block_size(), area.blocks())?;
        Ok(Jbd2Log { area, sb, canary })
    }

    /// The contents of the superblock.
    pub fn summary(&self) -> LogSummary {
        LogSummary {
            format: "jbd2",
            blocks: u64::from(self.sb.s_maxlen.get()),
            block_size: self.sb.s_blocksize.get(),
            ring: (
                u64::from(self.sb.s_first.get()),
                u64::from(self.sb.ring_end()),
            ),
            sequence: self.sb.s_sequence.get(),
            start: self.sb.s_start.get().into(),
            features: self.sb.feature_names(),
            errno: self.sb.s_errno.get().cast_signed(),
            fc_blocks: self.sb.fc_blocks(),
            uuid: self.sb.s_uuid,
            users: self.sb.users(),
        }
    }

    /// Whether there may be something to replay.
    pub fn is_dirty(&self) -> bool {
        self.sb.s_start.get() != 0
    }

    fn async_commit(&self) -> bool {
        self.sb.incompat().contains(IncompatFlags::ASYNC_COMMIT)
    }

    /// The codec of this log.
    pub fn codec(&self) -> Jbd2Codec {
        Jbd2Codec {
            config: self.sb.config(),
            uuid: self.sb.s_uuid,
            async_commit: self.async_commit(),
            canary: self.canary,
        }
    }

    /// The ring of this log.
    pub fn ring(&self) -> Jbd2Ring {
        Jbd2Ring::new(self.area.clone(), self.sb, self.async_commit(), self.canary)
    }

    /// The policies for reading the log as it is.
    pub fn scheme(&self) -> Scheme {
        Scheme {
            ordering: Box::new(OneLane),
            codec: Box::new(self.codec()),
            media: vec![Box::new(self.ring())],
            home: Box::new(CopyHome),
            records: None,
        }
    }

    /// Aligns the features of an empty log with the volume's, durably, and returns the policies for
    /// a new journal in it.
    ///
    /// # Errors
    /// The device's; `Corrupt` if the log is not empty.
    pub fn prepare(mut self, features: Features) -> Result<Scheme> {
        self.align(features)?;
        Ok(self.scheme())
    }

    fn must_be_empty(&self) -> Result<()> {
        match self.is_dirty() {
            false => Ok(()),
            true => Err(OnDiskError::Corrupt {
                what: "journal",
                detail: "not empty after recovery".into(),
            }
            .into()),
        }
    }

    /// Aligns the features of an empty log with the volume's, durably.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn align(&mut self, features: Features) -> Result<()> {
        self.must_be_empty()?;
        if self.sb.is_v2() {
            let mut flags = self.sb.incompat();
            // Version 3 if the volume has metadata checksums, as in the kernel. It also replaces
            // version 2. A log that has checksums keeps them.
            let blocks = features.checksums || self.sb.config().csum.in_blocks();
            flags.remove(IncompatFlags::CSUM_V2);
            flags.set(IncompatFlags::CSUM_V3, blocks);
            flags.set(
                IncompatFlags::BIT64,
                flags.contains(IncompatFlags::BIT64) || features.wide,
            );
            flags.set(IncompatFlags::ASYNC_COMMIT, features.async_commit);
            flags.insert(IncompatFlags::REVOKE);
            let mut compat = self.sb.compat();
            // A commit block that may reach the device before its transaction needs a checksum over
            // it, to show whether it is complete.
            let sums = compat.contains(CompatFlags::CHECKSUM) || features.async_commit;
            compat.set(CompatFlags::CHECKSUM, sums && !blocks);
            if (compat, flags) != (self.sb.compat(), self.sb.incompat()) {
                self.sb.s_feature_compat = compat.bits().into();
                self.sb.set_incompat(flags);
                Jbd2Ring::write_superblock(&self.area, &mut self.sb, true)?;
            }
        } else if features.async_commit {
            return Err(OnDiskError::Unsupported {
                feature: "journal_async_commit with a version 1 journal".into(),
            }
            .into());
        }
        Ok(())
    }

    /// Clears the error that the last user of the log recorded in it, durably.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_errno(&mut self) -> Result<()> {
        self.sb.s_errno = 0.into();
        Jbd2Ring::write_superblock(&self.area, &mut self.sb, true)
    }

    /// Makes the log, which is empty, as one that was never used, durably. It can then begin with
    /// the first tid again.
    ///
    /// # Errors
    /// The device's; `Corrupt` if the log is not empty.
    pub fn clear(&mut self) -> Result<()> {
        // The number of blocks that are read together.
        const AT_ONCE: u64 = 256;
        self.must_be_empty()?;
        let zeroes = Arc::new(Page::zeroed(self.area.block_size() as usize));
        let mut at = 1;
        while at < self.area.blocks() {
            let end = (at + AT_ONCE).min(self.area.blocks());
            let pages = self.area.read(at..end)?;
            let used = (at..end).zip(&pages);
            let used = used.filter(|(_, page)| page[..] != zeroes[..]);
            self.area.write(used.map(|(block, _)| (block, &zeroes)))?;
            at = end;
        }
        self.area.device().flush()?;
        self.sb.s_sequence = 1.into();
        self.sb.s_head = 0.into();
        Jbd2Ring::write_superblock(&self.area, &mut self.sb, true)
    }

    /// The superblock.
    pub(crate) fn superblock(&self) -> &JournalSuperblock {
        &self.sb
    }

    /// The deliberate faults.
    pub(super) fn canary(&self) -> &Canary {
        &self.canary
    }

    /// The blocks of the log.
    pub fn area(&self) -> &LogArea {
        &self.area
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn stetfs_block::BlockDevice> {
        self.area.device()
    }
}

/// The log format of jbd2.
pub struct Jbd2Format;

impl Jbd2Format {
    fn log(area: LogArea, sb: &JournalSuperblock, canary: Canary) -> Jbd2Log {
        Jbd2Log {
            area,
            sb: *sb,
            canary,
        }
    }
}

impl LogFormat for Jbd2Format {
    fn detect(&self, sb: &JournalSuperblock) -> bool {
        !sb.incompat().contains(IncompatFlags::STET)
    }

    fn open(
        &self,
        area: LogArea,
        sb: &JournalSuperblock,
        canary: Canary,
    ) -> Result<Box<dyn OpenLog>> {
        Ok(Box::new(Self::log(area, sb, canary)))
    }

    fn make(
        &self,
        area: LogArea,
        sb: &JournalSuperblock,
        _journal: &Composition,
        _region: Option<&RegionUse>,
        _barrier: bool,
        canary: Canary,
    ) -> Result<Scheme> {
        Ok(Self::log(area, sb, canary).scheme())
    }
}

impl OpenLog for Jbd2Log {
    fn summary(&self, superblock: LogSummary) -> LogSummary {
        superblock
    }

    fn is_dirty(&self) -> bool {
        Jbd2Log::is_dirty(self)
    }

    fn attach(&mut self, _region: &RegionSource, _uuid: [u8; 16]) -> Result<()> {
        Ok(())
    }

    fn scheme(&self) -> Scheme {
        Jbd2Log::scheme(self)
    }

    fn fast_commits(&self, next_seq: u64) -> Result<Option<(Vec<FastCommit>, End)>> {
        Jbd2Log::fast_commits(self, next_seq).map(Some)
    }

    fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        Jbd2Log::walk(self, visit)
    }
}
