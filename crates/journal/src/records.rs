//! Records of files: the thread that syncs a file writes one, while the running transaction stays
//! open (iJournaling, §5).
//!
//! Invariants:
//! * **record.F1** A record's stamp is drawn while the file's lock is held and its content cannot
//!   change. So a transaction whose snapshot has a higher stamp holds all that the record
//!   describes, and supersedes it when it is valid.
//! * **record.F2** The data that a record describes is durable before the record is written, or is
//!   in it.
//! * **record.F3** A record's space is used again only when a valid transaction supersedes it, and
//!   no thread is still writing it.
//! * **record.F4** Data that only records hold is home before a transaction counts that supersedes
//!   one of them. The thread that draws the stamp of such a record notes the inode with it, under
//!   one lock; a commit takes the notes after it knows up to which stamp it supersedes. So no note
//!   of a record below that stamp is missed, even if the commit was already under way when the
//!   record was written.

use stetfs_cache::PageRef;

use crate::engine::{Engine, FlushMark};
use crate::error::Result;
use crate::ids::{BlockNr, CommitPoint, Ino, Stamp};
use crate::journal::Journal;
use crate::policy::{RecordLog, RecordPlace, RecordSize};
use crate::stats::bump;

/// The records of files, of a journal that has a log for them.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    engine: &'a Engine,
    log: &'a dyn RecordLog,
}

/// The lane that this thread tries first: its processor's.
fn own_lane() -> usize {
    stetfs_sync::processor()
}

impl Journal {
    /// The journal's records of files; none if the scheme has none.
    pub fn records(&self) -> Option<Records<'_>> {
        let engine = self.engine();
        let log = engine.records.log()?;
        Some(Records { engine, log })
    }

    /// Whether everything a point names is durable and valid.
    pub fn is_valid(&self, point: &CommitPoint) -> bool {
        self.engine().is_valid(point)
    }

    /// The file-record horizon: valid transactions supersede all records up to this stamp. It only
    /// rises.
    pub fn horizon(&self) -> Stamp {
        self.engine().records.horizon()
    }

    /// Whether recovery may still bring a record back: no valid transaction supersedes it.
    pub fn is_alive(&self, record: Stamp) -> bool {
        !self.engine().base.config.canary.forget_records && record > self.horizon()
    }

    /// Flushes the device for a file that is synced without a record. Concurrent callers share a
    /// flush.
    ///
    /// # Errors
    /// The device's; the journal has then stopped.
    pub fn flush_shared(&self) -> Result<()> {
        self.engine().base.check()?;
        self.engine().flush_for_records()
    }

    /// A mark for writes that are complete, to ask [`is_flushed`](Self::is_flushed) about later.
    pub fn flush_mark(&self) -> FlushMark {
        self.engine().clock.mark()
    }

    /// Whether writes before the mark are durable.
    pub fn is_flushed(&self, mark: FlushMark) -> bool {
        self.engine().clock.is_flushed(mark)
    }

    /// Frees the records that were held since recovery: they are applied, and this makes it
    /// durable.
    ///
    /// # Errors
    /// The device's.
    pub fn release_horizon(&self) -> Result<()> {
        self.commit_all()?;
        self.engine().release_horizon()
    }
}

impl Records<'_> {
    /// Reserves space for a record of so many bytes and pages. The caller holds the file's lock and
    /// has everything that the record describes (record.F1). `data_of` is the inode whose dirty
    /// data the record holds while the home location may be older (record.F4). `None` if there is
    /// no room; only a commit makes some.
    pub fn reserve(&self, bytes: usize, pages: usize, data_of: Option<Ino>) -> Option<RecordPlace> {
        let Engine {
            base,
            records,
            lanes,
            ..
        } = self.engine;
        let in_use = records.gate().begin_record()?;
        let (of_log, own) = (self.log.lanes(), own_lane());
        let size = RecordSize { bytes, pages };
        let horizon = records.horizon();
        let durable = self.engine.space.newest_durable();
        let stamp = || lanes.draw();
        let noted = |ino| (ino, records.recorded());
        let note_late = base.config.canary.note_late;
        let mut recorded = data_of.filter(|_| !note_late).map(noted);
        // Another processor's lane is better than a commit.
        let mut place = (own..own + of_log)
            .find_map(|lane| self.log.reserve(lane, size, horizon, &durable, &stamp))?;
        place.in_use = Some(in_use);
        if note_late {
            recorded = data_of.map(noted);
        }
        if let Some((ino, recorded)) = &mut recorded {
            recorded.add(*ino, place.stamp());
        }
        Some(place)
    }

    /// A point that, once valid, supersedes every record reserved before the call. A transaction
    /// that is committing may have taken its snapshot before; then only the next one supersedes
    /// them (record.F1).
    pub fn superseding(&self) -> CommitPoint {
        self.engine.lanes.superseding()
    }

    /// Whether a record costs less than writing its data home and flushing the device.
    pub fn is_cheap(&self) -> bool {
        self.log.is_cheap()
    }

    /// Whether records should be small, because room is short until the next commit.
    pub fn is_room_short(&self) -> bool {
        self.log
            .is_half_full(own_lane(), self.engine.records.horizon())
    }

    /// Writes a record with these data blocks. It is durable on return.
    ///
    /// # Errors
    /// The device's; the journal has then stopped.
    pub fn write(
        &self,
        place: &RecordPlace,
        record: &[u8],
        pages: &[(BlockNr, PageRef)],
    ) -> Result<()> {
        let base = &self.engine.base;
        // The failure that stopped the journal may concern data that the record describes.
        base.check()?;
        self.engine.must_be_awake("a record is to be written")?;
        let written = self
            .log
            .write_durably(place, record, pages, &|| self.engine.flush_for_records());
        let bytes = written.inspect_err(|e| base.stop(Some(e.clone())))?;
        let counters = &base.counters;
        bump(&counters.file_records, 1);
        bump(&counters.file_pages, pages.len() as u64);
        bump(&counters.blocks_logged, bytes.div_ceil(base.block_size()));
        bump(&counters.bytes_logged, bytes);
        bump(&counters.file_bytes, bytes);
        Ok(())
    }
}
