//! A device in memory with a volatile write cache, for models: the start and the end of each
//! request are steps.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stetfs_block::{BlockDevice, BlockError, MemDevice, Op, Read, Result, Stats, Write};
use stetfs_nvm::MemRegion;
use stetfs_sync::plain::atomic::{AtomicU64, Ordering};
use stetfs_sync::plain::shuttle::rand::{Rng, thread_rng};

use super::acks::{Acks, Promise};
use super::memory::Stores;

/// A write that is not durable.
struct Pending {
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// The state after a cut: the disk, the memory if there is one, and the promises up to then.
pub struct Cut {
    pub device: MemDevice,
    pub region: Option<MemRegion>,
    pub promise: Promise,
}

struct State {
    /// The content that reads see.
    now: MemDevice,
    /// The durable content.
    kept: MemDevice,
    pending: Vec<Pending>,
    /// The number of writes and discards so far.
    writes: u64,
    /// The number of steps so far, and below it the state that a cut at one of them left.
    steps: u64,
    cut: Option<Cut>,
    /// The flush that fails, counted from the next one.
    fails: Option<u64>,
}

/// A disk in memory. A flush makes writes durable that ended before it began. Other writes may or
/// may not survive a cut. A flush that fails drops, when it begins, all writes that are not
/// durable, even those that a concurrent flush has begun to flush; the concurrent flush succeeds.
pub struct Disk {
    /// Held without a step of the model.
    state: Mutex<State>,
    /// An access to it is a step of the model.
    step: AtomicU64,
    acks: Acks,
    memory: Option<Arc<Stores>>,
    size: u64,
}

impl Disk {
    /// A disk; `memory` loses its power at the same moment.
    pub fn new(inner: MemDevice, memory: Option<Arc<Stores>>, acks: Acks) -> Disk {
        Disk {
            size: inner.size(),
            state: Mutex::new(State {
                kept: inner.fork(),
                now: inner,
                pending: Vec::new(),
                writes: 0,
                steps: 0,
                cut: None,
                fails: None,
            }),
            step: AtomicU64::new(0),
            acks,
            memory,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step of the model: another thread may go on, and the power may go.
    fn step(&self) -> MutexGuard<'_, State> {
        self.step.fetch_add(1, Ordering::SeqCst);
        let mut s = self.state();
        s.steps += 1;
        // Each step is equally likely to be the one with the cut.
        if thread_rng().gen_range(0..s.steps) == 0 {
            s.cut = Some(self.cut(&s));
        }
        s
    }

    /// A step without an effect on the disk.
    pub fn elsewhere(&self) {
        drop(self.step());
    }

    /// Starts the part of a run in which the power may go.
    pub fn begin(&self) {
        let mut s = self.state();
        s.steps = 0;
        s.cut = None;
    }

    /// Has the `n`th flush from now on fail, counted from 0.
    pub fn fail(&self, n: u64) {
        self.state().fails = Some(n);
    }

    /// The state after a cut at some step, and after one now, each with the promises up to then.
    pub fn cuts(&self) -> Vec<Cut> {
        let mut s = self.state();
        let now = self.cut(&s);
        s.cut.take().into_iter().chain([now]).collect()
    }

    fn cut(&self, now: &State) -> Cut {
        Cut {
            device: now.image(),
            region: self.memory.as_ref().map(|memory| memory.image()),
            promise: self.acks.now(),
        }
    }
}

impl State {
    /// The device after a cut now: durable content, and some of the other writes.
    fn image(&self) -> MemDevice {
        let image = self.kept.fork();
        let mut rng = thread_rng();
        let (all, none) = (rng.gen_range(0..4) == 0, rng.gen_range(0..3) == 0);
        for write in &self.pending {
            if all || (!none && rng.gen_range(0..2) == 0) {
                put(&image, write);
            }
        }
        image
    }
}

fn put(device: &MemDevice, write: &Pending) {
    device
        .write(write.offset, &write.bytes)
        .expect("it was written before");
}

impl BlockDevice for Disk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        512
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.state().now.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        for write in writes {
            let mut s = self.step();
            s.now.write_batch(std::slice::from_ref(write))?;
            s.writes += 1;
            let new = Pending {
                number: s.writes,
                offset: write.offset,
                bytes: write.data.to_vec(),
            };
            match write.fua {
                true => put(&s.kept, &new),
                false => s.pending.push(new),
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let (upto, fails) = {
            let mut s = self.step();
            let fails = s.fails == Some(0);
            s.fails = s.fails.and_then(|n| n.checked_sub(1));
            if fails {
                s.pending.clear();
            }
            (s.writes, fails)
        };
        let mut s = self.step();
        if fails {
            let eio = std::io::Error::from_raw_os_error(5);
            return Err(BlockError::io(Op::Flush, 0, 0, eio));
        }
        let (durable, rest) = std::mem::take(&mut s.pending)
            .into_iter()
            .partition(|write| write.number <= upto);
        s.pending = rest;
        let durable: Vec<Pending> = durable;
        durable.iter().for_each(|write| put(&s.kept, write));
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let zeros = vec![0; (range.end - range.start) as usize];
        self.write(range.start, &zeros)
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}
