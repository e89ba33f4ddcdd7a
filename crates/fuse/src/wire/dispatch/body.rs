//! A request's parts, taken one after the other.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::wire::reply::Reply;

/// What follows a request's header: the operation's own structure, if it has one, and the rest.
pub(in crate::wire) struct Body<'a> {
    /// Where the structure is apart from the rest (io_uring); not looked at otherwise.
    operation: Option<&'a [u8]>,
    rest: &'a [u8],
}

/// A request that is too short, or has no name where one must be: EINVAL.
pub(super) struct Malformed;

/// A part of a request, if it is there.
pub(super) type Parsed<T> = Result<T, Malformed>;

impl<'a> Body<'a> {
    /// All in one.
    pub(in crate::wire) fn whole(bytes: &'a [u8]) -> Body<'a> {
        Body {
            operation: None,
            rest: bytes,
        }
    }

    /// In two parts.
    pub(in crate::wire) fn split(operation: &'a [u8], rest: &'a [u8]) -> Body<'a> {
        Body {
            operation: Some(operation),
            rest,
        }
    }

    /// What [`take`](Self::take) would, and it stays.
    pub(super) fn peek<T: FromBytes + KnownLayout + Immutable + Copy>(&self) -> Option<T> {
        let bytes = self.operation.unwrap_or(self.rest);
        T::read_from_prefix(bytes).ok().map(|(value, _)| value)
    }

    /// Both parts, for later.
    pub(super) fn copied(&self) -> Copied {
        Copied {
            operation: self.operation.map(<[u8]>::to_vec),
            rest: self.rest.to_vec(),
        }
    }

    /// The next structure.
    pub(super) fn take<T: FromBytes + KnownLayout + Immutable + Copy>(&mut self) -> Parsed<T> {
        if let Some(operation) = self.operation.take() {
            let (value, _) = T::read_from_prefix(operation).map_err(|_| Malformed)?;
            return Ok(value);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    /// A string up to its NUL.
    pub(super) fn name(&mut self) -> Parsed<&'a [u8]> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: u32) -> Parsed<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// What follows the header of a request that is served later.
pub(super) struct Copied {
    operation: Option<Vec<u8>>,
    rest: Vec<u8>,
}

impl Copied {
    /// As it came.
    pub(super) fn body(&self) -> Body<'_> {
        Body {
            operation: self.operation.as_deref(),
            rest: &self.rest,
        }
    }
}

/// Whether a request was understood; if not, its reply is still to be sent.
pub(super) type Served = Result<(), (Malformed, Reply)>;

/// Gets a part of the request, or gives the reply back to be answered.
macro_rules! need {
    ($parsed:expr, $reply:ident) => {
        match $parsed {
            Ok(value) => value,
            Err(e) => return Err((e, $reply)),
        }
    };
}

pub(super) use need;
