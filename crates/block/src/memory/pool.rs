//! The pool: the regions of the process, and their free pieces.
//!
//! A region is *bare* (without memory), *ready* (with memory, no piece in use), or cut into pieces
//! of one class. Free pieces of cut regions are used first, then ready regions. Without either a
//! bare region is cut: its user makes the first access, so no thread waits for the preparing
//! thread.

use std::ptr::NonNull;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::region::{REGION, Region};

/// Bytes of the pieces of each class.
pub(crate) const CLASSES: [usize; 5] = [1 << 10, 2 << 10, 4 << 10, 64 << 10, 1 << 20];

/// Number of ready regions on an idle system: the start of a burst uses them.
pub(super) const IDLE: usize = 2;
/// Maximum number of ready regions under heavy use.
pub(super) const AHEAD: usize = 32;
/// Number of free regions that are kept while the system is not idle.
const KEPT: usize = AHEAD;
/// Time without a use of a ready region after which the system is idle.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// A piece of a region: its address, and the number of the region.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) ptr: NonNull<u8>,
    pub(super) region: u32,
}

/// The process's memory for blocks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes of regions in use.
    pub in_use: u64,
    /// Bytes of free pieces in them.
    pub free: u64,
    /// Bytes prepared for later use.
    pub ready: u64,
    /// Number of regions that were ready when needed, since the process began.
    pub prepared: u64,
    /// Number of regions that were not.
    pub unprepared: u64,
}

/// A region that is cut into pieces.
struct Cut {
    class: usize,
    /// Numbers of the free pieces.
    free: Vec<u16>,
    /// Index in the list of its class, if it has free pieces.
    at: Option<usize>,
}

impl Cut {
    fn pieces(&self) -> usize {
        REGION / CLASSES[self.class]
    }
}

pub(super) struct State {
    regions: Vec<(Region, Option<Cut>)>,
    bare: Vec<u32>,
    ready: Vec<u32>,
    /// Regions with free pieces, of each class.
    open: [Vec<u32>; CLASSES.len()],
    /// Number of cut regions, and of regions in preparation.
    cut: usize,
    preparing: usize,
    /// Maximum bytes in use and ready together; preparing stops there.
    bound: u64,
    /// Number of regions that should be ready.
    goal: usize,
    prepared: u64,
    unprepared: u64,
    /// Users of the preparing thread.
    pub(super) preparers: usize,
}

/// The next job of the preparing thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Job {
    Prepare(u32),
    GiveBack(u32),
}

/// The pool of memory pieces.
pub(super) struct Pool {
    pub(super) state: Mutex<State>,
    /// Signals that a region was taken, or that the goal or the bound changed.
    pub(super) changed: Condvar,
}

impl Pool {
    pub(super) const fn new() -> Pool {
        Pool {
            state: Mutex::new(State::new()),
            changed: Condvar::new(),
        }
    }

    /// Calls `put` with up to `most` pieces of `class`. There are fewer, perhaps none, only when
    /// the kernel has no address space.
    pub(super) fn take(&self, class: usize, most: usize, mut put: impl FnMut(Piece)) {
        let mut state = self.state.lock();
        let before = state.taken();
        for _ in 0..most {
            match state.take(class) {
                Some(piece) => put(piece),
                None => break,
            }
        }
        let wake = state.taken() > before;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Takes pieces back.
    pub(super) fn give(&self, pieces: impl Iterator<Item = Piece>) {
        let mut state = self.state.lock();
        for piece in pieces {
            state.give(piece);
        }
        if state.ready.len() <= KEPT {
            return;
        }
        if state.preparers > 0 {
            // Returning memory takes long: the preparing thread does it.
            drop(state);
            self.changed.notify_one();
            return;
        }
        let over = state.ready.len() - KEPT;
        let spare: Vec<u32> = state.ready.drain(..over).collect();
        let regions: Vec<Region> = spare.iter().map(|nr| state.region(*nr)).collect();
        drop(state);
        for region in regions {
            // SAFETY: no piece of a ready region is in use, and the region is in no list now, so
            // none will be.
            unsafe { region.give_back() };
        }
        self.state.lock().bare.extend(spare);
    }

    pub(super) fn stats(&self) -> MemoryStats {
        let state = self.state.lock();
        let free = |nr: &u32| {
            let cut = state.regions[*nr as usize].1.as_ref();
            cut.map_or(0, |cut| cut.free.len() * CLASSES[cut.class])
        };
        let free: usize = state.open.iter().flatten().map(free).sum();
        MemoryStats {
            in_use: (state.cut * REGION) as u64,
            free: free as u64,
            ready: (state.ready.len() * REGION) as u64,
            prepared: state.prepared,
            unprepared: state.unprepared,
        }
    }
}

impl State {
    const fn new() -> State {
        State {
            regions: Vec::new(),
            bare: Vec::new(),
            ready: Vec::new(),
            open: [const { Vec::new() }; CLASSES.len()],
            cut: 0,
            preparing: 0,
            bound: 0,
            goal: 0,
            prepared: 0,
            unprepared: 0,
            preparers: 0,
        }
    }

    pub(super) fn region(&self, nr: u32) -> Region {
        self.regions[nr as usize].0
    }

    /// The number of a bare region, taken out of its list.
    fn bare(&mut self) -> Option<u32> {
        if self.bare.is_empty() {
            let first = u32::try_from(self.regions.len()).ok()?;
            let new = Region::map();
            // The lowest address is taken first.
            self.bare
                .extend((first..first.checked_add(new.len() as u32)?).rev());
            self.regions.extend(new.into_iter().map(|r| (r, None)));
        }
        self.bare.pop()
    }

    fn take(&mut self, class: usize) -> Option<Piece> {
        let nr = match self.open[class].last() {
            Some(nr) => *nr,
            None => self.cut_one(class)?,
        };
        let (region, cut) = &mut self.regions[nr as usize];
        let cut = cut.as_mut()?;
        let index = cut.free.pop()?;
        if cut.free.is_empty() {
            cut.at = None;
            self.open[class].pop();
        }
        Some(Piece {
            ptr: region.at(usize::from(index) * CLASSES[class]),
            region: nr,
        })
    }

    /// Cuts another region into pieces of `class`.
    fn cut_one(&mut self, class: usize) -> Option<u32> {
        let nr = match self.ready.pop() {
            Some(nr) => {
                self.prepared += 1;
                self.goal = (self.goal * 2).clamp(IDLE, AHEAD);
                nr
            }
            None => {
                self.unprepared += 1;
                self.goal = AHEAD;
                self.bare()?
            }
        };
        let pieces = (REGION / CLASSES[class]) as u16;
        self.regions[nr as usize].1 = Some(Cut {
            class,
            // Consecutive pieces have ascending addresses.
            free: (0..pieces).rev().collect(),
            at: Some(self.open[class].len()),
        });
        self.open[class].push(nr);
        self.cut += 1;
        Some(nr)
    }

    fn give(&mut self, piece: Piece) {
        let (region, cut) = &mut self.regions[piece.region as usize];
        let Some(cut) = cut.as_mut() else { return };
        let class = cut.class;
        cut.free
            .push((region.offset_of(piece.ptr) / CLASSES[class]) as u16);
        let open = &mut self.open[class];
        let at = *cut.at.get_or_insert(open.len());
        if at == open.len() {
            open.push(piece.region);
        }
        if cut.free.len() == cut.pieces() {
            open.swap_remove(at);
            if let Some(moved) = open.get(at).copied()
                && let Some(moved) = self.regions[moved as usize].1.as_mut()
            {
                moved.at = Some(at);
            }
            self.regions[piece.region as usize].1 = None;
            self.cut -= 1;
            self.ready.push(piece.region);
        }
    }

    /// Raises the bound of bytes in use and ready by `more`, and lowers it by `fewer`.
    pub(super) fn allow(&mut self, more: u64, fewer: u64) {
        self.bound = self.bound.saturating_add(more).saturating_sub(fewer);
        self.goal = self.goal.max(IDLE);
    }

    /// The next job, if there is one.
    pub(super) fn job(&mut self) -> Option<Job> {
        let all = self.cut + self.ready.len() + self.preparing;
        let within = (all as u64 + 1) * REGION as u64 <= self.bound;
        if self.ready.len() + self.preparing < self.goal && within {
            self.preparing += 1;
            let bare = self.bare().map(Job::Prepare);
            self.preparing -= usize::from(bare.is_none());
            return bare;
        }
        // Free regions may stay while the system is not idle. A few may always stay, so that they
        // do not come and go.
        let (bound, idle) = match self.bound {
            0 => (0, 0),
            bound => (bound, IDLE),
        };
        let most = if self.goal > IDLE { KEPT } else { idle };
        let over = (all as u64) * REGION as u64 > bound && self.ready.len() > idle;
        let over = over || self.ready.len() > most;
        match over {
            true => self.ready.pop().map(Job::GiveBack),
            false => None,
        }
    }

    /// Whether so few regions are ready that further users will not find one.
    pub(super) fn is_short(&self) -> bool {
        self.ready.len() < IDLE
    }

    /// Notes that a job is done; `well` is its success.
    pub(super) fn done(&mut self, job: &Job, well: bool) {
        match *job {
            Job::Prepare(nr) => {
                self.preparing -= 1;
                match well {
                    true => self.ready.push(nr),
                    false => {
                        // There is no memory: prepare no more until a region is taken.
                        self.bare.push(nr);
                        self.goal = 0;
                    }
                }
            }
            Job::GiveBack(nr) => self.bare.push(nr),
        }
    }

    /// Regions taken since the process began.
    pub(super) fn taken(&self) -> u64 {
        self.prepared + self.unprepared
    }

    /// Whether the goal is above that of an idle system.
    pub(super) fn busy(&self) -> bool {
        self.goal > IDLE
    }

    /// Notes that nothing was taken for a while.
    pub(super) fn quiet(&mut self) {
        self.goal = IDLE;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PAGES: usize = 2;
    const EACH: usize = REGION / CLASSES[PAGES];

    fn take(pool: &Pool, class: usize, n: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        pool.take(class, n, |piece| pieces.push(piece));
        pieces
    }

    /// Does all jobs, and returns how many prepared and gave back.
    fn work(pool: &Pool) -> (usize, usize) {
        let (mut prepared, mut given) = (0, 0);
        let mut state = pool.state.lock();
        while let Some(job) = state.job() {
            match job {
                Job::Prepare(_) => prepared += 1,
                Job::GiveBack(_) => given += 1,
            }
            state.done(&job, true);
        }
        (prepared, given)
    }

    #[test]
    fn pieces_are_aligned_apart_and_used_again() {
        let pool = Pool::new();
        for (class, size) in CLASSES.into_iter().enumerate() {
            let n = 3 * REGION / size;
            let pieces = take(&pool, class, n);
            let places: HashSet<usize> = pieces.iter().map(|p| p.ptr.addr().get()).collect();
            assert_eq!(places.len(), n);
            assert!(places.iter().all(|at| at % size.min(4096) == 0));
            let mut sorted: Vec<_> = places.iter().collect();
            sorted.sort();
            assert!(sorted.windows(2).all(|two| two[1] - two[0] >= size));
            pool.give(pieces.into_iter());
            let again = take(&pool, class, n);
            assert!(again.iter().all(|p| places.contains(&p.ptr.addr().get())));
            pool.give(again.into_iter());
        }
        // A region that is wholly free serves another class.
        assert_eq!(pool.state.lock().regions.len(), 32);
    }

    #[test]
    fn what_is_ready_is_taken_first_and_more_is_prepared_for_who_uses_much() {
        let pool = Pool::new();
        pool.state.lock().allow(1 << 30, 0);
        assert_eq!(work(&pool), (IDLE, 0));
        let mut pieces = take(&pool, PAGES, EACH);
        assert_eq!(work(&pool).0, 2 * IDLE - 1);
        for _ in 0..10 {
            pieces.extend(take(&pool, PAGES, EACH));
            work(&pool);
        }
        let stats = pool.stats();
        assert_eq!((stats.prepared, stats.unprepared), (11, 0));
        assert_eq!(stats.in_use, 11 * REGION as u64);
        assert_eq!(stats.ready, (AHEAD * REGION) as u64);
        // Without ready regions the user does not wait.
        pieces.extend(take(&pool, PAGES, (AHEAD + 3) * EACH));
        assert_eq!(pool.stats().unprepared, 3);
        assert_eq!(work(&pool).0, AHEAD);
        pool.state.lock().quiet();
        assert_eq!(work(&pool), (0, AHEAD - IDLE));
        assert_eq!(pool.stats().ready, (IDLE * REGION) as u64);
        drop(pieces);
    }

    #[test]
    fn the_bound_holds_for_what_is_prepared() {
        let pool = Pool::new();
        let bound = 8 * REGION as u64;
        pool.state.lock().allow(bound, 0);
        let mut pieces = Vec::new();
        for _ in 0..8 {
            work(&pool);
            let stats = pool.stats();
            assert!(stats.in_use + stats.ready <= bound);
            pieces.extend(take(&pool, PAGES, EACH));
        }
        assert_eq!(pool.stats().unprepared, 0);
        pieces.extend(take(&pool, PAGES, EACH));
        assert_eq!(work(&pool), (0, 0), "more is in use than may be");
        assert_eq!(pool.stats().unprepared, 1);
        // A smaller bound returns free memory.
        pool.give(pieces.drain(..4 * EACH));
        assert_eq!(pool.stats().ready, 4 * REGION as u64);
        pool.state.lock().allow(0, 3 * REGION as u64);
        assert_eq!(work(&pool), (0, 4 - IDLE));
        pool.state.lock().allow(0, 5 * REGION as u64);
        assert_eq!(work(&pool), (0, IDLE), "nothing stays for nobody");
    }

    #[test]
    fn free_memory_is_kept_up_to_a_bound() {
        let pool = Pool::new();
        let pieces = take(&pool, PAGES, (KEPT + 9) * EACH);
        pool.give(pieces.into_iter());
        let stats = pool.stats();
        assert_eq!(stats.ready, (KEPT * REGION) as u64);
        assert_eq!((stats.in_use, stats.free), (0, 0));
    }

    #[test]
    fn a_failure_to_prepare_is_not_repeated_at_once() {
        let pool = Pool::new();
        let mut state = pool.state.lock();
        state.allow(1 << 30, 0);
        let job = state.job().unwrap();
        state.done(&job, false);
        assert_eq!(state.job(), None);
    }
}
