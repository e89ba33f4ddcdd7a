//! Descriptors of `/dev/fuse`: they deliver requests and take answers.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::system::sys;
use crate::wire::abi::{NOTIFY_INVAL_INODE, NotifyInvalInode, OutHeader};

/// One descriptor. A request is answered on the descriptor that it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Channel(Arc<OwnedFd>);

/// The result of a read.
pub(crate) enum Received {
    /// A request; its length in bytes.
    Request(usize),
    /// The connection has ended.
    End,
}

impl Channel {
    pub(crate) fn new(fuse: OwnedFd) -> Channel {
        Channel(Arc::new(fuse))
    }

    /// The descriptor.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Another descriptor of the same connection, with a queue of its own; this one if this process
    /// may not open the device, as after fusermount3.
    pub(crate) fn another(&self) -> io::Result<Channel> {
        let fuse = match File::options().read(true).write(true).open("/dev/fuse") {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(self.clone()),
            opened => opened?,
        };
        sys::fuse_clone(fuse.as_fd(), self.0.as_raw_fd())?;
        Ok(Channel::new(fuse.into()))
    }

    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        loop {
            match rustix::io::read(&*self.0, &mut *buf) {
                Ok(n) => return Ok(Received::Request(n)),
                // ECONNABORTED: the connection ended during the read.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::End),
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Sends an answer: `error` is 0 or an errno.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        let len = size_of::<OutHeader>() + parts[0].len() + parts[1].len();
        let header = OutHeader {
            len: len as u32,
            error: -error,
            unique,
        };
        self.write(&header, parts, "an answer");
    }

    fn write(&self, header: &OutHeader, parts: [&[u8]; 2], what: &str) {
        let slices = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(parts[0]),
            IoSlice::new(parts[1]),
        ];
        loop {
            match rustix::io::writev(&*self.0, &slices) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                // The request has no waiting caller any more, or the kernel does not know the
                // inode.
                Err(Errno::NOENT | Errno::NODEV) => return,
                Err(e) => return tracing::warn!("cannot send {what} to the kernel: {e}"),
            }
        }
    }

    /// Tells the kernel that its cached attributes of a node are out of date.
    pub(crate) fn forget_attributes(&self, nodeid: u64) {
        // A negative offset selects the attributes alone, not the pages.
        self.forget(nodeid, -1, 0);
    }

    /// Has the kernel drop its pages of a node; it writes dirty ones back first. `len` 0 means to
    /// the end.
    pub(crate) fn forget_content(&self, nodeid: u64, offset: u64, len: u64) {
        let off = i64::try_from(offset).unwrap_or(i64::MAX);
        self.forget(nodeid, off, i64::try_from(len).unwrap_or(0));
    }

    fn forget(&self, ino: u64, off: i64, len: i64) {
        let body = NotifyInvalInode { ino, off, len };
        let len = (size_of::<OutHeader>() + size_of::<NotifyInvalInode>()) as u32;
        let header = OutHeader {
            len,
            error: NOTIFY_INVAL_INODE,
            unique: 0,
        };
        self.write(&header, [body.as_bytes(), &[]], "a notification");
    }
}
