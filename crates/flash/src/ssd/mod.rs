//! A simulated SSD: a translation layer with content, as a block device.

mod content;
mod state;

use std::ops::Range;

use stetfs_block::{
    BlockDevice, Counters, Op, Read, Result, SECTOR, Share, ShareLimits, SharePair, Stats, Write,
    check_range, check_share,
};
use stetfs_sync::timed::Mutex;

use crate::clock::{Clock, Kind, Request};
use crate::ftl::{self, BlockView, Ftl, PAGE, Tally, Wear};
use crate::model::Model;
use crate::pace::Pace;
use crate::volatile::{Kept, PowerCut};
use state::State;

/// The report of a device's work on its flash.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Report {
    /// Counts of pages, erasures and merges.
    pub counters: ftl::Counters,
    /// Write amplification: pages programmed per page that the host wrote.
    pub waf: f64,
    /// Number of logical pages that share a physical page with another one.
    pub references: u64,
    /// The wear of the blocks.
    pub wear: Wear,
}

/// A device whose content is on simulated flash behind a translation layer. It can share if the
/// layer can. Its power can be cut; then it starts again from the flash.
pub struct Ssd {
    size: u64,
    state: Mutex<State>,
    share: Option<ftl::ShareLimits>,
    pace: Option<(Pace, Model)>,
    counters: Counters,
}

impl Ssd {
    /// An erased device of the layer's capacity. With `volatile` writes wait in a cache for a
    /// flush, and a power cut may lose them; otherwise they are on the flash when the request
    /// returns.
    pub fn new(mut ftl: Box<dyn Ftl>, volatile: bool) -> Ssd {
        Ssd {
            size: ftl.capacity() * PAGE,
            share: ftl.sharing().map(|sharing| sharing.limits()),
            state: Mutex::new(State::new(ftl, volatile)),
            pace: None,
            counters: Counters::default(),
        }
    }

    /// The same device, whose requests take the time of a model, and the time of the layer's moves
    /// and erasures.
    pub fn timed(mut self, model: Model) -> Ssd {
        self.pace = Some((Pace::new(Clock::new(model, self.size)), model));
        self
    }

    /// The same device in simulated time, which advances only while a request waits. No thread
    /// sleeps, and the same requests always take the same time. For one thread; the host's own work
    /// takes no time.
    pub fn simulated(mut self, model: Model) -> Ssd {
        self.pace = Some((Pace::simulated(Clock::new(model, self.size)), model));
        self
    }

    /// A copy in the same state, which takes no time; its requests are counted from 0.
    pub fn duplicate(&self) -> Ssd {
        Ssd {
            size: self.size,
            state: Mutex::new(self.state.lock().duplicate()),
            share: self.share,
            pace: None,
            counters: Counters::default(),
        }
    }

    /// Cuts the power after `steps` steps of the flash, perhaps inside a request. The host does not
    /// notice until the power is [cut](PowerCut::cut_power). For tests.
    pub fn cut_after(&self, steps: u64) {
        self.state.lock().ftl.cut_after(steps);
    }

    /// Nanoseconds since the device began to take time; 0 without a model.
    pub fn now(&self) -> u64 {
        self.pace.as_ref().map_or(0, |(pace, _)| pace.now())
    }

    /// The report of its work.
    pub fn report(&self) -> Report {
        let state = self.state.lock();
        let counters = state.ftl.counters();
        Report {
            counters,
            waf: counters.waf(),
            references: state.ftl.references(),
            wear: Wear::of(&state.ftl.blocks()),
        }
    }

    /// Number of pages of an erase block.
    pub fn block_pages(&self) -> u32 {
        self.state.lock().ftl.geometry().block_pages
    }

    /// The erase blocks, by number.
    pub fn blocks(&self) -> Vec<BlockView> {
        self.state.lock().ftl.blocks()
    }

    /// Runs `work` on the layer. With a model it returns when `requests` would complete; the last
    /// one includes the layer's additional work.
    fn run(
        &self,
        mut requests: Vec<Request>,
        flush: bool,
        work: impl FnOnce(&mut State, &mut Tally) -> Result<()>,
    ) -> Result<()> {
        let mut tally = Tally::default();
        let mut state = self.state.lock();
        let result = work(&mut state, &mut tally);
        let Some((pace, model)) = &self.pace else {
            return result;
        };
        if let Some(last) = requests.last_mut() {
            last.extra = model.beside(&tally, state.ftl.geometry().block_pages);
        }
        // Asked under the lock, so that the clock sees requests in the layer's order.
        let done = pace.ask(|clock, now| {
            let done = clock.run(now, requests);
            if flush { clock.flush(done) } else { done }
        });
        drop(state);
        pace.wait(done);
        result
    }
}

/// A request for the clock, in whole pages.
fn request(kind: Kind, offset: u64, len: u64) -> Request {
    let start = offset / PAGE * PAGE;
    Request {
        kind,
        offset: start,
        len: (offset + len).div_ceil(PAGE) * PAGE - start,
        extra: 0,
    }
}

impl BlockDevice for Ssd {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        SECTOR
    }

    fn read_only(&self) -> bool {
        false
    }

    fn has_fua(&self) -> bool {
        true
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads.iter() {
            check_range(Op::Read, read.offset, read.len(), self.size)?;
        }
        let requests = reads.iter().map(|r| request(Kind::Read, r.offset, r.len()));
        self.run(requests.collect(), false, |state, tally| {
            for read in reads {
                self.counters.read(1, read.len());
                state.read(read, tally)?;
            }
            Ok(())
        })
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        for write in writes {
            check_range(Op::Write, write.offset, write.len(), self.size)?;
        }
        let requests = writes.iter().map(|w| {
            let kind = if w.fua {
                Kind::WriteThrough
            } else {
                Kind::Write
            };
            request(kind, w.offset, w.len())
        });
        self.run(requests.collect(), false, |state, tally| {
            for write in writes {
                self.counters.write(1, write.len());
                state.write(write, tally)?;
            }
            Ok(())
        })
    }

    fn flush(&self) -> Result<()> {
        self.counters.flush();
        let nothing = request(Kind::Write, 0, 0);
        self.run(vec![nothing], true, |state, tally| state.flush(tally))
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        check_range(Op::Discard, range.start, len, self.size)?;
        self.counters.discard(len);
        let nothing = request(Kind::Write, range.start, 0);
        self.run(vec![nothing], false, |state, tally| {
            state.trim(&range, tally).map(drop)
        })
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        check_range(Op::Write, range.start, len, self.size)?;
        let nothing = request(Kind::Write, range.start, 0);
        let zeros = [0; PAGE as usize];
        self.run(vec![nothing], false, |state, tally| {
            let edges = state.trim(&range, tally)?;
            // Both edges together are shorter than two pages, in at most three parts.
            for edge in edges {
                let mut at = edge.start;
                while at < edge.end {
                    let end = edge.end.min(at + PAGE);
                    let part = &zeros[..(end - at) as usize];
                    state.write(&Write::new(at, part), tally)?;
                    at = end;
                }
            }
            Ok(())
        })
    }

    fn share(&self) -> Option<&dyn Share> {
        self.share.is_some().then_some(self as &dyn Share)
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl Share for Ssd {
    fn limits(&self) -> ShareLimits {
        let (pairs, references) = self.share.map_or((0, 0), |l| (l.pairs, l.references));
        ShareLimits {
            unit: PAGE as u32,
            pairs: u64::from(pairs),
            references: u64::from(references),
            atomic: true,
        }
    }

    /// The batch is durable on return.
    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        check_share(pairs, &self.limits(), self.size)?;
        let pages = pairs.iter().flat_map(|pair| pair.units(PAGE as u32));
        let pages: Vec<_> = pages.map(|(dst, src)| (dst / PAGE, src / PAGE)).collect();
        let nothing = request(Kind::Write, 0, 0);
        self.run(vec![nothing], false, |state, tally| {
            state.share(&pages, tally)
        })?;
        self.counters.share(pairs);
        Ok(())
    }
}

impl PowerCut for Ssd {
    fn has_cache(&self) -> bool {
        self.state.lock().volatile
    }

    fn cut_power(&self, kept: Kept) -> Result<()> {
        self.state.lock().cut_power(kept, &mut Tally::default())
    }
}
