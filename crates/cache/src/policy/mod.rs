//! Replacement policies: they choose the block to evict when room is needed, and the dirty blocks
//! to write back first.
//!
//! One trait serves the cache of a mounted volume and the simulator (`flashlab`). A policy is told
//! of every block that is inserted, used, written back or removed: its slot, its number, and
//! whether it was read or changed. It answers with slots. Its owner (a shard, the simulator) calls
//! it under its own lock.
//!
//! Invariants (cited as `policy.P1`…):
//!
//! * **policy.P1** Slots are small dense numbers. A slot holds at most one block; `inserted` and
//!   `removed` alternate for it.
//! * **policy.P2** A block is dirty from an access that is a write until `written` or `removed`.
//! * **policy.P3** A block that `choose` chose is still there until `removed`. `choose` changes
//!   hands, bits and counts, and may move the blocks that it passed over.
//! * **policy.P4** A choice looks at a bounded number of blocks: amortised O(1) or O(log n) for
//!   each inserted block, whatever the size of the cache, and at most [`MAX_PINNED`] blocks that
//!   may not leave.

mod blocks;
mod cflru;
mod clock;
mod fab;
mod gd_erase;
mod kind;
mod lb_clock;
mod linux_2q;
mod lists;
mod lru;
mod shape;
mod sp_clock;
mod ts_clock;

#[cfg(test)]
mod desk;

pub use kind::{PolicyKind, UnknownPolicy};
pub use shape::{Costs, Shape};

/// The number of blocks that may not leave that one search passes over before it gives up: a shard
/// full of dirty blocks must not turn every miss into a walk over all of them.
pub(crate) const MAX_PINNED: usize = 64;

/// A block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The slot that holds it (policy.P1).
    pub slot: u32,
    /// Its number on the volume.
    pub nr: u64,
}

/// How a block was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It was read.
    Read,
    /// It was changed: it is dirty now (policy.P2).
    Write,
}

/// A policy's answer when room is needed. The owner reuses it from call to call, so no list is
/// allocated anew.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Slots whose blocks should be written back now, in this order. They stay clean in the cache
    /// unless they are in `evict` too.
    pub write: Vec<u32>,
    /// Slots whose blocks are evicted, in this order. An owner that may evict dirty blocks writes
    /// them back in this order, after `write`.
    pub evict: Vec<u32>,
}

impl Choice {
    /// Empties both lists for the next search.
    pub fn clear(&mut self) {
        self.write.clear();
        self.evict.clear();
    }
}

/// A replacement policy.
pub trait Policy: Send {
    /// A block was inserted into an empty slot.
    fn inserted(&mut self, frame: Frame, access: Access);

    /// A cached block was used.
    fn used(&mut self, frame: Frame, access: Access);

    /// A dirty block was written back: it is clean.
    fn written(&mut self, frame: Frame);

    /// A block was removed, because it was chosen or for another reason.
    fn removed(&mut self, frame: Frame);

    /// Adds the blocks to evict to `choice`. `may_go` says whether a slot's block can be evicted
    /// now; a dirty block that cannot is added to `write`. Nothing is added to `evict` when no
    /// block was found.
    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice);

    /// Adds to `out` up to `limit` slots of the dirty blocks that are best written back next, in
    /// the best order.
    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>);
}

/// The remaining number of blocks that may not leave that a search passes over (policy.P4).
struct Attempts(usize);

impl Attempts {
    fn new() -> Attempts {
        Attempts(MAX_PINNED)
    }

    /// Counts one; false when it was the last.
    fn pinned(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// A list whose back is evicted.
trait Queue {
    fn back(&self) -> Option<u32>;

    fn is_dirty(&self, slot: u32) -> bool;

    /// Moves a block from the back to the front.
    fn bring_forward(&mut self, slot: u32);
}

/// Chooses the last block that may leave. A block that may not is in use: it moves to the front.
/// Ends when all blocks were seen.
fn choose_from_back(
    queue: &mut impl Queue,
    may_go: &mut dyn FnMut(u32) -> bool,
    choice: &mut Choice,
) {
    let mut attempts = Attempts::new();
    let mut first = None;
    while let Some(slot) = queue.back() {
        let around = first == Some(slot);
        first.get_or_insert(slot);
        if around || !attempts.pinned() {
            return;
        }
        if may_go(slot) {
            choice.evict.push(slot);
            return;
        }
        if queue.is_dirty(slot) {
            choice.write.push(slot);
        }
        queue.bring_forward(slot);
    }
}

/// Blocks looked at for each dirty block that `to_write` may return.
const LOOKS_PER_WRITE: usize = 16;

/// At most `limit` dirty blocks of `slots`, after a bounded number of looks: the suggestion of a
/// policy without an order of writing.
fn dirty_of(
    slots: impl Iterator<Item = u32>,
    limit: usize,
    dirty: impl Fn(u32) -> bool,
    out: &mut Vec<u32>,
) {
    let looks = limit.saturating_mul(LOOKS_PER_WRITE);
    out.extend(slots.take(looks).filter(|slot| dirty(*slot)).take(limit));
}
