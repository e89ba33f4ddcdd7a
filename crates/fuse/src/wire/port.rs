//! Where an answer goes: the descriptor or the ring its request came from.

use super::channel::Channel;
use super::ring::Slot;

/// The way back of one request.
pub(super) enum Port {
    /// `/dev/fuse`.
    Device(Channel),
    /// An io_uring queue.
    Ring(Slot),
}

impl Port {
    /// Sends an answer: `error` is 0 or an errno.
    pub(super) fn send(&mut self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        match self {
            Port::Device(channel) => channel.send(unique, error, parts),
            Port::Ring(slot) => slot.send(unique, error, parts),
        }
    }
}
