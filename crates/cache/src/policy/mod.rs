//! Replacement policies: which block leaves when room is needed.
//!
//! A policy sees keys only. It is asked for a victim; the cache tells it whether the victim could
//! go (clean, unheld). Each shard has a policy of its own, called under the shard's lock.

mod clock;

pub use clock::Clock;

/// What a policy is told about a candidate it offers for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The block went; forget the key.
    Evicted,
    /// The block was used since it was last offered.
    Referenced,
    /// The block is dirty or in use and cannot go now.
    Pinned,
}

/// A replacement policy over block numbers.
pub trait Policy: Send {
    /// A block came into the cache.
    fn insert(&mut self, nr: u64);
    /// A block left the cache other than by eviction.
    fn remove(&mut self, nr: u64);
    /// Offers victims to `try_evict` until one goes or the policy gives up. Bounded: at most two
    /// looks at each block. Returns whether one went.
    fn evict(&mut self, try_evict: &mut dyn FnMut(u64) -> Verdict) -> bool;
}

/// The policies to choose from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// Second chance, one reference bit (Corbató 1968).
    #[default]
    Clock,
}

impl PolicyKind {
    pub(crate) fn build(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Clock => Box::new(Clock::default()),
        }
    }
}
