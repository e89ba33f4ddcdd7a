//! The place of an image that is in a log byte for byte as it belongs home.

use crate::ids::Lane;

/// The place of a verbatim image in a log. An image that is stored differently (escaped by jbd2, or
/// packed) has no place. Only an image with a place can be shared or referred to.
///
/// A medium gives places at a commit ([`Medium::places`](super::Medium::places)), a scan at
/// recovery ([`ImageRef::place`](super::ImageRef::place)). A place is valid until the tail of its
/// lane has passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    lane: Lane,
    offset: u64,
}

impl Place {
    /// A place; the log makes it ([`LogArea::place`](crate::jbd2::LogArea::place)).
    pub(crate) fn new(lane: Lane, offset: u64) -> Place {
        Place { lane, offset }
    }

    /// The lane of the place.
    pub fn lane(self) -> Lane {
        self.lane
    }

    /// The first byte on the device.
    pub fn offset(self) -> u64 {
        self.offset
    }
}
