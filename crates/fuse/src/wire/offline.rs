//! A session without a kernel: whoever has one hands in requests, as the kernel would write them,
//! and is handed the answers. What a server makes of requests that no kernel sends is tried so.

use std::io;
use std::sync::Arc;

use stetfs::low::{FsError, Volume};
use zerocopy::{FromBytes, IntoBytes};

use super::abi::InHeader;
use super::dispatch::{self, Body, Next};
use super::negotiate::{SessionOptions, agree, is_stateless};
use super::port::Port;
use super::reply::Reply;
use super::ring::OPERATION;
use super::sink::{Answers, Sink};
use crate::inline_wait;
use crate::ops::FileSystem;
use crate::volume_fs::{VolumeFs, VolumeFsOptions};

/// A volume that is served to whoever calls [`Offline::serve`].
pub struct Offline {
    fs: Arc<VolumeFs>,
    sink: Sink,
}

impl Offline {
    /// Begins a session with the request `first`, which is to be INIT; `answers` takes its answer
    /// and all others.
    ///
    /// # Errors
    /// `first` is not INIT, or from a kernel that is too old.
    pub fn start(
        volume: Arc<Volume>,
        options: VolumeFsOptions,
        first: &[u8],
        answers: Answers,
    ) -> io::Result<Offline> {
        let sink = Sink(answers);
        let fs = VolumeFs::new(volume, options);
        let wanted = SessionOptions {
            stateless: options.stateless(),
            ..SessionOptions::default()
        };
        let send = |unique: u64, error: i32, body: &[u8]| sink.send(unique, error, [body, &[]]);
        let first = agree(first, &wanted, send)?;
        send(first.unique, 0, first.agreed.answer().as_bytes());
        if is_stateless(first.agreed) {
            fs.open_without_handles();
        }
        fs.notify(Arc::new(sink.clone()))?;
        Ok(Offline { fs, sink })
    }

    /// Serves one request in this thread. Its answer, if it has one, may come later and from
    /// another thread. `alone` tells that no other thread serves meanwhile.
    pub fn serve(&self, request: &[u8], alone: bool) {
        inline_wait::set(!alone, !alone);
        let port = || Port::Offline(self.sink.clone());
        self.ended(dispatch::serve_bytes(&*self.fs, port, request));
    }

    /// Serves one request as it comes by io_uring: its head, that of the operation with whatever
    /// lies behind it, and the rest are apart. A head that is too short is none.
    pub fn serve_parts(
        &self,
        head: &[u8],
        operation: &[u8; OPERATION],
        payload: &[u8],
        alone: bool,
    ) {
        inline_wait::set(!alone, !alone);
        let Ok((head, _)) = InHeader::read_from_prefix(head) else {
            return;
        };
        let reply = Reply::new(Port::Offline(self.sink.clone()), head.unique);
        let body = Body::split(operation, payload);
        self.ended(dispatch::serve(&*self.fs, &head, body, reply));
    }

    fn ended(&self, next: Next) {
        if let Next::Destroy(reply) = next {
            self.fs.shutdown();
            reply.empty();
        }
    }

    /// Ends the session, as an unmount does.
    ///
    /// # Errors
    /// The volume could not be closed clean.
    pub fn end(self) -> Result<(), FsError> {
        self.fs.shutdown();
        self.fs.closed()
    }
}
