//! What is to fail, and when.

use std::fmt;
use std::ops::Range;

use crate::Op;

/// Changes bytes that were read, or are about to be written; gets the offset of the first.
type Corrupt = Box<dyn FnMut(u64, &mut [u8]) + Send>;
/// Chooses by offset and length.
type Filter = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// What happens to a request that a [`Fault`] hits.
pub(super) enum Action {
    Fail(i32),
    Lose,
    Tear { arrives: Filter, errno: Option<i32> },
    Corrupt(Corrupt),
}

/// A fault to come. Made for one kind of request; hits each of those that it matches, from the
/// first on, until told otherwise.
pub struct Fault {
    op: Op,
    skip: u64,
    times: u64,
    within: Option<Range<u64>>,
    filter: Option<Filter>,
    pub(super) action: Action,
}

impl Fault {
    fn new(op: Op, action: Action) -> Self {
        Fault {
            op,
            skip: 0,
            times: u64::MAX,
            within: None,
            filter: None,
            action,
        }
    }

    /// Requests fail with this errno, and do nothing.
    pub fn fail(op: Op, errno: i32) -> Self {
        Self::new(op, Action::Fail(errno))
    }

    /// Requests succeed but do nothing: a lost write, a flush that the disk only pretends. A lost
    /// read leaves the buffer as it was.
    pub fn lose(op: Op) -> Self {
        Self::new(op, Action::Lose)
    }

    /// Of a write, only those 512-byte sectors arrive for whose (offset, length) `arrives` says so.
    /// Then it fails with `errno`, or claims success.
    pub fn tear(
        arrives: impl FnMut(u64, u64) -> bool + Send + 'static,
        errno: Option<i32>,
    ) -> Self {
        Self::new(
            Op::Write,
            Action::Tear {
                arrives: Box::new(arrives),
                errno,
            },
        )
    }

    /// Of a batch to be shared, only those units arrive for whose (destination, length) `arrives`
    /// says so: what a device that promises no atomicity leaves. Then it fails with `errno`, or
    /// claims success.
    pub fn tear_share(
        arrives: impl FnMut(u64, u64) -> bool + Send + 'static,
        errno: Option<i32>,
    ) -> Self {
        Self::new(
            Op::Share,
            Action::Tear {
                arrives: Box::new(arrives),
                errno,
            },
        )
    }

    /// Reads give, or writes store, bytes that `change` has had its hands on; it gets the offset
    /// of the request and its bytes.
    pub fn corrupt(op: Op, change: impl FnMut(u64, &mut [u8]) + Send + 'static) -> Self {
        Self::new(op, Action::Corrupt(Box::new(change)))
    }

    /// Reads, or writes, that touch byte `at` of the device have it XORed with `mask`.
    pub fn flip(op: Op, at: u64, mask: u8) -> Self {
        let change = move |offset: u64, bytes: &mut [u8]| {
            let place = at.checked_sub(offset).and_then(|i| usize::try_from(i).ok());
            if let Some(byte) = place.and_then(|i| bytes.get_mut(i)) {
                *byte ^= mask;
            }
        };
        Self::corrupt(op, change).within(at..at.saturating_add(1))
    }

    /// Leaves the first `n` matching requests alone.
    pub fn after(self, n: u64) -> Self {
        Fault { skip: n, ..self }
    }

    /// Hits this many requests, then is gone.
    pub fn times(self, n: u64) -> Self {
        Fault { times: n, ..self }
    }

    /// Hits one request: short for `times(1)`.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Only requests that touch one of these bytes (flushes touch none, what is shared its
    /// destinations).
    pub fn within(self, bytes: Range<u64>) -> Self {
        Fault {
            within: Some(bytes),
            ..self
        }
    }

    /// Only requests of whose (offset, length) `filter` says so; of a batch to be shared one pair
    /// is enough.
    pub fn when(self, filter: impl FnMut(u64, u64) -> bool + Send + 'static) -> Self {
        Fault {
            filter: Some(Box::new(filter)),
            ..self
        }
    }

    /// True if the request is this fault's to hit, now; counts it.
    pub(super) fn hits(&mut self, op: Op, places: &[(u64, u64)]) -> bool {
        let (within, filter) = (&self.within, &mut self.filter);
        let mut matches = |(offset, len): (u64, u64)| {
            let inside = |r: &Range<u64>| offset < r.end && offset + len > r.start;
            within.as_ref().is_none_or(inside) && filter.as_mut().is_none_or(|f| f(offset, len))
        };
        if self.op != op || self.times == 0 || !places.iter().any(|place| matches(*place)) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times != u64::MAX {
            self.times -= 1;
        }
        true
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match &self.action {
            Action::Fail(errno) => format!("fail with errno {errno}"),
            Action::Lose => "lose".to_owned(),
            Action::Tear { errno, .. } => format!("tear, errno {errno:?}"),
            Action::Corrupt(_) => "corrupt".to_owned(),
        };
        write!(f, "Fault({}: {action})", self.op)
    }
}
