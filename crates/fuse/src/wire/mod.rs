//! The FUSE protocol: its structures and numbers, the negotiation of its version and capabilities,
//! and the counts and durations of requests by kind.

pub(crate) mod abi;
pub(crate) mod counts;
pub(crate) mod ioctl;
pub(crate) mod limits;
pub(crate) mod negotiate;
pub(crate) mod node;
pub(crate) mod times;
