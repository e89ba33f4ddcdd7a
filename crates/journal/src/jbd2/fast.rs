//! Fast commits of Linux ext4: they are read, and replaced by the transaction that they are part
//! of.
//!
//! A fast commit describes the state of single files of the running transaction. The file system
//! works out which blocks that changes ([`crate::Recovery::fast_commits`]). These blocks go into
//! the log as that transaction, in one piece, as if it had been committed. From then on the fast
//! commits belong to a transaction that is in the log, and no longer count. So an interrupted
//! replay either starts over, or is complete.

use stetfs_cache::PageRef;
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::jbd2::fast_commit::{End, FastCommit, Scanner};
use stetfs_ondisk::num::low32;

use super::log::Jbd2Log;
use super::walk::{Record, RecordKind, walk};
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, CommitPoint, Lane, TxId};
use crate::policy::{Codec, LogTail, Medium};
use crate::tx::{Image, Snapshot};

/// The number of log blocks read at once.
const WINDOW: u32 = 256;

impl Jbd2Log {
    /// Reads the fast commits of transaction `seq`, the first that the ring does not hold.
    ///
    /// # Errors
    /// The device's; `Unsupported` for features of a newer format.
    pub(crate) fn fast_commits(&self, seq: u64) -> Result<(Vec<FastCommit>, End)> {
        let unproven = self.canary().fast_unproven;
        let mut scanner = Scanner::new(low32(seq)).unproven(unproven);
        if self.is_dirty() {
            let area = self.superblock().fc_area();
            for at in area.clone().step_by(WINDOW as usize) {
                let window = at..at.saturating_add(WINDOW).min(area.end);
                for block in self.area().read(window.map(u64::from))? {
                    scanner.block(&block)?;
                }
            }
        }
        Ok(scanner.finish())
    }

    /// Visits the records of the log: transactions, then fast commits, and [`RecordKind::End`]
    /// last.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        let ring = self.ring();
        let first = u64::from(self.superblock().fc_area().start);
        let mut and_fast = |record: Record| {
            if matches!(record.kind, RecordKind::End(_)) {
                for commit in self.fast_commits(record.tid)?.0 {
                    visit(Record {
                        at: first + commit.at,
                        tid: record.tid,
                        lane: None,
                        kind: RecordKind::FastCommit(commit.changes),
                    })?;
                }
            }
            visit(record)
        };
        walk(
            &self.codec(),
            &ring,
            ring.tail(),
            true,
            &mut |_, _| {},
            &mut and_fast,
        )
    }

    /// Writes a transaction to the log at its tail. `images` are its blocks by number. It is
    /// durable on return.
    ///
    /// # Errors
    /// The device's; `Unsupported`, with nothing changed, if the transaction is larger than the
    /// log.
    pub(crate) fn commit_images(&self, images: Vec<(BlockNr, PageRef)>) -> Result<()> {
        let (ring, codec) = (self.ring(), self.codec());
        let LogTail { seq, at } = ring.tail();
        let at = at.ok_or_else(|| JournalError::Aborted("the log is empty".into()))?;
        if images.is_empty() {
            return ring.set_tail(
                LogTail {
                    seq: seq + 1,
                    at: None,
                },
                true,
            );
        }
        let need = codec.bound(images.len() as u64, 0);
        if need > ring.capacity() {
            return Err(OnDiskError::Unsupported {
                feature: format!(
                    "fast commits that change {} blocks at once in a journal of {} (e2fsck or a mount by the kernel replays them)",
                    images.len(),
                    ring.capacity()
                ),
            }
            .into());
        }
        let images = images.into_iter();
        let snapshot = Snapshot {
            id: TxId { lane: Lane(0), seq },
            stamp: seq,
            floor: 0,
            images: images
                .map(|(nr, page)| Image {
                    nr,
                    page,
                    base: None,
                    touched: None,
                    block: None,
                })
                .collect(),
            revokes: Vec::new(),
            edges: CommitPoint::none(),
        };
        let device = self.device();
        let encoded = codec.encode(&snapshot, &mut |_, _| Ok(()))?;
        ring.blocks(at, &encoded, true)?.submit(&**device)?;
        match ring.flush_seals() {
            true => Ok(device.flush()?),
            false => ring.seal(at, &encoded, true),
        }
    }
}
