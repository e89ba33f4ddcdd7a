//! Messages with open descriptors, over sockets that preserve message boundaries (SOCK_SEQPACKET).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
};

/// Maximum length of a message in bytes.
const LONGEST: usize = 32 << 10;
/// Maximum number of descriptors in a message.
const MOST: usize = 8;

/// A pair of connected sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends a message, which must not be empty, with descriptors.
pub(crate) fn send(socket: impl AsFd, text: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.is_empty() {
        // sendmsg(2) hides its destination from a seccomp filter, so a plain message uses send.
        rustix::net::send(socket, text, SendFlags::NOSIGNAL)?;
        return Ok(());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(
        socket,
        &[IoSlice::new(text)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives the next message and its descriptors; empty when the other end is closed.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    receive_with(socket, RecvFlags::empty())
}

/// Receives a message that has arrived already.
///
/// # Errors
/// `WouldBlock` if there is none.
pub(crate) fn receive_now(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    receive_with(socket, RecvFlags::DONTWAIT)
}

fn receive_with(socket: impl AsFd, flags: RecvFlags) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    loop {
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut text)];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(&socket, &mut parts, &mut ancillary, flags) {
            Err(Errno::INTR) => continue,
            done => done?.bytes,
        };
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                fds.extend(some);
            }
        }
        text.truncate(got);
        return Ok((text, fds));
    }
}
