//! The policies by name, for options and for building them.

use std::fmt;
use std::str::FromStr;

use super::Policy;
use super::cflru::Cflru;
use super::clock::Clock;
use super::fab::Fab;
use super::gd_erase::GdErase;
use super::lb_clock::LbClock;
use super::linux_2q::Linux2q;
use super::lru::Lru;
use super::shape::Shape;
use super::sp_clock::SpClock;
use super::ts_clock::TsClock;

/// The replacement policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// Least recently used.
    Lru,
    /// Second chance, one reference bit (Corbató 1968); the first use gives none, so that streams
    /// do not evict blocks that are used often.
    #[default]
    Clock,
    /// CLOCK as in the textbooks: the first use counts.
    Clock68,
    /// Linux's active and inactive lists.
    Linux2q,
    /// Clean first among the least recently used quarter (Park and others, CASES 2006).
    Cflru,
    /// Whole erase blocks, the fullest first (Jo and others, 2006).
    Fab,
    /// Whole erase blocks, the fullest of those not used lately (Debnath and others, MASCOTS 2009).
    LbClock,
    /// CLOCK in the order of block numbers (Kim and others, SIGMETRICS 2012).
    SpClock,
    /// Time and space (Kang, dissertation ch. 2).
    TsClock,
    /// GreedyDual by erase block: costs of reads, writes and visits to erase blocks.
    GdErase,
}

impl PolicyKind {
    /// All policies, in the order of the paper (Kang).
    pub const ALL: [PolicyKind; 10] = [
        PolicyKind::Lru,
        PolicyKind::Clock,
        PolicyKind::Clock68,
        PolicyKind::Linux2q,
        PolicyKind::Cflru,
        PolicyKind::Fab,
        PolicyKind::LbClock,
        PolicyKind::SpClock,
        PolicyKind::TsClock,
        PolicyKind::GdErase,
    ];

    /// A new policy of this kind.
    pub fn build(self, shape: Shape) -> Box<dyn Policy> {
        let erase_block = shape.erase_block.max(1);
        match self {
            PolicyKind::Lru => Box::new(Lru::new()),
            PolicyKind::Clock => Box::new(Clock::new()),
            PolicyKind::Clock68 => Box::new(Clock::textbook()),
            PolicyKind::Linux2q => Box::new(Linux2q::new()),
            PolicyKind::Cflru => Box::new(Cflru::new(shape.capacity)),
            PolicyKind::Fab => Box::new(Fab::new(erase_block)),
            PolicyKind::LbClock => Box::new(LbClock::new(erase_block)),
            PolicyKind::SpClock => Box::new(SpClock::new()),
            PolicyKind::TsClock => Box::new(TsClock::new(erase_block)),
            PolicyKind::GdErase => Box::new(GdErase::new(shape)),
        }
    }

    /// Whether the policy works by erase block: all blocks of one erase block must then be in the
    /// same shard.
    pub fn by_erase_block(self) -> bool {
        use PolicyKind::{
            Cflru, Clock, Clock68, Fab, GdErase, LbClock, Linux2q, Lru, SpClock, TsClock,
        };
        match self {
            Lru | Clock | Clock68 | Linux2q | Cflru => false,
            Fab | LbClock | SpClock | TsClock | GdErase => true,
        }
    }

    /// Whether the policy's choice depends on which blocks are dirty.
    pub fn minds_dirt(self) -> bool {
        matches!(
            self,
            PolicyKind::Cflru | PolicyKind::TsClock | PolicyKind::GdErase
        )
    }

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Lru => "lru",
            PolicyKind::Clock => "clock",
            PolicyKind::Clock68 => "clock-68",
            PolicyKind::Linux2q => "linux2q",
            PolicyKind::Cflru => "cflru",
            PolicyKind::Fab => "fab",
            PolicyKind::LbClock => "lb-clock",
            PolicyKind::SpClock => "sp-clock",
            PolicyKind::TsClock => "ts-clock",
            PolicyKind::GdErase => "gd-erase",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no policy {0:?}; there are lru, clock, clock-68, linux2q, cflru, fab, lb-clock, sp-clock, ts-clock and gd-erase"
)]
pub struct UnknownPolicy(pub String);

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<PolicyKind, UnknownPolicy> {
        PolicyKind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}
