//! The receiver of answers in a session without a kernel.

use std::sync::Arc;

use stetfs::low::{FsError, Ino};
use zerocopy::IntoBytes;

use crate::api::buffer::{self, Read};
use crate::api::ops::Invalidate;
use crate::wire::abi::{NOTIFY_INVAL_INODE, NotifyInvalInode, OutHeader};
use crate::wire::node::node_of;

/// Receives an answer or a notification, whole, from any thread.
pub type Answers = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// The receiver of answers.
#[derive(Clone)]
pub(crate) struct Sink(pub(crate) Answers);

impl Sink {
    /// Sends an answer: `error` is 0 or an errno.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        self.put(unique, -error, parts);
    }

    /// Sends up to `size` bytes from `read`. If `read` fails nothing is sent.
    pub(crate) fn send_read(
        &self,
        unique: u64,
        size: usize,
        read: Read<'_>,
    ) -> Result<(), FsError> {
        buffer::with(size, |buf| {
            let len = read(buf)?;
            self.send(unique, 0, [buf.get(..len).unwrap_or_default(), &[]]);
            Ok(())
        })
    }

    fn put(&self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        let len = size_of::<OutHeader>() + parts[0].len() + parts[1].len();
        let header = OutHeader {
            len: len as u32,
            error,
            unique,
        };
        (self.0)(&[header.as_bytes(), parts[0], parts[1]].concat());
    }
}

impl Sink {
    fn invalidate(&self, ino: Ino, off: i64, len: i64) {
        let body = NotifyInvalInode {
            ino: node_of(ino),
            off,
            len,
        };
        self.put(0, NOTIFY_INVAL_INODE, [body.as_bytes(), &[]]);
    }
}

impl Invalidate for Sink {
    fn attributes(&self, ino: Ino) {
        self.invalidate(ino, -1, 0);
    }

    fn content(&self, ino: Ino, offset: u64, len: u64) {
        self.invalidate(ino, offset as i64, len as i64);
    }
}
