//! A volume being served: the mount, the session with the kernel, and closing the volume at its
//! end.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs::low::namespaces::own_namespace;
use stetfs::low::{BlockDevice, Volume};

use crate::awake::{Awake, Means};
use crate::bdi::Knobs;
use crate::connection::Connection;
use crate::fusermount;
use crate::helper;
use crate::loopdev::LoopDevice;
use crate::mount::{self, MountError, MountOptions, Unmount, What};
use crate::mounted::Mounted;
use crate::mountinfo;
use crate::namespace::Origin;
use crate::serve_options::{IoUring, ServeOptions};
use crate::uring_switch::{self, Moment};
use crate::volume_fs::{VolumeFs, VolumeFsOptions};
use crate::wire::{self, Session, SessionOptions};

/// More queues than this are not made unasked: each takes two threads.
const MANY_QUEUES: u16 = 64;

/// What was found out about io_uring before a mount.
struct UringChoice {
    /// Ask for it.
    wanted: bool,
    /// The kernel's switch is on as long as this is held.
    moment: Option<Moment>,
    /// Why not.
    why_not: Option<String>,
}

impl UringChoice {
    fn of(wanted: IoUring) -> Result<UringChoice, MountError> {
        let yes = |moment| UringChoice {
            wanted: true,
            moment,
            why_not: None,
        };
        let no = |why: String| UringChoice {
            wanted: false,
            moment: None,
            why_not: Some(why),
        };
        match wanted {
            IoUring::Off => Ok(no("io_uring=off".to_owned())),
            IoUring::On => match uring_switch::for_good() {
                Err(e) if !uring_switch::is_on() => Err(MountError::IoUring(e)),
                _ => Ok(yes(None)),
            },
            IoUring::Auto => Ok(match wire::queues() {
                Ok(n) if n > MANY_QUEUES => no(format!("{n} processors; io_uring=on takes it")),
                Err(e) => no(e.to_string()),
                Ok(_) => match uring_switch::for_a_moment() {
                    Ok(moment) => yes(Some(moment)),
                    // Not ours to turn on; but it may be on.
                    Err(_) if uring_switch::is_on() => yes(None),
                    Err(e) => no(format!("{}: {e}", uring_switch::PATH)),
                },
            }),
        }
    }
}

/// A mounted volume.
pub struct Server {
    session: Session<VolumeFs>,
    fs: Arc<VolumeFs>,
    mounted: Mounted,
    threads: usize,
    awake: Awake,
    connection: Connection,
}

impl Server {
    /// Mounts `volume` on `dir`, which [`crate::check_dir`] gave, in `origin`. Requests wait until
    /// [`Server::run`].
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted then. [`MountError::Gone`] is no failure.
    pub fn mount(
        volume: Arc<Volume>,
        dir: &Path,
        options: &ServeOptions,
        origin: Origin,
    ) -> Result<Server, MountError> {
        let (low_latency, wanted) = (options.low_latency, options.io_uring);
        let means = origin
            .run(move || Means::find(low_latency))
            .and_then(|found| found)
            .map_err(MountError::LowLatency)?;
        let awake = Awake::start(means).map_err(MountError::LowLatency)?;
        let io_uring = origin
            .run(move || UringChoice::of(wanted))
            .map_err(MountError::Session)??;
        let moved = origin.is_elsewhere();
        let job = {
            let (volume, dir, options) = (Arc::clone(&volume), dir.to_owned(), options.clone());
            move || mount_here(&volume, &dir, &options, moved)
        };
        // Before the kernel has our answer to INIT: until then it asks for none at the end of the
        // mount.
        let Attached {
            fuse,
            loop_device,
            mounted,
            knobs,
        } = origin.last(job).map_err(MountError::Session)??;
        if let (Some(helper), Some(mounted)) = (helper::ours(), &mounted)
            && let Err(e) = helper.told_of(mounted, options.mount.flags(), loop_device.as_deref())
        {
            tracing::warn!("the helper is gone, and with it who could change the mount: {e}");
        }
        let fs = VolumeFs::new(volume, options.volume);
        if let Some(device) = loop_device {
            fs.shown_on(device);
        }
        let session_options = session_options(&options.volume, io_uring.wanted);
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
            Session::start(Arc::clone(&fs), fuse, session_options).map_err(take_down)?;
        // The kernel has taken our answer to its offer.
        drop(io_uring.moment);
        let threads = options.n_threads();
        let ready = session.prepare(threads);
        if let Err(e) = ready.and_then(|()| fs.notify(session.kernel())) {
            // The unmount would wait for an answer of ours.
            drop(session);
            return Err(take_down(e));
        }
        let (awakes, why_not) = (awake.view(), io_uring.why_not);
        let connection = Connection::new(&session, options, awakes, why_not, mounted.as_ref());
        let Some(mounted) = mounted else {
            // Whoever unmounted it may be waiting for the volume to be closed.
            session.run(1, &awake).map_err(MountError::Session)?;
            return Err(MountError::Gone);
        };
        knobs.turn();
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
        })
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

/// A mount that was just made.
struct Attached {
    /// The connection.
    fuse: OwnedFd,
    /// The loop device, if one was made.
    loop_device: Option<PathBuf>,
    /// The mount, unless somebody took it down at once.
    mounted: Option<Mounted>,
    /// What the kernel allows it.
    knobs: Knobs,
}

/// Mounts in the calling thread's namespace, which the server has left if it `moved`.
fn mount_here(
    volume: &Volume,
    dir: &Path,
    options: &ServeOptions,
    moved: bool,
) -> Result<Attached, MountError> {
    let (fuse, loop_device) = if mount::is_root() {
        mount_by_kernel(volume, dir, &options.mount)?
    } else {
        (fusermount::mount(dir, &options.mount)?, None)
    };
    let found = mountinfo::mount_at(dir).and_then(|found| {
        let Some(entry) = found.filter(mountinfo::is_stetfs) else {
            return Ok(None);
        };
        Ok(Some(match moved {
            true => Mounted::elsewhere(entry, own_namespace()?),
            false => Mounted::here(entry),
        }))
    });
    let mounted = found.map_err(|e| {
        let _ = mount::unmount(dir, Unmount::Lazy);
        MountError::Session(e)
    })?;
    let entry = mounted.as_ref().map(Mounted::entry);
    let knobs = entry.map_or_else(Knobs::default, |entry| {
        Knobs::open(entry, options.readahead_kib)
    });
    Ok(Attached {
        fuse,
        loop_device,
        mounted,
        knobs,
    })
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

/// Mounts with mount(2): as a block device where that is possible. Gives the connection, and the
/// loop device if one was made.
fn mount_by_kernel(
    volume: &Volume,
    dir: &Path,
    options: &MountOptions,
) -> Result<(OwnedFd, Option<PathBuf>), MountError> {
    let fuse = mount::open_fuse()?;
    // What a loop device would show of a sparse image is not the volume.
    let Some(device) = volume.host().file().filter(|_| !volume.is_sparse()) else {
        mount::mount(&fuse, What::Nothing, dir, options)?;
        return Ok((fuse, None));
    };
    // Kept until the mount holds it.
    let looped;
    let mut loop_device = None;
    let path = if device.is_block_device() && volume.span().is_none() {
        // The mount takes it over.
        device.release_exclusive_claim();
        device.path()
    } else {
        match LoopDevice::attach(device.path(), volume.span(), device.read_only()) {
            Ok(attached) => {
                looped = attached;
                loop_device = Some(looped.path().to_owned());
                looped.path()
            }
            Err(e) => {
                tracing::info!("no loop device: sync(2) will not reach the volume: {e}");
                mount::mount(&fuse, What::Nothing, dir, options)?;
                return Ok((fuse, None));
            }
        }
    };
    let block_size = volume
        .fs()
        .statfs()
        .block_size
        .min(4096)
        .max(device.sector_size());
    match mount::mount(&fuse, What::Device(path, block_size), dir, options) {
        // A kernel without fuseblk.
        Err(MountError::Mount { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => {
            mount::mount(&fuse, What::Nothing, dir, options)?;
            loop_device = None;
        }
        other => other?,
    }
    Ok((fuse, loop_device))
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
