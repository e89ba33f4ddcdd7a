//! A session without a kernel: the caller passes requests in the kernel's format, and receives the
//! answers. It serves to test requests that no kernel sends.

use std::io;
use std::sync::Arc;

use stetfs::low::{FsError, Volume};
use zerocopy::{FromBytes, IntoBytes};

use crate::api::inline_wait;
use crate::api::ops::FileSystem;
use crate::dispatch::reply::Reply;
use crate::dispatch::{self, Body, Next};
use crate::requests::volume_fs::{VolumeFs, VolumeFsOptions};
use crate::transport::port::Port;
use crate::transport::ring::memory::OPERATION;
use crate::transport::sink::{Answers, Sink};
use crate::wire::abi::InHeader;
use crate::wire::negotiate::{Agreed, SessionOptions, agree, is_stateless};

/// A file system that is served to the callers of [`Offline::serve`].
pub struct Offline<F = VolumeFs> {
    fs: Arc<F>,
    sink: Sink,
}

impl Offline {
    /// Begins a session on a volume with the request `first`, which must be INIT; `answers`
    /// receives all answers.
    ///
    /// # Errors
    /// `first` is not INIT, or from a kernel that is too old.
    pub fn start(
        volume: Arc<Volume>,
        options: VolumeFsOptions,
        first: &[u8],
        answers: Answers,
    ) -> io::Result<Offline> {
        let fs = VolumeFs::new(volume, options);
        let (offline, agreed) = Offline::begin(fs, &options.session(false), first, answers)?;
        if is_stateless(agreed) {
            offline.fs.open_without_handles();
        }
        offline.fs.notify(Arc::new(offline.sink.clone()))?;
        Ok(offline)
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

impl<F: FileSystem> Offline<F> {
    /// Begins a session on any file system, as [`Offline::start`] does on a volume.
    ///
    /// # Errors
    /// The errors of [`Offline::start`].
    pub fn of(fs: Arc<F>, first: &[u8], answers: Answers) -> io::Result<Offline<F>> {
        Offline::begin(fs, &SessionOptions::default(), first, answers).map(|(offline, _)| offline)
    }

    fn begin(
        fs: Arc<F>,
        wanted: &SessionOptions,
        first: &[u8],
        answers: Answers,
    ) -> io::Result<(Offline<F>, Agreed)> {
        let sink = Sink(answers);
        let send = |unique: u64, error: i32, body: &[u8]| sink.send(unique, error, [body, &[]]);
        let first = agree(first, wanted, send)?;
        send(first.unique, 0, first.agreed.answer().as_bytes());
        Ok((Offline { fs, sink }, first.agreed))
    }

    /// The file system, for what no request asks: freezing a volume, reopening it.
    pub fn file_system(&self) -> &Arc<F> {
        &self.fs
    }

    /// Serves one request in this thread. Its answer, if it has one, may come later and from
    /// another thread. `alone` says that no other thread serves meanwhile.
    pub fn serve(&self, request: &[u8], alone: bool) {
        inline_wait::set(!alone, !alone);
        let port = || Port::Offline(self.sink.clone());
        self.ended(dispatch::serve_bytes(&*self.fs, port, request));
    }

    /// Serves one request in the form of io_uring: its header, the operation's header with the
    /// bytes behind it, and the payload are separate. A header that is too short is ignored.
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
}
