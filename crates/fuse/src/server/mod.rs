//! A volume being served: the mount, the session with the kernel, and closing the volume at its
//! end.

pub(crate) mod connection;
pub(crate) mod mounter;
pub(crate) mod options;
pub(crate) mod service;
#[cfg(debug_assertions)]
pub(crate) mod taken_over;

use std::sync::Arc;

use stetfs::low::{BlockDevice, Volume};

use crate::mount::mounted::Mounted;
use crate::mount::{MountError, MountOptions};
use crate::requests::volume_fs::VolumeFs;
use crate::server::connection::Connection;
use crate::server::mounter::{Entrance, Late, Mounter, Stood};
use crate::server::options::ServeOptions;
use crate::session::Session;
use crate::transport::awake::Awake;

/// A mounted volume.
pub struct Server {
    session: Session<VolumeFs>,
    fs: Arc<VolumeFs>,
    mounted: Mounted,
    threads: usize,
    awake: Awake,
    connection: Connection,
    entrance: Option<Entrance>,
}

impl Server {
    /// Has the mounter mount `volume`, with `options`. Requests wait until [`Server::run`].
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted then. [`MountError::Gone`] is no failure.
    pub fn mount(
        volume: Arc<Volume>,
        options: &ServeOptions,
        mut mounter: Mounter,
    ) -> Result<Server, MountError> {
        let (means, rings) = mounter.prepared();
        let awake = Awake::start(means).map_err(MountError::LowLatency)?;
        // The kernel does not have the answer to INIT yet: until then it sends no request when the
        // mount is removed.
        let Stood {
            fuse,
            loop_device,
            mounted,
            no_uring,
            entrance,
        } = mounter.mount(late(&volume, &options.mount))?;
        let fs = VolumeFs::new(volume, options.volume);
        if let Some(device) = loop_device {
            fs.shown_on(device);
        }
        let session_options = options.volume.session(no_uring.is_none());
        let take_down = |e: std::io::Error| {
            if e.kind() == std::io::ErrorKind::NotConnected {
                return MountError::Gone;
            }
            if let Some(mounted) = &mounted {
                let _ = mounted.unmount();
            }
            MountError::Session(e)
        };
        let mut session =
            Session::start(Arc::clone(&fs), fuse, session_options, rings).map_err(take_down)?;
        // The kernel has accepted the answer to its offer.
        mounter.settle();
        let threads = options.n_threads();
        let ready = session.prepare(threads);
        if let Err(e) = ready.and_then(|()| fs.notify(session.kernel())) {
            // With the session open, the unmount would wait for an answer of this server.
            drop(session);
            return Err(take_down(e));
        }
        let awakes = awake.view();
        let connection = Connection::new(&session, options, awakes, no_uring, mounted.as_ref());
        let Some(mounted) = mounted else {
            // The program that unmounted it may be waiting for the volume to be closed.
            session.run(1, &awake).map_err(MountError::Session)?;
            return Err(MountError::Gone);
        };
        if session.is_stateless() {
            fs.open_without_handles();
        }
        tracing::debug!(stateless = session.is_stateless(), "how files are opened");
        Ok(Server {
            session,
            fs,
            mounted,
            threads,
            awake,
            connection,
            entrance,
        })
    }

    /// The socket for queries to the server; returned once.
    pub fn entrance(&mut self) -> Option<Entrance> {
        self.entrance.take()
    }

    /// The result of the negotiation with the kernel, for display while [`Server::run`] runs.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The mount, for unmounting while [`Server::run`] runs.
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// The file system, for inspecting and reopening it while [`Server::run`] runs.
    pub fn fs(&self) -> &Arc<VolumeFs> {
        &self.fs
    }

    /// Serves until the volume is unmounted, then writes everything back and closes it.
    ///
    /// # Errors
    /// The connection broke, or the volume could not be closed clean.
    pub fn run(self) -> Result<(), ServeError> {
        let served = self.session.run(self.threads, &self.awake);
        if served.is_err() {
            // A dead mount is of no use.
            let _ = self.mounted.unmount();
        }
        self.fs.closed()?;
        served.map_err(|e| ServeError::Session(MountError::Session(e)))
    }
}

/// The volume's parameters for the mount. If the kernel is to be shown the volume's block device,
/// its exclusive claim is given up here.
fn late(volume: &Volume, options: &MountOptions) -> Late {
    let span = volume.span();
    // A loop device would show the sparse file, not the volume.
    let Some(device) = volume.host().file().filter(|_| !volume.is_sparse()) else {
        return Late {
            shown: None,
            span: None,
            read_only: options.read_only,
        };
    };
    if device.is_block_device() && span.is_none() {
        // The mount takes it over.
        device.release_exclusive_claim();
    }
    let block_size = volume.fs().statfs().block_size.min(4096);
    Late {
        shown: Some(block_size.max(device.sector_size())),
        span,
        read_only: device.read_only(),
    }
}

/// The error with which serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The connection to the kernel broke.
    #[error("{0}")]
    Session(MountError),
    /// The volume could not be closed clean; it will be recovered at the next mount.
    #[error(
        "the volume could not be closed clean: {0}; it will be recovered when it is mounted next"
    )]
    Close(#[from] stetfs::low::FsError),
}
