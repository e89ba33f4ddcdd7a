//! File-level records: written by the thread that syncs, while the running transaction stays open
//! (iJournaling, §5).
//!
//! Invariants:
//! * **record.F1** A record's stamp is drawn while the file's lock is held and its content cannot
//!   change. So a transaction whose snapshot has a higher stamp holds all that the record says, and
//!   supersedes it when it is valid.
//! * **record.F2** What a record says of data is durable before the record is written, or in it.
//! * **record.F3** A record's space is used again only when a valid transaction supersedes it, and
//!   nobody writes it any more.
//! * **record.F4** Data that only records hold is home before a transaction counts that supersedes
//!   one of them. Who draws the stamp of such a record notes its inode with it, under one lock; who
//!   commits takes the notes after it knows up to which stamp it supersedes. So no record below
//!   that is missed, whatever the commit was about when it was written.

use std::collections::HashMap;

use stetfs_cache::PageRef;
use stetfs_sync::plain::{Instant, Mutex, atomic::Ordering, mended};

use super::lane::LaneState;
use super::{FlushMark, Inner, Journal};
use crate::error::Result;
use crate::ids::{BlockNr, CommitPoint, Ino, Lane, Stamp, TxId};
use crate::policy::{RecordLog, RecordPlace, RecordSize};
use crate::stats::bump;

/// Inodes whose data records hold, and whose homes may be older (record.F4).
#[derive(Default)]
pub(crate) struct RecordedData(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    /// Each with the stamp of the oldest such record.
    inodes: HashMap<Ino, Stamp>,
    /// When the first of them came.
    since: Option<Instant>,
}

impl Recorded {
    fn add(&mut self, ino: Ino, stamp: Stamp) {
        self.inodes.entry(ino).or_insert(stamp);
        self.since.get_or_insert_with(Instant::now);
    }
}

impl RecordedData {
    /// Takes those with a record up to `floor`. All their data is to go home before that counts.
    pub(super) fn take(&self, floor: Stamp) -> Vec<Ino> {
        let mut recorded = self.0.lock();
        let taken = recorded.inodes.extract_if(|_, stamp| *stamp <= floor);
        let taken = taken.map(|(ino, _)| ino).collect();
        if recorded.inodes.is_empty() {
            recorded.since = None;
        }
        taken
    }

    /// Since when there is some: a commit is due then, whatever else there is to commit.
    pub(super) fn since(&self) -> Option<Instant> {
        self.0.lock().since
    }
}

/// Records of files, of a journal that has a log for them.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    inner: &'a Inner,
    log: &'a dyn RecordLog,
}

/// The lane that this thread tries first: its processor's.
fn own_lane() -> usize {
    rustix::thread::sched_getcpu()
}

impl Journal {
    /// Records of files, where files are synced by records of their own.
    pub fn records(&self) -> Option<Records<'_>> {
        let inner = self.inner();
        let log = inner.records.as_deref()?;
        Some(Records { inner, log })
    }

    /// Whether everything a point names is durable and valid.
    pub fn is_valid(&self, point: &CommitPoint) -> bool {
        self.inner().is_valid(point)
    }

    /// The file-record horizon: records up to this stamp are superseded by valid transactions. It
    /// only rises.
    pub fn horizon(&self) -> Stamp {
        self.inner().horizon()
    }

    /// Whether a record may still be what recovery brings back: no valid transaction supersedes it.
    pub fn is_alive(&self, record: Stamp) -> bool {
        !self.inner().config.canary.forget_records && record > self.horizon()
    }

    /// A file was synced without a record, by a flush alone.
    ///
    /// # Errors
    /// The device's; the journal has stopped then.
    pub fn flush_shared(&self) -> Result<()> {
        self.inner().check()?;
        self.inner().flush_shared()
    }

    /// What to ask [`is_flushed`](Self::is_flushed) about writes that are done.
    pub fn flush_mark(&self) -> FlushMark {
        self.inner().flush_mark()
    }

    /// Whether what was written before the mark is durable.
    pub fn is_flushed(&self, mark: FlushMark) -> bool {
        self.inner().is_flushed(mark)
    }

    /// The records that were held are applied and durable: what the log says of them is over.
    ///
    /// # Errors
    /// The device's.
    pub fn release_horizon(&self) -> Result<()> {
        self.commit_all()?;
        let inner = self.inner();
        *inner.held.lock() = None;
        let horizon = inner.now();
        inner.superseded.fetch_max(horizon, Ordering::AcqRel);
        for LaneState { medium, .. } in inner.lanes.iter().take(1) {
            let _alone = inner.tails.lock();
            medium.set_horizon(horizon);
            medium.set_tail(medium.tail(), inner.barrier())?;
        }
        Ok(())
    }
}

impl Records<'_> {
    /// Takes a place for a record of so many bytes and pages. The file's lock is held, and
    /// everything that the record says is at hand (record.F1). `data_of`: the inode whose dirty
    /// data the record holds beside its home (record.F4). `None`: there is no room, only
    /// a commit makes some.
    pub fn reserve(&self, bytes: usize, pages: usize, data_of: Option<Ino>) -> Option<RecordPlace> {
        let inner = self.inner;
        let in_use = inner.gate.begin_record()?;
        let (lanes, own) = (self.log.lanes(), own_lane());
        let size = RecordSize { bytes, pages };
        let horizon = inner.horizon();
        let durable = inner.log.lock().newest_durable();
        let stamp = || inner.stamp.fetch_add(1, Ordering::AcqRel) + 1;
        let noted = |ino| (ino, inner.recorded.0.lock());
        let mut recorded = data_of.filter(|_| mended("record.note")).map(noted);
        // Another processor's lane is better than a commit.
        let mut place = (own..own + lanes)
            .find_map(|lane| self.log.reserve(lane, size, horizon, &durable, &stamp))?;
        place.in_use = Some(in_use);
        if !mended("record.note") {
            recorded = data_of.map(noted);
        }
        if let Some((ino, recorded)) = &mut recorded {
            recorded.add(*ino, place.stamp());
        }
        Some(place)
    }

    /// What supersedes every record that was reserved before the call, once it is valid. What runs
    /// may have taken its snapshot, and then only the next one does (record.F1).
    pub fn superseding(&self) -> CommitPoint {
        let mut point = CommitPoint::none();
        for lane in &self.inner.lanes {
            let run = lane.run.lock();
            let TxId { lane, seq } = run.tx.id;
            let ends = run.tx.state.lock().phase.is_ended();
            point.add(TxId {
                lane,
                seq: seq + u64::from(ends && mended("record.next")),
            });
        }
        point
    }

    /// Whether a record costs less than to write its data home and to flush the device.
    pub fn is_cheap(&self) -> bool {
        self.log.is_cheap()
    }

    /// Whether records should be small, for room is short until a commit makes some.
    pub fn is_room_short(&self) -> bool {
        self.log.is_half_full(own_lane(), self.inner.horizon())
    }

    /// Writes a record with these data blocks, durably.
    ///
    /// # Errors
    /// The device's; the journal has stopped then.
    pub fn write(
        &self,
        place: &RecordPlace,
        record: &[u8],
        pages: &[(BlockNr, PageRef)],
    ) -> Result<()> {
        let inner = self.inner;
        // The failure that stopped the journal may concern what the record says.
        inner.check()?;
        inner.must_be_awake("a record is to be written")?;
        let written = self
            .log
            .write_durably(place, record, pages, &|| inner.flush_shared());
        let bytes = written.inspect_err(|e| inner.stop(Some(e.clone())))?;
        bump(&inner.counters.file_records, 1);
        bump(&inner.counters.file_pages, pages.len() as u64);
        let blocks = bytes.div_ceil(inner.cache.block_size() as u64);
        bump(&inner.counters.blocks_logged, blocks);
        bump(&inner.counters.bytes_logged, bytes);
        bump(&inner.counters.file_bytes, bytes);
        Ok(())
    }
}

impl Inner {
    /// Up to where valid transactions supersede records, as recovery will see it.
    pub(crate) fn horizon(&self) -> Stamp {
        let held = *self.held.lock();
        held.unwrap_or_else(|| self.superseded.load(Ordering::Acquire))
    }

    /// The stamp counter.
    fn now(&self) -> Stamp {
        self.stamp.load(Ordering::Acquire)
    }

    /// The lowest opening stamp of any transaction that is not valid yet, of those that run in some
    /// lanes only; where there is none, of one that would open now. A record with a higher
    /// stamp may say what only they hold.
    pub(crate) fn oldest_opening(&self, of_lane: impl Fn(Lane) -> bool) -> Stamp {
        // First: what opens from here on opens later.
        let now = self.now();
        let lanes = self.lanes.iter().filter(|lane| of_lane(lane.lane));
        let running = lanes.filter_map(|lane| lane.run.lock().tx.state.lock().opened);
        // What leaves its lane for the log is there before it has left.
        let oldest = running.min();
        let committing = self.log.lock().oldest_opening();
        now.min(oldest.unwrap_or(now))
            .min(committing.unwrap_or(now))
    }
}
