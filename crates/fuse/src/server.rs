//! A volume being served: the mount, the session with the kernel, and closing the volume at its
//! end.

use std::sync::Arc;

use stetfs::low::{BlockDevice, Volume};

use crate::awake::Awake;
use crate::connection::Connection;
use crate::mount::{MountError, MountOptions};
use crate::mounted::Mounted;
use crate::mounter::{Entrance, Late, Mounter, Stood};
use crate::serve_options::ServeOptions;
use crate::volume_fs::{VolumeFs, VolumeFsOptions};
use crate::wire::{Session, SessionOptions};

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
    /// Has `volume` mounted as `mounter` was told, with the options that became of that. Requests
    /// wait until [`Server::run`].
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
        // Before the kernel has our answer to INIT: until then it asks for none at the end of the
        // mount.
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
        let session_options = session_options(&options.volume, no_uring.is_none());
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
        // The kernel has taken our answer to its offer.
        mounter.settle();
        let threads = options.n_threads();
        let ready = session.prepare(threads);
        if let Err(e) = ready.and_then(|()| fs.notify(session.kernel())) {
            // The unmount would wait for an answer of ours.
            drop(session);
            return Err(take_down(e));
        }
        let awakes = awake.view();
        let connection = Connection::new(&session, options, awakes, no_uring, mounted.as_ref());
        let Some(mounted) = mounted else {
            // Whoever unmounted it may be waiting for the volume to be closed.
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

    /// Where the server can be asked, once.
    pub fn entrance(&mut self) -> Option<Entrance> {
        self.entrance.take()
    }

    /// What was agreed on with the kernel, to be shown while [`Server::run`] runs.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The mount, to take it down while [`Server::run`] runs.
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// What is served, to look at it and to reopen it while [`Server::run`] runs.
    pub fn fs(&self) -> &Arc<VolumeFs> {
        &self.fs
    }

    /// Serves until the volume is unmounted, then brings everything home and closes it.
    ///
    /// # Errors
    /// The connection broke, or the volume could not be closed clean.
    pub fn run(self) -> Result<(), ServeError> {
        let served = self.session.run(self.threads, &self.awake);
        if served.is_err() {
            // A dead mount helps nobody.
            let _ = self.mounted.unmount();
        }
        self.fs.closed()?;
        served.map_err(|e| ServeError::Session(MountError::Session(e)))
    }
}

/// What the mount has to know of the volume. A block device that the kernel is to be shown is left
/// to it.
fn late(volume: &Volume, options: &MountOptions) -> Late {
    let span = volume.span();
    // What a loop device would show of a sparse image is not the volume.
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

/// What is asked of the kernel.
fn session_options(options: &VolumeFsOptions, io_uring: bool) -> SessionOptions {
    SessionOptions {
        writeback_cache: options.writeback_cache,
        async_dio: options.direct_io,
        maps_past_cache: options.maps_past_cache(),
        io_uring,
        idmap: options.idmap,
        stateless: options.stateless(),
        noxattr: options.noxattr,
        fakeroot: options.fakeroot,
    }
}

/// How serving ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The connection to the kernel.
    #[error("{0}")]
    Session(MountError),
    /// The volume could not be closed clean; it will be recovered at the next mount.
    #[error(
        "the volume could not be closed clean: {0}; it will be recovered when it is mounted next"
    )]
    Close(#[from] stetfs::low::FsError),
}
