//! Where an answer goes: the descriptor or the ring its request came from.

use stetfs::low::FsError;

use super::channel::Channel;
use super::ring::Slot;
use super::sink::Sink;
use crate::buffer::{self, Read};

/// The way back of one request.
pub(super) enum Port {
    /// `/dev/fuse`.
    Device(Channel),
    /// An io_uring queue.
    Ring(Slot),
    /// No kernel.
    Offline(Sink),
}

impl Port {
    /// Sends an answer: `error` is 0 or an errno.
    pub(super) fn send(&mut self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        match self {
            Port::Device(channel) => channel.send(unique, error, parts),
            Port::Ring(slot) => slot.send(unique, error, parts),
            Port::Offline(sink) => sink.send(unique, error, parts),
        }
    }

    /// Sends up to `size` bytes that `read` gives; unless it fails, and then nothing was sent.
    pub(super) fn send_read(
        &mut self,
        unique: u64,
        size: usize,
        read: Read<'_>,
    ) -> Result<(), FsError> {
        match self {
            Port::Device(channel) => buffer::with(size, |buf| {
                let len = read(buf)?;
                channel.send(unique, 0, [buf.get(..len).unwrap_or_default(), &[]]);
                Ok(())
            }),
            Port::Ring(slot) => slot.send_read(unique, size, read),
            Port::Offline(sink) => sink.send_read(unique, size, read),
        }
    }
}
