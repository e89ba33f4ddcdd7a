//! The interface between the transport and the file systems, and the values that pass through it.

pub(crate) mod buffer;
pub(crate) mod fakeroot;
pub(crate) mod inline_wait;
pub(crate) mod ops;
