//! The checkpoint list: the transactions of the live log, and the images still to be written home.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_sync::plain::Instant;

use crate::canary::Canary;
use crate::edges::front;
use crate::error::{JournalError, Result, no_lane};
use crate::head::Block;
use crate::ids::{BlockNr, CommitPoint, Lane, Stamp, TxId};
use crate::policy::{HomeImage, LogTail, Medium, Place, Touched};
use crate::tx::{AfterCommit, Tx};

/// A committed transaction whose log space is still needed.
pub(super) struct LiveTx {
    pub tx: Arc<Tx>,
    pub stamp: Stamp,
    /// Log position and length, in log blocks.
    pub at: u64,
    pub blocks: u64,
    /// A deliberate fault: the tail passes the transaction before its images are home.
    pub passed: bool,
    /// Home blocks of the images, for the live index.
    pub homes: Vec<BlockNr>,
    /// The number of images that must still be written home.
    pub pending: u64,
    pub since: Instant,
}

impl LiveTx {
    /// Notes that no image is still to be written home, if that is so.
    fn note_home(&self) -> Result<()> {
        match self.pending {
            0 => self.tx.come_home(),
            _ => Ok(()),
        }
    }
}

/// The newest valid image of a block that is not home yet.
pub(in crate::engine) struct Pending {
    pub id: TxId,
    pub stamp: Stamp,
    pub page: PageRef,
    /// Keeps the block cached (cache.C2), so that no thread reads the old content at home.
    pub block: Option<Arc<Block>>,
    /// The place where the image is verbatim in the log; none if it is packed or changed there.
    pub place: Option<Place>,
    /// The bytes changed since the block was home, where only changes are logged; none means all.
    pub touched: Option<Touched>,
}

/// A transaction from its snapshot until it is durable.
pub(super) struct Committing {
    pub tx: TxId,
    pub stamp: Stamp,
    /// The stamp of its first handle.
    pub opened: Stamp,
    /// Its first log block, once it is being laid out.
    pub at: Option<u64>,
}

/// A durable transaction that waits to become valid.
pub(in crate::engine) struct Durable {
    pub tx: Arc<Tx>,
    pub stamp: Stamp,
    /// The stamp of its first handle.
    pub opened: Stamp,
    /// Records of files up to this stamp are superseded once the transaction is valid.
    pub floor: Stamp,
    pub edges: CommitPoint,
    pub images: Vec<(BlockNr, Pending)>,
    pub freed: Vec<(BlockNr, u64)>,
    pub after: Vec<AfterCommit>,
    pub at: u64,
    pub blocks: u64,
    pub homes: Vec<BlockNr>,
}

/// Log space that is no longer needed.
pub(in crate::engine) struct Reaped {
    pub lane: Lane,
    /// The first log block, and the number of blocks; they wrap at the end of the ring.
    pub at: u64,
    pub blocks: u64,
    /// The new start of the live log.
    pub tail: LogTail,
    /// The home blocks of the images in it, each with its transaction (checkpoint.K4).
    pub homes: Vec<(BlockNr, TxId)>,
}

/// The contents of one lane's ring.
pub(super) struct LaneLog {
    pub lane: Lane,
    /// Next log block to write.
    pub head: u64,
    /// Valid transactions in the log, oldest first.
    pub live: VecDeque<LiveTx>,
    /// Durable transactions that are not valid yet, oldest first.
    pub durable: VecDeque<Durable>,
    /// Transactions that are not durable yet, oldest first. Only the oldest is being laid out and
    /// written (commit.A2).
    pub committing: VecDeque<Committing>,
    /// Sequence of the transaction that commits after all of the above.
    pub next_seq: u64,
}

impl LaneLog {
    /// Removes the oldest transactions that are entirely home and older than `below`, or are
    /// passed.
    ///
    /// # Errors
    /// `Aborted` if one of them is not home (tx.T6), an impossible state.
    fn reap(&mut self, below: Stamp) -> Result<Option<Reaped>> {
        let Some(at) = self.live.front().map(|live| live.at) else {
            return Ok(None);
        };
        let mut blocks = 0;
        let mut homes = Vec::new();
        let is_over = |t: &LiveTx| t.passed || (t.pending == 0 && t.stamp < below);
        while self.live.front().is_some_and(is_over) {
            let Some(live) = self.live.pop_front() else {
                break;
            };
            if !live.passed {
                live.tx.leave()?;
            }
            blocks += live.blocks;
            homes.extend(live.homes.into_iter().map(|nr| (nr, live.tx.id)));
        }
        if blocks == 0 {
            return Ok(None);
        }
        let live = self.live.front().map(|t| (t.tx.id.seq, t.at));
        let durable = self.durable.front().map(|d| (d.tx.id.seq, d.at));
        let committing = self.committing.front();
        let committing = committing.map(|tx| (tx.tx.seq, tx.at.unwrap_or(self.head)));
        let (seq, next) = live
            .or(durable)
            .or(committing)
            .unwrap_or((self.next_seq, self.head));
        let tail = LogTail {
            seq,
            at: Some(next),
        };
        Ok(Some(Reaped {
            lane: self.lane,
            at,
            blocks,
            tail,
            homes,
        }))
    }
}

pub(super) struct CheckpointList {
    pub lanes: Vec<LaneLog>,
    /// The newest valid image of each block that must still be written home.
    pub pending: BTreeMap<BlockNr, Pending>,
    /// Blocks that are being written home.
    pub inflight: HashSet<BlockNr>,
    /// The newest transaction in the live log that holds an image of the block. A transaction that
    /// frees such a block must revoke it.
    index: HashMap<BlockNr, TxId>,
    /// Images that were replaced before they were home; only for the canary that sends them, too.
    pub older: BTreeMap<BlockNr, HomeImage>,
    canary: Canary,
}

impl CheckpointList {
    pub(super) fn new(media: &[Box<dyn Medium>], canary: Canary) -> CheckpointList {
        let lanes = media
            .iter()
            .zip(0..)
            .map(|(m, lane)| LaneLog {
                lane: Lane(lane),
                head: m.tail().at.unwrap_or(m.first()),
                live: VecDeque::new(),
                durable: VecDeque::new(),
                committing: VecDeque::new(),
                next_seq: m.tail().seq,
            })
            .collect();
        CheckpointList {
            lanes,
            pending: BTreeMap::new(),
            inflight: HashSet::new(),
            index: HashMap::new(),
            older: BTreeMap::new(),
            canary,
        }
    }

    /// # Errors
    /// `Aborted` if the log has no such lane.
    pub(super) fn lane(&mut self, lane: Lane) -> Result<&mut LaneLog> {
        let log = self.lanes.get_mut(usize::from(lane.0));
        log.ok_or_else(|| no_lane(lane))
    }

    /// The newest durable transaction of each lane.
    pub(super) fn newest_durable(&self) -> Vec<TxId> {
        let newest = |(lane, log): (u16, &LaneLog)| TxId {
            lane: Lane(lane),
            seq: log
                .committing
                .front()
                .map_or(log.next_seq, |tx| tx.tx.seq)
                .saturating_sub(1),
        };
        (0..).zip(&self.lanes).map(newest).collect()
    }

    /// Notes that `tx` will have images of these blocks in the log.
    pub(super) fn index_images(&mut self, tx: TxId, homes: &[BlockNr]) {
        for nr in homes {
            self.index.insert(*nr, tx);
        }
    }

    /// Whether the live log has, or will have, an image of the block.
    pub(super) fn is_live(&self, nr: BlockNr) -> bool {
        self.index.contains_key(&nr)
    }

    /// The blocks of a run that have a live image.
    pub(super) fn live_in(&self, start: BlockNr, count: u64) -> Vec<BlockNr> {
        let end = start.saturating_add(count);
        if count > self.index.len() as u64 {
            return self
                .index
                .keys()
                .copied()
                .filter(|nr| (start..end).contains(nr))
                .collect();
        }
        (start..end).filter(|nr| self.is_live(*nr)).collect()
    }

    fn live_tx(&mut self, id: TxId) -> Option<&mut LiveTx> {
        let lane = self.lanes.get_mut(usize::from(id.lane.0))?;
        let at = lane
            .live
            .binary_search_by_key(&id.seq, |t| t.tx.id.seq)
            .ok()?;
        lane.live.get_mut(at)
    }

    /// Notes that an image no longer waits to be written home: it is home, or a newer image or a
    /// revoke replaced it.
    ///
    /// # Errors
    /// `Aborted` if its transaction has no image left to wait for: then its log space may have been
    /// freed too early (checkpoint.K2).
    pub(super) fn settle(&mut self, id: TxId) -> Result<()> {
        let is_early = self.canary.tail_early || self.canary.pass_chained;
        match self.live_tx(id) {
            Some(live) if live.pending > 0 => {
                live.pending -= 1;
                live.note_home()?;
            }
            _ if is_early => {}
            _ => {
                return Err(JournalError::Aborted(format!(
                    "internal error (checkpoint.K2): transaction {} of lane {} has no image left \
                     to write home",
                    id.seq, id.lane.0
                )));
            }
        }
        Ok(())
    }

    /// Drops the images of freed blocks that wait to be written home. Returns how many.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub(super) fn drop_pending(&mut self, freed: &[(BlockNr, u64)]) -> Result<u64> {
        let mut dropped = 0;
        for (start, count) in freed {
            let gone: Vec<BlockNr> = self
                .pending
                .range(*start..start.saturating_add(*count))
                .map(|(nr, _)| *nr)
                .collect();
            for nr in gone {
                if let Some(image) = self.pending.remove(&nr) {
                    self.settle(image.id)?;
                    dropped += 1;
                }
            }
        }
        Ok(dropped)
    }

    /// Whether one of these blocks is being written home.
    pub(super) fn in_flight(&self, freed: &[(BlockNr, u64)]) -> bool {
        !self.inflight.is_empty()
            && freed.iter().any(|(start, count)| {
                let end = start.saturating_add(*count);
                self.inflight.iter().any(|nr| (*start..end).contains(nr))
            })
    }

    /// The lane of the oldest durable transaction among those that are valid by `fronts`. Stamps
    /// give the order between lanes, the list the order in each lane.
    ///
    /// # Errors
    /// `Aborted` if `fronts` lacks a lane.
    pub(super) fn oldest_durable(&self, fronts: &HashMap<Lane, u64>) -> Result<Option<Lane>> {
        let mut oldest: Option<(Stamp, Lane)> = None;
        for log in &self.lanes {
            let front = front(fronts, log.lane)?;
            if let Some(tx) = log.durable.front().filter(|tx| tx.tx.id.seq <= front) {
                let this = (tx.stamp, log.lane);
                oldest = Some(oldest.map_or(this, |oldest| oldest.min(this)));
            }
        }
        Ok(oldest.map(|(_, lane)| lane))
    }

    /// Makes a transaction's images those to be written home. Returns how many older images they
    /// replaced, and the transaction's callbacks.
    ///
    /// # Errors
    /// `Aborted` if its lane does not exist; as [`settle`](Self::settle).
    pub(super) fn accept(&mut self, tx: Durable) -> Result<(u64, Vec<AfterCommit>)> {
        let mut replaced = 0;
        let canary = &self.canary;
        let passed = canary.tail_early || (canary.pass_chained && !tx.edges.is_none());
        let live = LiveTx {
            stamp: tx.stamp,
            at: tx.at,
            blocks: tx.blocks,
            passed,
            homes: tx.homes,
            pending: tx.images.len() as u64,
            since: Instant::now(),
            tx: tx.tx,
        };
        live.tx.validate()?;
        live.note_home()?;
        self.lane(live.tx.id.lane)?.live.push_back(live);
        for (nr, image) in tx.images {
            debug_assert!(
                self.pending.get(&nr).is_none_or(|p| p.stamp < image.stamp),
                "internal error: an older image of block {nr} replaces a newer one"
            );
            if self.canary.older_home && self.pending.contains_key(&nr) {
                self.settle(image.id)?;
                replaced += 1;
                continue;
            }
            if let Some(old) = self.pending.insert(nr, image) {
                self.settle(old.id)?;
                replaced += 1;
                if self.canary.share_older && old.place.is_some() {
                    let (page, place) = (old.page, old.place);
                    self.older.insert(nr, HomeImage { nr, page, place });
                }
            }
        }
        Ok((replaced, tx.after))
    }

    /// The stamp of the oldest transaction of any lane with an image still to be written home.
    fn oldest_pending(&self) -> Stamp {
        let of_lane = |log: &LaneLog| log.live.iter().find(|t| t.pending > 0).map(|t| t.stamp);
        let oldest = self.lanes.iter().filter_map(of_lane).min();
        oldest.unwrap_or(Stamp::MAX)
    }

    /// Removes the transactions that are entirely home, and older than every one that is not
    /// (checkpoint.K3).
    ///
    /// # Errors
    /// `Aborted` if one of them is not home (tx.T6), an impossible state.
    pub(super) fn reap(&mut self) -> Result<Vec<Reaped>> {
        let below = match self.canary.reap_alone {
            true => Stamp::MAX,
            false => self.oldest_pending(),
        };
        let lanes = self.lanes.iter_mut();
        let reaped = lanes.map(|lane| lane.reap(below));
        reaped.filter_map(Result::transpose).collect()
    }

    /// Removes images from the live index: their log space is free for good (checkpoint.K4).
    pub(super) fn forget(&mut self, homes: &[(BlockNr, TxId)]) {
        for (nr, tx) in homes {
            if self.index.get(nr) == Some(tx) {
                self.index.remove(nr);
            }
        }
    }

    /// The lowest opening stamp among transactions between snapshot and validity.
    pub(super) fn oldest_opening(&self) -> Option<Stamp> {
        let committing = |log: &LaneLog| log.committing.iter().map(|tx| tx.opened).min();
        let durable = |log: &LaneLog| log.durable.iter().map(|tx| tx.opened).min();
        let of_lane = |log| [committing(log), durable(log)].into_iter().flatten().min();
        self.lanes.iter().filter_map(of_lane).min()
    }

    /// Whether a transaction older than `stamp` is between snapshot and validity.
    pub(super) fn any_in_flight_below(&self, stamp: Stamp) -> bool {
        let is_older = |log: &LaneLog| {
            let committing = log.committing.iter().map(|tx| tx.stamp);
            let mut all = committing.chain(log.durable.iter().map(|tx| tx.stamp));
            all.any(|of| of < stamp)
        };
        self.lanes.iter().any(is_older)
    }

    /// The time from which the oldest transaction in the log counts.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lanes
            .iter()
            .filter_map(|l| l.live.front().map(|t| t.since))
            .min()
    }
}
