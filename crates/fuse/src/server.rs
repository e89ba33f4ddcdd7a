//! A volume being served: the mount, the session with the kernel, and closing the volume at its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{Config, INodeNo, Notifier, Session, SessionACL};
use stetfs::{Ino, Volume};

use crate::bridge::Bridge;
use crate::convert::node_of;
use crate::mount::{self, MountError, MountOptions, Unmount};
use crate::mountinfo::{self, MountEntry};
use crate::ops::Invalidate;
use crate::volume_fs::{VolumeFs, VolumeFsOptions};

/// How a volume is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The mount.
    pub mount: MountOptions,
    /// The volume.
    pub volume: VolumeFsOptions,
    /// Threads that take requests; 0: the cores and a few.
    pub threads: usize,
    /// Let the kernel keep written data back (faster small writes, dearer fsync).
    pub writeback_cache: bool,
    /// How far the kernel reads ahead, KiB.
    pub readahead_kib: u32,
}

impl ServeOptions {
    /// The defaults for `source`.
    pub fn new(source: impl Into<PathBuf>) -> ServeOptions {
        ServeOptions {
            mount: MountOptions::new(source),
            volume: VolumeFsOptions::default(),
            threads: 0,
            writeback_cache: false,
            readahead_kib: 1024,
        }
    }

    fn n_threads(&self) -> usize {
        match self.threads {
            // Some wait for room in the journal or for the device while others go on.
            0 => std::thread::available_parallelism().map_or(4, usize::from) + 4,
            n => n,
        }
    }
}

/// A mounted volume.
pub struct Server {
    session: Session<Bridge<VolumeFs>>,
    fs: Arc<VolumeFs>,
    mounted: Mounted,
}

/// The place of a mount, to take it down from any thread.
#[derive(Clone, Debug)]
pub struct Mounted {
    entry: MountEntry,
}

impl Mounted {
    /// The directory, absolute.
    pub fn dir(&self) -> &Path {
        &self.entry.dir
    }

    /// The device number, `major:minor`.
    pub fn dev(&self) -> &str {
        &self.entry.dev
    }

    /// Whether it is still in the name space.
    fn is_there(&self) -> bool {
        mountinfo::mount_at(self.dir())
            .ok()
            .flatten()
            .is_some_and(|now| now.dev == self.entry.dev)
    }

    /// Takes the mount down, lazily if it is in use.
    ///
    /// # Errors
    /// What the kernel or fusermount3 says.
    pub fn unmount(&self) -> Result<(), MountError> {
        if !self.is_there() {
            return Ok(());
        }
        match mount::unmount(self.dir(), Unmount::Now) {
            Err(MountError::Busy(dir)) => {
                tracing::warn!(dir = %dir.display(), "in use: detached, and served until the last user is gone");
                mount::unmount(self.dir(), Unmount::Lazy)
            }
            other => other,
        }
    }

    /// Ends the connection to the kernel: what programs still have open fails from now on.
    ///
    /// # Errors
    /// Not root, or the connection is gone already.
    pub fn abort(&self) -> std::io::Result<()> {
        mount::abort_connection(&self.entry)
    }
}

/// Sends the kernel word of changes.
struct Kernel(Notifier);

impl Invalidate for Kernel {
    fn attributes(&self, ino: Ino) {
        // A negative offset: the attributes alone. ENOENT: the kernel does not know the inode.
        let _ = self.0.inval_inode(INodeNo(node_of(ino).0), -1, 0);
    }
}

impl Server {
    /// Mounts `volume` on `dir`, which [`crate::check_dir`] gave. Requests wait until [`Server::run`].
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted then.
    pub fn mount(
        volume: Arc<Volume>,
        dir: &Path,
        options: &ServeOptions,
    ) -> Result<Server, MountError> {
        let fs = Arc::new(VolumeFs::new(volume, options.volume));
        let bridge = Bridge {
            fs: Arc::clone(&fs),
            writeback_cache: options.writeback_cache,
        };
        let mut config = Config::default();
        config.n_threads = Some(options.n_threads());
        config.clone_fd = true;
        config.acl = if options.mount.allow_other {
            SessionACL::All
        } else {
            SessionACL::Owner
        };
        config.mount_options = options.mount.for_fuser();
        let session = if mount::is_root() {
            let fuse = mount::open_fuse()?;
            mount::mount(&fuse, dir, &options.mount)?;
            Session::from_fd(bridge, fuse, config.acl, config).map_err(|e| {
                let _ = mount::unmount(dir, Unmount::Lazy);
                MountError::Session(e)
            })?
        } else {
            drop(mount::open_fuse()?);
            mount::find_fusermount()?;
            Session::new(bridge, dir, &config).map_err(|source| MountError::Mount {
                dir: dir.to_owned(),
                source,
            })?
        };
        let entry = mountinfo::mount_at(dir)
            .map_err(MountError::Session)?
            .ok_or_else(|| MountError::NotMounted(dir.to_owned()))?;
        set_readahead(&entry, options.readahead_kib);
        fs.notify(Arc::new(Kernel(session.notifier())));
        Ok(Server {
            session,
            fs,
            mounted: Mounted { entry },
        })
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
        let Server {
            session,
            fs,
            mounted,
        } = self;
        let served = session.run();
        fs.release_all();
        let closed = fs.volume().close();
        if served.is_err() {
            // A dead mount helps nobody.
            let _ = mounted.unmount();
        }
        closed?;
        served.map_err(|e| ServeError::Session(MountError::Session(e)))
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
    Close(#[from] stetfs::FsError),
}

/// FUSE's own request is bounded by this knob, which starts at 128 KiB. Root only, and no harm if
/// it fails.
fn set_readahead(entry: &MountEntry, kib: u32) {
    let knob = format!("/sys/class/bdi/{}/read_ahead_kb", entry.dev);
    if let Err(e) = std::fs::write(&knob, kib.to_string()) {
        tracing::debug!("cannot set {knob}: {e}");
    }
}
