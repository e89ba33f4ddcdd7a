//! The engine, which runs every block-journal scheme: lanes with a running transaction each, a
//! commit thread for all or for each, a sync thread and a checkpoint thread.
//!
//! Each part owns its fields and uses those above it in this table. Operations that need several
//! parts are methods of [`Engine`]:
//!
//! | part | owns |
//! | --- | --- |
//! | [`Base`] | device, cache, settings, counters; the stop of the journal |
//! | [`FlushClock`] | the flush under way, and the threads that share it |
//! | [`Validity`] | the valid and the settled front of each lane |
//! | [`LogSpace`] | rings, heads, tails, the checkpoint list, memory |
//! | [`Lanes`], [`Preparer`] | running transactions, their chains, stamps |
//! | [`RecordState`] | records of files: horizon, recorded data, the gate |
//! | [`Syncs`] | requests for durability |
//!
//! | operation | file |
//! | --- | --- |
//! | handles enter and leave | `begin` |
//! | two lanes change one block | `share` |
//! | prepare: lock a group, take its snapshots | `prepare` |
//! | from the snapshots to durable | `in_flight` |
//! | commit: prepare, write, validate, answer | `commit` |
//! | images are written home | `checkpoint`, `spread` |
//! | requests are served | `service` |
//! | rest (freeze) and wake | `rest` |
//!
//! Locks inside the engine, first to last: `LaneState::run` → `Tx::state` → `LogSpace::list`. Block
//! guards come before these: a thread that holds a block may take them, and the snapshot locks
//! blocks with none of them held.

mod base;
mod begin;
mod changes;
mod checkpoint;
mod commit;
pub(crate) mod config;
mod copies;
mod flush_clock;
mod in_flight;
mod lanes;
mod log_space;
mod prepare;
mod record_state;
mod rest;
mod room;
mod service;
pub(crate) mod share;
mod spread;
mod syncs;
mod validity;

use std::sync::Arc;

use stetfs_ondisk::num::{count16, count32, to_usize};
use stetfs_sync::plain::Mutex;

use crate::error::Result;
use crate::head::Cache;
use crate::ids::{CommitPoint, Credits, Lane};
use crate::limits::{check_rings, max_tx};
use crate::policy::{self, Scheme};
use base::{Base, Wake};
use config::JournalConfig;
use flush_clock::FlushClock;
pub use flush_clock::FlushMark;
use lanes::{Lanes, Preparer};
use log_space::LogSpace;
use record_state::RecordState;
use syncs::Syncs;
use validity::Validity;

/// The main function of a journal's thread.
type ThreadMain = Box<dyn FnOnce(&Engine) + Send>;

/// The parts of a running journal.
pub(crate) struct Engine {
    pub(crate) base: Arc<Base>,
    pub(crate) clock: FlushClock,
    validity: Validity,
    pub(crate) space: LogSpace,
    pub(crate) lanes: Lanes,
    pub(crate) records: RecordState,
    pub(crate) syncs: Syncs,
    preparer: Mutex<Preparer>,
}

impl Engine {
    /// An engine over an empty (recovered) log.
    ///
    /// # Errors
    /// `Unsupported` if a ring is too small for any transaction.
    pub(crate) fn new(
        cache: Arc<Cache>,
        scheme: Scheme,
        config: JournalConfig,
    ) -> Result<Arc<Engine>> {
        let Scheme {
            ordering,
            codec,
            media,
            home,
            records,
        } = scheme;
        check_rings(&*codec, &media)?;
        let next: Vec<u64> = media.iter().map(|medium| medium.tail().seq).collect();
        let next = || next.iter().copied();
        let base = Arc::new(Base::new(cache, codec, config));
        let config = &base.config;
        // Transactions that supersede records are committed one after the other (record.F4).
        let queues = match ordering.commits_apart() && records.is_none() {
            true => count16(media.len()),
            false => 1,
        };
        let engine = Arc::new(Engine {
            clock: FlushClock::new(Arc::clone(&base), queues > 1),
            validity: Validity::new(next()),
            lanes: Lanes::new(ordering, next(), config.first_stamp, config.canary),
            records: RecordState::new(records, config.hold_horizon),
            syncs: Syncs::new(queues, config.commit_secs, config.canary),
            preparer: Mutex::new(Preparer::the_only_one()),
            space: LogSpace::new(Arc::clone(&base), media, home),
            base,
        });
        let weak = Arc::downgrade(&engine);
        engine.base.wakes(weak);
        Ok(engine)
    }

    /// The threads of a journal: the name of each, and its function, which runs until the journal
    /// ends.
    pub(crate) fn threads(&self) -> Vec<(&'static str, ThreadMain)> {
        let mut threads: Vec<(&'static str, ThreadMain)> = vec![
            ("stet-sync", Box::new(Engine::plain_loop)),
            (CHECKPOINT_THREAD, Box::new(Engine::checkpoint_loop)),
        ];
        for queue in 0..self.syncs.queues() {
            let commits = move |engine: &Engine| engine.commit_loop(queue);
            threads.push(("stet-commit", Box::new(commits)));
        }
        threads
    }

    /// Has the threads end.
    pub(crate) fn quit(&self) {
        self.base.quit();
        self.syncs.wake();
        self.space.signal.ask();
    }

    /// The most blocks that a transaction of a lane may hold ([`max_tx`]).
    pub(crate) fn max_tx(&self, lane: Lane) -> u64 {
        let base = &self.base;
        let ring = self.space.ring(lane);
        max_tx(
            &*base.codec,
            ring.map_or(0, |ring| ring.medium.capacity()),
            base.config.memory,
            base.block_size(),
        )
    }

    /// The most credits one handle can have, in blocks.
    pub(crate) fn max_credits(&self) -> Credits {
        count32(to_usize(self.max_tx(Lane(0)))).saturating_sub(self.lanes.margin())
    }

    /// Whether everything a point names is durable and valid.
    pub(crate) fn is_valid(&self, point: &CommitPoint) -> bool {
        self.validity.holds(point)
    }

    /// The free log blocks and all log blocks, over all lanes.
    pub(crate) fn log_space(&self) -> (u64, u64) {
        let rings = || self.space.rings().map(|(_, ring)| ring);
        let free = rings().map(|ring| ring.room());
        let all = rings().map(|ring| ring.medium.capacity());
        (free.sum(), all.sum())
    }

    /// Ends the use of the log, durably: it is then as after an unmount.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn retire(&self) -> Result<()> {
        policy::retire(self.records.log(), self.space.media())
    }
}

impl Wake for Engine {
    fn wake_all(&self) {
        self.lanes.wake();
        self.validity.wake();
        self.records.gate().stop();
        self.syncs.wake();
        self.space.wake();
    }
}

/// The name of the checkpoint thread.
pub const CHECKPOINT_THREAD: &str = "stet-ckpt";
