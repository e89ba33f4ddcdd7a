//! Where an image stands in a log as it belongs home.

use crate::ids::Lane;

/// Where an image stands verbatim in a log. What does not stand there byte for byte as it belongs
/// home (one that jbd2 escaped, or that is packed) has no place, and only what has one can be
/// shared or referred to.
///
/// A medium gives places at a commit ([`Medium::places`](super::Medium::places)), a scan at
/// recovery ([`ImageRef::place`](super::ImageRef::place)). One holds until the tail of its lane has
/// passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    lane: Lane,
    offset: u64,
}

impl Place {
    /// The log makes them ([`LogArea::place`](crate::jbd2::LogArea::place)).
    pub(crate) fn new(lane: Lane, offset: u64) -> Place {
        Place { lane, offset }
    }

    /// The lane that it is in.
    pub fn lane(self) -> Lane {
        self.lane
    }

    /// Its first byte on the device.
    pub fn offset(self) -> u64 {
        self.offset
    }
}
