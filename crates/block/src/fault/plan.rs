//! Programmed faults: the requests that fail, and the way in which they do.

use std::fmt;
use std::ops::Range;

use crate::Op;

/// Changes bytes that were read or are to be written; the argument is the offset of the first.
type Corrupt = Box<dyn FnMut(u64, &mut [u8]) + Send>;
/// A filter on offset and length.
type Filter = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// The effect of a [`Fault`] on a request.
pub(super) enum Action {
    Fail(i32),
    Lose,
    Tear { arrives: Filter, errno: Option<i32> },
    Corrupt(Corrupt),
}

/// A programmed fault, for one kind of request. It hits each matching request, from the first on,
/// unless limited.
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

    /// Requests fail with `errno` and have no effect.
    pub fn fail(op: Op, errno: i32) -> Self {
        Self::new(op, Action::Fail(errno))
    }

    /// Requests succeed but have no effect: a lost write, a flush that the disk only pretends. A
    /// lost read leaves the buffer as it was.
    pub fn lose(op: Op) -> Self {
        Self::new(op, Action::Lose)
    }

    /// Of a write, only those 512-byte sectors arrive for whose offset and length `arrives` returns
    /// true. Then it fails with `errno`, or reports success.
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

    /// Of a SHARE batch, only those units arrive for whose destination and length `arrives` returns
    /// true: the result on a device without atomic batches. Then it fails with `errno`, or reports
    /// success.
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

    /// Reads return, or writes store, bytes that `change` has altered; its arguments are the offset
    /// of the request and its bytes.
    pub fn corrupt(op: Op, change: impl FnMut(u64, &mut [u8]) + Send + 'static) -> Self {
        Self::new(op, Action::Corrupt(Box::new(change)))
    }

    /// Byte `at` of the device is XORed with `mask` in reads or writes that touch it.
    pub fn flip(op: Op, at: u64, mask: u8) -> Self {
        let change = move |offset: u64, bytes: &mut [u8]| {
            let place = at.checked_sub(offset).and_then(|i| usize::try_from(i).ok());
            if let Some(byte) = place.and_then(|i| bytes.get_mut(i)) {
                *byte ^= mask;
            }
        };
        Self::corrupt(op, change).within(at..at.saturating_add(1))
    }

    /// Spares the first `n` matching requests.
    pub fn after(self, n: u64) -> Self {
        Fault { skip: n, ..self }
    }

    /// Hits `n` requests, then is gone.
    pub fn times(self, n: u64) -> Self {
        Fault { times: n, ..self }
    }

    /// Hits one request: short for `times(1)`.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Hits only requests that touch one of these bytes (a flush touches none, a SHARE batch its
    /// destinations).
    pub fn within(self, bytes: Range<u64>) -> Self {
        Fault {
            within: Some(bytes),
            ..self
        }
    }

    /// Hits only requests for whose offset and length `filter` returns true; of a SHARE batch one
    /// pair is enough.
    pub fn when(self, filter: impl FnMut(u64, u64) -> bool + Send + 'static) -> Self {
        Fault {
            filter: Some(Box::new(filter)),
            ..self
        }
    }

    /// Whether the fault hits this request now; counts matching requests.
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
