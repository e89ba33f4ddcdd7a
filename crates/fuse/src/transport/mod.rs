//! The ways of requests and answers: `/dev/fuse`, io_uring, and the receiver of a session without a
//! kernel; and keeping processors awake between requests.

pub(crate) mod awake;
pub(crate) mod channel;
pub(crate) mod current;
pub(crate) mod port;
pub(crate) mod ring;
pub(crate) mod sink;
