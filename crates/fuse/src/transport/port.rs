//! The way back of an answer: the descriptor or the ring that its request came from.

use stetfs::low::FsError;

use crate::api::buffer::{self, Read};
use crate::transport::channel::Channel;
use crate::transport::ring::slot::Slot;
use crate::transport::sink::Sink;

/// The way back of one request.
pub(crate) enum Port {
    /// `/dev/fuse`.
    Device(Channel),
    /// An io_uring queue.
    Ring(Slot),
    /// No kernel: an offline session.
    Offline(Sink),
}

impl Port {
    /// Sends an answer: `error` is 0 or an errno.
    pub(crate) fn send(&mut self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        match self {
            Port::Device(channel) => channel.send(unique, error, parts),
            Port::Ring(slot) => slot.send(unique, error, parts),
            Port::Offline(sink) => sink.send(unique, error, parts),
        }
    }

    /// Sends up to `size` bytes from `read`. If `read` fails nothing is sent.
    pub(crate) fn send_read(
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
