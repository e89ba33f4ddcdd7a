//! Replacement policies: which block leaves when room is needed.
//!
//! A policy sees the numbers of slots only. It is asked for a victim; the shard tells it of each candidate whether it could go
//! (not used again, clean, unheld). Each shard has a policy of its own, called under the shard's lock.

mod clock;

pub use clock::Clock;

/// What a policy is told about a slot that it offers for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its block can go.
    Victim,
    /// Its block was used since it was last offered, or there is none.
    Passed,
    /// Its block is dirty or in use and cannot go now.
    Pinned,
}

/// A replacement policy over the slots of a shard.
pub trait Policy: Send {
    /// Offers slots below `slots` until one is a victim, or gives up. Bounded: at most two looks at each slot.
    fn choose(&mut self, slots: usize, offer: &mut dyn FnMut(usize) -> Verdict) -> Option<usize>;
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
