//! What the live part of the log holds, and which images wait to go home.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_sync::plain::Instant;

use super::{Canary, no_lane};
use crate::edges::front;
use crate::error::{JournalError, Result};
use crate::head::Block;
use crate::ids::{BlockNr, CommitPoint, Lane, Stamp, TxId};
use crate::policy::{HomeImage, LogTail, Medium, Place, Touched};
use crate::tx::AfterCommit;

/// A committed transaction whose log space is still needed.
pub(crate) struct LiveTx {
    pub id: TxId,
    pub stamp: Stamp,
    /// Log position and length, in log blocks.
    pub at: u64,
    pub blocks: u64,
    /// A deliberate fault: the tail passes it before its images are home.
    pub passed: bool,
    /// Home blocks of its images, for the live index.
    pub homes: Vec<BlockNr>,
    /// Images of it that must still go home.
    pub pending: u64,
    pub since: Instant,
}

/// The newest valid image of a block that is not home yet.
pub(crate) struct Pending {
    pub id: TxId,
    pub stamp: Stamp,
    pub page: PageRef,
    /// Keeps the block cached (cache.C2), so nobody reads the old home content.
    pub block: Option<Arc<Block>>,
    /// Where it stands verbatim in the log, if it does.
    pub place: Option<Place>,
    /// What changed since the block was home, where only changes are logged; none: all of it.
    pub touched: Option<Touched>,
}

/// A durable transaction that waits to become valid.
pub(crate) struct Durable {
    pub id: TxId,
    pub stamp: Stamp,
    /// Records up to here are superseded once it is valid.
    pub floor: Stamp,
    pub edges: CommitPoint,
    pub images: Vec<(BlockNr, Pending)>,
    pub freed: Vec<(BlockNr, u64)>,
    pub after: Vec<AfterCommit>,
    pub at: u64,
    pub blocks: u64,
    pub homes: Vec<BlockNr>,
}

/// Log space that nobody needs any more.
pub(crate) struct Reaped {
    pub lane: Lane,
    /// Its first log block, and how many there are, wrapping.
    pub at: u64,
    pub blocks: u64,
    /// Where the live log begins now.
    pub tail: LogTail,
    /// What it held images of, with the transaction (checkpoint.K4).
    pub homes: Vec<(BlockNr, TxId)>,
}

/// One lane's ring.
pub(crate) struct LaneLog {
    pub lane: Lane,
    /// Next log block to write.
    pub head: u64,
    /// Valid transactions in the log, oldest first.
    pub live: VecDeque<LiveTx>,
    /// Durable ones that are not valid yet, oldest first.
    pub durable: VecDeque<Durable>,
    /// The one being written: sequence and log position. Set with its snapshot.
    pub committing: Option<(u64, u64)>,
    /// Opening stamp of the oldest transaction that was snapshotted and is not valid yet.
    pub opened: Option<Stamp>,
    /// Sequence of the transaction that commits after all those above.
    pub next_seq: u64,
}

impl LaneLog {
    /// Takes off what is wholly home and older than `below`, or is passed.
    fn reap(&mut self, below: Stamp) -> Option<Reaped> {
        let at = self.live.front()?.at;
        let mut blocks = 0;
        let mut homes = Vec::new();
        let is_over = |t: &LiveTx| t.passed || (t.pending == 0 && t.stamp < below);
        while self.live.front().is_some_and(is_over) {
            let Some(tx) = self.live.pop_front() else {
                break;
            };
            blocks += tx.blocks;
            homes.extend(tx.homes.into_iter().map(|nr| (nr, tx.id)));
        }
        if blocks == 0 {
            return None;
        }
        let live = self.live.front().map(|t| (t.id.seq, t.at));
        let durable = self.durable.front().map(|d| (d.id.seq, d.at));
        let (seq, next) = live
            .or(durable)
            .or(self.committing)
            .unwrap_or((self.next_seq, self.head));
        let tail = LogTail {
            seq,
            at: Some(next),
        };
        Some(Reaped {
            lane: self.lane,
            at,
            blocks,
            tail,
            homes,
        })
    }
}

pub(crate) struct CheckpointList {
    pub lanes: Vec<LaneLog>,
    /// Newest valid image per block that must still go home.
    pub pending: BTreeMap<BlockNr, Pending>,
    /// Blocks whose home write is under way.
    pub inflight: HashSet<BlockNr>,
    /// Newest transaction in the live log that holds an image of the block: who frees such a
    /// block must revoke it.
    index: HashMap<BlockNr, TxId>,
    /// Images that were replaced before they went home, of the canary that sends them, too.
    pub older: BTreeMap<BlockNr, HomeImage>,
    canary: Canary,
}

impl CheckpointList {
    pub(crate) fn new(media: &[Box<dyn Medium>], canary: Canary) -> CheckpointList {
        let lanes = media
            .iter()
            .zip(0..)
            .map(|(m, lane)| LaneLog {
                lane: Lane(lane),
                head: m.tail().at.unwrap_or(m.first()),
                live: VecDeque::new(),
                durable: VecDeque::new(),
                committing: None,
                opened: None,
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
    /// The log has no such lane.
    pub(crate) fn lane(&mut self, lane: Lane) -> Result<&mut LaneLog> {
        let log = self.lanes.get_mut(usize::from(lane.0));
        log.ok_or_else(|| no_lane(lane))
    }

    /// Of each lane the newest durable transaction.
    pub(crate) fn newest_durable(&self) -> Vec<TxId> {
        let newest = |(lane, log): (u16, &LaneLog)| TxId {
            lane: Lane(lane),
            seq: log
                .committing
                .map_or(log.next_seq, |(seq, _)| seq)
                .saturating_sub(1),
        };
        (0..).zip(&self.lanes).map(newest).collect()
    }

    /// Notes that `tx` will have images of these blocks in the log.
    pub(crate) fn index_images(&mut self, tx: TxId, homes: &[BlockNr]) {
        for nr in homes {
            self.index.insert(*nr, tx);
        }
    }

    /// Whether the live log has, or will have, an image of the block.
    pub(crate) fn is_live(&self, nr: BlockNr) -> bool {
        self.index.contains_key(&nr)
    }

    /// The live images of a run.
    pub(crate) fn live_in(&self, start: BlockNr, count: u64) -> Vec<BlockNr> {
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
        let at = lane.live.binary_search_by_key(&id.seq, |t| t.id.seq).ok()?;
        lane.live.get_mut(at)
    }

    /// An image no longer waits to go home: it is there, or a newer one or a revoke took its place.
    ///
    /// # Errors
    /// Its transaction counts no such image: the log may not hold what was not home
    /// (checkpoint.K2).
    pub(crate) fn settle(&mut self, id: TxId) -> Result<()> {
        let is_early = self.canary.tail_early || self.canary.pass_chained;
        match self.live_tx(id) {
            Some(tx) if tx.pending > 0 => tx.pending -= 1,
            _ if is_early => {}
            _ => {
                return Err(JournalError::Aborted(format!(
                    "checkpoint.K2: an image waited to go home of transaction {} of lane {}, which counts none",
                    id.seq, id.lane.0
                )));
            }
        }
        Ok(())
    }

    /// Drops pending home writes of freed blocks; says how many.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub(crate) fn drop_pending(&mut self, freed: &[(BlockNr, u64)]) -> Result<u64> {
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

    /// Whether a home write of one of these blocks is under way.
    pub(crate) fn in_flight(&self, freed: &[(BlockNr, u64)]) -> bool {
        !self.inflight.is_empty()
            && freed.iter().any(|(start, count)| {
                let end = start.saturating_add(*count);
                self.inflight.iter().any(|nr| (*start..end).contains(nr))
            })
    }

    /// The lane of the oldest durable transaction of those that are valid up to `fronts`. Between
    /// lanes stamps say what is older; in one, its order.
    ///
    /// # Errors
    /// There is a lane of which `fronts` says nothing.
    pub(crate) fn oldest_durable(&self, fronts: &HashMap<Lane, u64>) -> Result<Option<Lane>> {
        let mut oldest: Option<(Stamp, Lane)> = None;
        for log in &self.lanes {
            let front = front(fronts, log.lane)?;
            if let Some(tx) = log.durable.front().filter(|tx| tx.id.seq <= front) {
                let this = (tx.stamp, log.lane);
                oldest = Some(oldest.map_or(this, |oldest| oldest.min(this)));
            }
        }
        Ok(oldest.map(|(_, lane)| lane))
    }

    /// Makes a transaction's images the ones to go home; says how many older ones they replaced.
    ///
    /// # Errors
    /// Its lane is not there; as [`settle`](Self::settle).
    pub(crate) fn accept(&mut self, tx: Durable) -> Result<(u64, Vec<AfterCommit>)> {
        let mut replaced = 0;
        let canary = &self.canary;
        let passed = canary.tail_early || (canary.pass_chained && !tx.edges.is_none());
        self.lane(tx.id.lane)?.live.push_back(LiveTx {
            id: tx.id,
            stamp: tx.stamp,
            at: tx.at,
            blocks: tx.blocks,
            passed,
            homes: tx.homes,
            pending: tx.images.len() as u64,
            since: Instant::now(),
        });
        for (nr, image) in tx.images {
            debug_assert!(
                self.pending.get(&nr).is_none_or(|p| p.stamp < image.stamp),
                "an older image of block {nr} in place of a newer one"
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

    /// The stamp of the oldest transaction, in any lane, that has an image to go home.
    fn oldest_pending(&self) -> Stamp {
        let of_lane = |log: &LaneLog| log.live.iter().find(|t| t.pending > 0).map(|t| t.stamp);
        let oldest = self.lanes.iter().filter_map(of_lane).min();
        oldest.unwrap_or(Stamp::MAX)
    }

    /// Takes transactions off the lanes that are wholly home, and older than all that are not
    /// (checkpoint.K3).
    pub(crate) fn reap(&mut self) -> Vec<Reaped> {
        let below = match self.canary.reap_alone {
            true => Stamp::MAX,
            false => self.oldest_pending(),
        };
        let lanes = self.lanes.iter_mut();
        lanes.filter_map(|lane| lane.reap(below)).collect()
    }

    /// What was reaped is out of the log for good (checkpoint.K4).
    pub(crate) fn forget(&mut self, homes: &[(BlockNr, TxId)]) {
        for (nr, tx) in homes {
            if self.index.get(nr) == Some(tx) {
                self.index.remove(nr);
            }
        }
    }

    /// Lowest opening stamp among transactions between snapshot and validity.
    pub(crate) fn oldest_opening(&self) -> Option<Stamp> {
        self.lanes.iter().filter_map(|l| l.opened).min()
    }

    /// Age of the oldest transaction that keeps log space.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lanes
            .iter()
            .filter_map(|l| l.live.front().map(|t| t.since))
            .min()
    }
}
