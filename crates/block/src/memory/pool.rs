//! Which regions there are, and which pieces of them are free.
//!
//! A region is *bare* (no memory), *ready* (memory, no piece in use), or cut into pieces of one
//! class. What was used and is free again is taken first, then what is ready. Where nothing is, a
//! bare region is cut: its user touches it first, and nobody waits for the thread that prepares.

use std::ptr::NonNull;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::region::{REGION, Region};

/// Bytes of the pieces of each class.
pub(crate) const CLASSES: [usize; 5] = [1 << 10, 2 << 10, 4 << 10, 64 << 10, 1 << 20];

/// Regions that are ready on an idle system: what a burst begins with.
pub(super) const IDLE: usize = 2;
/// The most that are ready for whoever uses much.
pub(super) const AHEAD: usize = 32;
/// What becomes free is kept up to so many regions while the system is not idle.
const KEPT: usize = AHEAD;
/// After this time without a use of a ready region the system is idle.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// A piece of a region: its address, and the number of the region.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) ptr: NonNull<u8>,
    pub(super) region: u32,
}

/// Memory of the process for blocks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// In regions that are in use.
    pub in_use: u64,
    /// Of that: free pieces.
    pub free: u64,
    /// Prepared for use to come.
    pub ready: u64,
    /// Regions that were prepared when they were needed, since the process began, …
    pub prepared: u64,
    /// … and those that were not.
    pub unprepared: u64,
}

/// A region that is cut into pieces.
struct Cut {
    class: usize,
    /// Numbers of the free pieces.
    free: Vec<u16>,
    /// Where it stands in the list of its class, if it has free pieces.
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
    /// Regions that are cut, and those that are being prepared.
    cut: usize,
    preparing: usize,
    /// Bytes that preparing may not exceed, with what is in use.
    bound: u64,
    /// Regions that shall be ready.
    goal: usize,
    prepared: u64,
    unprepared: u64,
    /// Users of the thread that prepares.
    pub(super) preparers: usize,
}

/// What the thread that prepares is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Job {
    Prepare(u32),
    GiveBack(u32),
}

/// Memory in pieces.
pub(super) struct Pool {
    pub(super) state: Mutex<State>,
    /// A region was taken, or what is wanted changed.
    pub(super) changed: Condvar,
}

impl Pool {
    pub(super) const fn new() -> Pool {
        Pool {
            state: Mutex::new(State::new()),
            changed: Condvar::new(),
        }
    }

    /// Gives `put` up to `most` pieces of `class`: fewer, perhaps none, only when the kernel gives
    /// no address space.
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
            // It takes its time, which is the thread's.
            drop(state);
            self.changed.notify_one();
            return;
        }
        let over = state.ready.len() - KEPT;
        let spare: Vec<u32> = state.ready.drain(..over).collect();
        let regions: Vec<Region> = spare.iter().map(|nr| state.region(*nr)).collect();
        drop(state);
        for region in regions {
            // SAFETY: no piece of a ready region is in use, and it is in no list now, so none will
            // be.
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

    /// The number of a region without memory, in no list any more.
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
            // Ascending addresses for those who take one after the other.
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

    /// Allows so many bytes more in use and ready together, or fewer.
    pub(super) fn allow(&mut self, more: u64, fewer: u64) {
        self.bound = self.bound.saturating_add(more).saturating_sub(fewer);
        self.goal = self.goal.max(IDLE);
    }

    /// What there is to do now.
    pub(super) fn job(&mut self) -> Option<Job> {
        let all = self.cut + self.ready.len() + self.preparing;
        let within = (all as u64 + 1) * REGION as u64 <= self.bound;
        if self.ready.len() + self.preparing < self.goal && within {
            self.preparing += 1;
            let bare = self.bare().map(Job::Prepare);
            self.preparing -= usize::from(bare.is_none());
            return bare;
        }
        // What is free may stay while there is use of it; a little always may, so that it does not
        // come and go.
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

    /// Hardly anything is ready: who takes more will not find it.
    pub(super) fn is_short(&self) -> bool {
        self.ready.len() < IDLE
    }

    /// A job is done.
    pub(super) fn done(&mut self, job: &Job, well: bool) {
        match *job {
            Job::Prepare(nr) => {
                self.preparing -= 1;
                match well {
                    true => self.ready.push(nr),
                    false => {
                        // There is no memory: no more of it until somebody needs some.
                        self.bare.push(nr);
                        self.goal = 0;
                    }
                }
            }
            Job::GiveBack(nr) => self.bare.push(nr),
        }
    }

    /// Regions that were taken since the process began.
    pub(super) fn taken(&self) -> u64 {
        self.prepared + self.unprepared
    }

    /// More than an idle system needs is wanted.
    pub(super) fn busy(&self) -> bool {
        self.goal > IDLE
    }

    /// Nobody has taken anything for a while.
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

    /// Does all there is to do, and says how often it prepared and gave back.
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
        // A region that is free as a whole serves another class.
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
        // Nobody waits when there is none.
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
        // With a smaller bound free memory goes.
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
