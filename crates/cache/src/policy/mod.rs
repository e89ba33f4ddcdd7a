//! Replacement policies: which block leaves when room is needed, and what is better written first.
//!
//! One trait serves the cache of a mounted volume and the simulator (`flashlab`). A policy is told
//! of every block that comes, is used, is written home, or leaves: its slot, its number, whether it
//! was read or changed. It answers with slots. Its owner (a shard, the simulator) calls it under
//! its own lock.
//!
//! Invariants (cited as `policy.P1`…):
//!
//! * **policy.P1** Slots are small dense numbers. A slot holds at most one block; `inserted` and
//!   `removed` alternate for it.
//! * **policy.P2** A block is dirty from an access that is a write until `written` or `removed`.
//! * **policy.P3** What `choose` chose is still there until `removed`. It changes hands, bits and
//!   counts, and may move whom it passed over.
//! * **policy.P4** A choice takes a bounded number of looks: amortised O(1) or O(log n) a block
//!   that comes, whatever the size of the cache, and at most [`MAX_PINNED`] blocks that may not go.

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

/// How many blocks that may not go one search passes over before it gives up: a shard full of dirty
/// blocks must not turn every miss into a walk over all of them.
pub(crate) const MAX_PINNED: usize = 64;

/// A block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it is kept (policy.P1).
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

/// What a policy answers when room is needed. Its owner keeps it from call to call, so that no list
/// is made anew.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Slots whose blocks should be written home now, in this order. They stay clean in the cache
    /// unless they are in `evict` too.
    pub write: Vec<u32>,
    /// Slots whose blocks leave, in this order. Who may let dirty ones go writes them in this
    /// order, after `write`.
    pub evict: Vec<u32>,
}

impl Choice {
    /// Empties it for the next question.
    pub fn clear(&mut self) {
        self.write.clear();
        self.evict.clear();
    }
}

/// A replacement policy.
pub trait Policy: Send {
    /// A block came into an empty slot.
    fn inserted(&mut self, frame: Frame, access: Access);

    /// A block that is here was used.
    fn used(&mut self, frame: Frame, access: Access);

    /// A dirty block's content is home: it is clean.
    fn written(&mut self, frame: Frame);

    /// A block left, because it was chosen or for other reasons.
    fn removed(&mut self, frame: Frame);

    /// Adds to `choice` who should leave. `may_go` says whether a slot's block can leave now; one
    /// that is dirty and may not is added to what should be written. Nothing is added to
    /// `evict` when nobody was found.
    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice);

    /// Adds up to `limit` slots of dirty blocks that are best written next, in the best order, to
    /// `out`: for the flusher.
    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>);
}

/// How many more blocks that may not go a search looks at (policy.P4).
struct Attempts(usize);

impl Attempts {
    fn new() -> Attempts {
        Attempts(MAX_PINNED)
    }

    /// One more; false when it is the last.
    fn pinned(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// A list whose back leaves.
trait Queue {
    fn back(&self) -> Option<u32>;

    fn is_dirty(&self, slot: u32) -> bool;

    /// Moves a block from the back to the front.
    fn bring_forward(&mut self, slot: u32);
}

/// Chooses the last one that may go. Who may not is in use: it moves to the front. Ends when all
/// were seen.
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

/// Blocks looked at for each dirty one that a flusher asks for.
const LOOKS_PER_WRITE: usize = 16;

/// The dirty ones of `slots`, at most `limit`, after a bounded number of looks: what a policy
/// without an order of writing suggests.
fn dirty_of(
    slots: impl Iterator<Item = u32>,
    limit: usize,
    dirty: impl Fn(u32) -> bool,
    out: &mut Vec<u32>,
) {
    let looks = limit.saturating_mul(LOOKS_PER_WRITE);
    out.extend(slots.take(looks).filter(|slot| dirty(*slot)).take(limit));
}
