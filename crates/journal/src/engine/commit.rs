//! Commit, in three phases:
//!
//! | phase | what | beside others |
//! | --- | --- | --- |
//! | prepare | lock, end the changes (`group`), take the snapshots | groups that share nothing, side by side |
//! | write | ordered data, then the transactions, laid out and sent | each lane its own, in its order |
//! | seal | one flush for all that are written, what makes them count, validity (`valid`) | a flush serves whoever is ready |
//!
//! Invariants:
//! * **C1** A lane's transactions are written in their order, and sealed in it. One is written while the one before is sealed only where
//!   the format has a seal apart, for there recovery believes nothing that is not sealed.
//! * **C2** Who waits for a turn, or for log space, waits for groups that ended their changes before (G2): nobody waits in a circle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stetfs_block::WriteList;

use super::Inner;
use super::group::{Group, Member};
use super::log::{Durable, InFlight, Log, Pending};
use crate::error::Result;
use crate::ids::{CommitPoint, Ino, Lane, Stamp, TxId};
use crate::policy::{Encoded, LogTail, Medium};
use crate::stats::bump;
use crate::tx::{Snapshot, Tx, TxRest};

/// How long to wait for log space before looking again.
const LOOK: Duration = Duration::from_millis(5);

/// A transaction between its snapshot and the log.
struct Prepared {
    snapshot: Snapshot,
    rest: TxRest,
}

/// A transaction that is written and not sealed.
struct Written<'a> {
    snapshot: Snapshot,
    rest: TxRest,
    medium: &'a dyn Medium,
    at: u64,
    encoded: Encoded,
}

impl Inner {
    /// Commits every running transaction that `point` needs, and makes the dirty data of `data` durable with them; `sealing` is called
    /// when the next commit of these lanes may be written, if that is before this one is durable. Returns whether there was anything to commit here; if not, nothing was
    /// written. What is durable then is valid only when all is that it depends on.
    pub(super) fn commit_group(
        &self,
        point: &CommitPoint,
        data: &[Ino],
        sealing: impl FnOnce(),
    ) -> Result<bool> {
        let started = Instant::now();
        let Some(group) = self.form(point)? else {
            return Ok(false);
        };
        let count = group.members.len() as u64;
        let prepared = self.prepare(group);
        let begun = Instant::now();
        let written = self.write(prepared, data)?;
        if written.iter().all(|tx| !tx.medium.one_flush()) {
            sealing();
        }
        self.seal(written)?;
        self.note_sync_time(begun.elapsed());
        bump(&self.counters.commits, count);
        bump(
            &self.counters.commit_micros,
            started.elapsed().as_micros() as u64,
        );
        Ok(true)
    }

    /// Takes the snapshots of a group, and opens its lanes when all are taken (T4).
    fn prepare(&self, group: Group) -> Vec<Prepared> {
        let floor = group.floor;
        let prepared = group
            .members
            .iter()
            .map(|member| self.take_snapshot(member, floor))
            .collect();
        for Member { tx, .. } in group.members {
            let next = TxId {
                lane: tx.id.lane,
                seq: tx.id.seq + 1,
            };
            self.unlock(next.lane, Some(Arc::new(Tx::new(next))));
        }
        prepared
    }

    fn take_snapshot(&self, Member { tx, stamp }: &Member, floor: Stamp) -> Prepared {
        let (snapshot, rest) = tx.snapshot(*stamp, floor);
        let mut log = self.log.lock();
        log.begin(
            InFlight::new(tx.id, *stamp, rest.opened),
            snapshot.images.iter().map(|i| i.nr),
        );
        drop(log);
        self.pinned
            .fetch_add(snapshot.images.len() as u64, Ordering::Relaxed);
        Prepared { snapshot, rest }
    }

    /// Sends the transactions of a group, and the data that goes before them.
    fn write(&self, txs: Vec<Prepared>, data: &[Ino]) -> Result<Vec<Written<'_>>> {
        for tx in &txs {
            self.await_turn(tx.snapshot.id, Log::may_write)?;
        }
        let mut data = data.to_vec();
        data.extend(txs.iter().flat_map(|tx| &tx.rest.ordered));
        data.sort_unstable();
        data.dedup();
        if !data.is_empty() && txs.iter().any(|tx| self.seals_by_flush(tx.snapshot.id)) {
            self.write_data(&data, &WriteList::new())?;
            self.flush_shared()?;
            data.clear();
        }
        let mut written = Vec::with_capacity(txs.len());
        for tx in txs {
            written.extend(self.lay_out(tx)?);
        }
        let mut list = WriteList::new();
        for tx in &written {
            list.extend(&tx.medium.blocks(tx.at, &tx.encoded, self.barrier()));
        }
        let begun = Instant::now();
        self.write_data(&data, &list)?;
        self.scheme.codec.wrote(list.bytes(), begun.elapsed());
        drop(list);
        let mut log = self.log.lock();
        for tx in written.iter().filter(|tx| !tx.medium.one_flush()) {
            log.pass(tx.snapshot.id);
        }
        self.log_changed.notify_all();
        Ok(written)
    }

    fn seals_by_flush(&self, tx: TxId) -> bool {
        let medium = self.scheme.media.get(usize::from(tx.lane.0));
        medium.is_some_and(|medium| medium.one_flush())
    }

    /// Waits until what runs in a lane could be written.
    pub(super) fn await_room_behind(&self, lane: Lane) -> Result<()> {
        let running = self.slot(lane).run.lock().tx.id;
        self.await_turn(running, Log::may_write)
    }

    /// Waits until the transactions of its lane that go before have come far enough (C1).
    fn await_turn(&self, tx: TxId, may: fn(&Log, TxId) -> bool) -> Result<()> {
        let mut log = self.log.lock();
        while !may(&log, tx) {
            self.check()?;
            self.log_changed.wait(&mut log);
        }
        Ok(())
    }

    /// Makes log blocks of a transaction, at the head of its lane.
    fn lay_out(&self, Prepared { snapshot, rest }: Prepared) -> Result<Option<Written<'_>>> {
        let id = snapshot.id;
        let lane = usize::from(id.lane.0);
        let (Some(medium), Some(free)) = (self.scheme.media.get(lane), self.free.get(lane)) else {
            return Ok(None);
        };
        let (images, revokes) = (snapshot.images.len() as u64, snapshot.revokes.len() as u64);
        let reserved = self.scheme.codec.bound(images, revokes);
        // Only older transactions hold space, and once they are valid a checkpoint gets it. Revokes can exceed what `begin`
        // foresaw; then this is where the wait is.
        while free.load(Ordering::Acquire) < reserved {
            bump(&self.counters.forced_checkpoints, 1);
            self.checkpoint_all()?;
            let mut log = self.log.lock();
            if free.load(Ordering::Acquire) < reserved {
                self.check()?;
                self.log_changed.wait_for(&mut log, LOOK);
            }
        }
        free.fetch_sub(reserved, Ordering::AcqRel);
        // Nobody else moves the head (C1).
        let Some(at) = self.log.lock().lanes.get(lane).map(|l| l.head) else {
            return Ok(None);
        };
        let encoded = self.scheme.codec.encode(&snapshot, &mut |from, blocks| {
            medium.write_early(medium.advance(at, from), blocks)
        })?;
        let blocks = encoded.blocks();
        debug_assert!(blocks <= reserved, "{blocks} log blocks, bound {reserved}");
        free.fetch_add(reserved - blocks, Ordering::AcqRel);
        self.log.lock().place(id, at, medium.advance(at, blocks));
        if medium.tail().at.is_none() {
            // The header says "empty"; it must point here before this commit counts.
            medium.set_tail(
                LogTail {
                    seq: id.seq,
                    at: Some(at),
                },
                self.barrier(),
            )?;
        }
        Ok(Some(Written {
            snapshot,
            rest,
            medium: &**medium,
            at,
            encoded,
        }))
    }

    /// Makes what is written durable, under a flush that serves others as well, and makes it count.
    fn seal(&self, txs: Vec<Written<'_>>) -> Result<()> {
        self.flush_shared()?;
        for tx in &txs {
            self.await_turn(tx.snapshot.id, Log::may_seal)?;
            tx.medium.seal(tx.at, &tx.encoded, self.barrier())?;
        }
        let lanes: Vec<usize> = txs
            .iter()
            .map(|tx| usize::from(tx.snapshot.id.lane.0))
            .collect();
        let durable: Vec<Durable> = txs.into_iter().map(|tx| self.durable(tx)).collect();
        let mut log = self.log.lock();
        durable.into_iter().for_each(|tx| log.end(tx));
        self.log_changed.notify_all();
        drop(log);
        if lanes.into_iter().any(|lane| self.is_half_full(lane)) {
            self.kick.look();
        }
        Ok(())
    }

    fn durable(&self, tx: Written<'_>) -> Durable {
        let Written {
            snapshot,
            rest,
            medium,
            at,
            encoded,
        } = tx;
        let block_size = self.cache.block_size() as u64;
        let images = snapshot.images.len() as u64;
        let counters = &self.counters;
        bump(&counters.blocks_logged, encoded.blocks());
        bump(&counters.bytes_logged, encoded.blocks() * block_size);
        bump(&counters.bytes_packed, images * block_size);
        let packing = encoded.packing;
        bump(&counters.chunks_raw, packing.raw);
        bump(&counters.chunks_lz4, packing.lz4);
        bump(&counters.chunks_zstd, packing.zstd);
        bump(&counters.packing_micros, packing.time.as_micros() as u64);
        let homes = snapshot.images.iter().map(|i| i.nr).collect();
        let images = snapshot.images.into_iter().zip(&encoded.verbatim);
        let images = images.map(|(image, place)| {
            let pending = Pending {
                id: snapshot.id,
                stamp: snapshot.stamp,
                page: image.page,
                _block: image.block,
                in_log: place.map(|i| medium.advance(at, u64::from(i))),
            };
            (image.nr, pending)
        });
        Durable {
            id: snapshot.id,
            stamp: snapshot.stamp,
            opened: rest.opened,
            floor: snapshot.floor,
            images: images.collect(),
            edges: snapshot.edges,
            freed: rest.freed,
            after: rest.after,
            at,
            blocks: encoded.blocks(),
            homes,
        }
    }
}
