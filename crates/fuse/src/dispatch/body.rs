//! Parsing a request's body, part by part.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::reply::Reply;

/// The body of a request: the operation's own structure, if it has one, and the rest.
pub(crate) struct Body<'a> {
    /// The structure, if it is separate from the rest (io_uring); not checked otherwise.
    operation: Option<&'a [u8]>,
    rest: &'a [u8],
}

/// The error for a request that is too short, or lacks a name: EINVAL.
pub(crate) struct Malformed;

/// A parsed part of a request.
pub(crate) type Parsed<T> = Result<T, Malformed>;

impl<'a> Body<'a> {
    /// A body in one piece.
    pub(crate) fn whole(bytes: &'a [u8]) -> Body<'a> {
        Body {
            operation: None,
            rest: bytes,
        }
    }

    /// A body in two parts.
    pub(crate) fn split(operation: &'a [u8], rest: &'a [u8]) -> Body<'a> {
        Body {
            operation: Some(operation),
            rest,
        }
    }

    /// Reads the structure that [`take`](Self::take) would take, without taking it.
    pub(crate) fn peek<T: FromBytes + KnownLayout + Immutable + Copy>(&self) -> Option<T> {
        let bytes = self.operation.unwrap_or(self.rest);
        T::read_from_prefix(bytes).ok().map(|(value, _)| value)
    }

    /// A copy of both parts, for later.
    pub(crate) fn copied(&self) -> Copied {
        Copied {
            operation: self.operation.map(<[u8]>::to_vec),
            rest: self.rest.to_vec(),
        }
    }

    /// Takes the next structure.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable + Copy>(&mut self) -> Parsed<T> {
        if let Some(operation) = self.operation.take() {
            let (value, _) = T::read_from_prefix(operation).map_err(|_| Malformed)?;
            return Ok(value);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    /// Takes a string up to its NUL.
    pub(crate) fn name(&mut self) -> Parsed<&'a [u8]> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    /// Takes the next `len` bytes.
    pub(crate) fn bytes(&mut self, len: u32) -> Parsed<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// The copied body of a request that is served later.
pub(crate) struct Copied {
    operation: Option<Vec<u8>>,
    rest: Vec<u8>,
}

impl Copied {
    /// The body as it came.
    pub(crate) fn body(&self) -> Body<'_> {
        Body {
            operation: self.operation.as_deref(),
            rest: &self.rest,
        }
    }
}

/// Whether a request was understood; if not, the reply is still unanswered.
pub(crate) type Served = Result<(), (Malformed, Reply)>;

/// Unwraps a part of the request, or returns the reply to be answered.
macro_rules! need {
    ($parsed:expr, $reply:ident) => {
        match $parsed {
            Ok(value) => value,
            Err(e) => return Err((e, $reply)),
        }
    };
}

pub(crate) use need;
