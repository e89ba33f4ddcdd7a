//! A mount while it is served: the state that the control socket and signals act on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use stetfs::low::{FsError, Preparer, VolumeOptions};
use stetfs_fuse::{Connection, Mounted, Server, VolumeFs, is_root};

use crate::failure::{Code, Failure, Result};
use crate::job::Job;
use crate::log;
use crate::memory::CacheBound;
use crate::options::{self, Options};
use crate::sandbox::Sandbox;

/// A mount being served.
pub(crate) struct Live {
    pub(crate) fs: Arc<VolumeFs>,
    pub(crate) mounted: Mounted,
    pub(crate) connection: Connection,
    /// The privileges that were given up.
    sandbox: OnceLock<Sandbox>,
    source: PathBuf,
    /// The current options.
    options: Mutex<Options>,
    /// The thread that prepares memory for the cache.
    memory: Option<Preparer>,
    cache_bound: Arc<CacheBound>,
}

impl Live {
    /// The mount of `server`, made for `job`.
    pub(crate) fn new(
        server: &Server,
        job: &Job,
        memory: Option<Preparer>,
        cache_bound: Arc<CacheBound>,
    ) -> Live {
        cache_bound.mounted(server.fs());
        Live {
            fs: Arc::clone(server.fs()),
            mounted: server.mounted().clone(),
            connection: server.connection().clone(),
            sandbox: OnceLock::new(),
            source: job.source.clone(),
            options: Mutex::new(job.options.clone()),
            memory,
            cache_bound,
        }
    }

    /// Notes the privileges that were given up.
    pub(crate) fn note(&self, sandbox: Sandbox) {
        // Set once, before the mount is reported.
        let _ = self.sandbox.set(sandbox);
    }

    /// The privileges that were given up; `None` before the mount stands.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandbox.get()
    }

    /// Changes the mount's options in place. Returns the names of options that were given but
    /// cannot change.
    pub(crate) fn remount(&self, text: &str) -> Result<Vec<&'static str>> {
        let mut current = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = current.clone();
        options::parse(text, false, &mut wanted)?;
        if wanted.request.place != current.request.place {
            let message = "a remount cannot change the part of the image";
            return Err(Failure::new(Code::Usage, message)
                .hint("unmount it, and mount the other part with its partition= or offset="));
        }
        if wanted.request.nvm != current.request.nvm {
            let message = "a remount cannot change the place of file records (nvm=)";
            return Err(Failure::new(Code::Usage, message)
                .hint("unmount it, and mount it again with the other nvm="));
        }
        if wanted.log_file != current.log_file {
            return Err(log::file_stays());
        }
        let kept = wanted.keep_fixed(&current);
        let volume = wanted.volume()?;
        // The kernel stops writers first, or lets them in last.
        let stops = wanted.request.fs.read_only && !current.request.fs.read_only;
        let (flags, new_flags) = (current.mount(&self.source), wanted.mount(&self.source));
        if flags != new_flags && !is_root() {
            return Err(Failure::new(
                Code::Usage,
                "only root can change ro, rw, access times and the like of a mount in place",
            )
            .hint("unmount it and mount it again, or remount with options of the volume only"));
        }
        if stops {
            self.set_flags(&wanted)?;
        }
        let old = current.volume()?;
        if volume != old {
            self.reopen(&wanted, &volume).inspect_err(|_| {
                self.cache_bound.set(&current);
                if stops && let Err(e) = self.set_flags(&current) {
                    tracing::error!("cannot undo the remount: {e}");
                }
            })?;
        }
        if !stops {
            self.set_flags(&wanted).inspect_err(|_| {
                if volume != old
                    && let Err(e) = self.reopen(&current, &old)
                {
                    tracing::error!("cannot undo the remount: {e}");
                }
            })?;
        }
        *current = wanted;
        Ok(kept)
    }

    /// Opens the volume again with `options`; `volume` is their part for the volume.
    fn reopen(&self, options: &Options, volume: &VolumeOptions) -> Result {
        // The bound is set before the new cache exists: a size that the user gave must not be
        // adapted.
        self.cache_bound.set(options);
        self.fs.reopen(volume).map_err(|e| {
            if self.fs.volume().is_none() {
                let message = format!("the mount has stopped: {e}");
                return Failure::new(Code::Io, message).hint(
                    "every call fails now: unmount it and mount it again; what was synced is in \
                     the volume or in its journal",
                );
            }
            match e {
                FsError::Errno(libc::EBUSY) => {
                    Failure::new(Code::InUse, "deleted files are still open")
                        .hint("end the programs that hold them (lsof +L1), then try again")
                }
                FsError::Errno(libc::EROFS) => Failure::from(e)
                    .hint("the volume or its device is read-only; the mount goes on as it was"),
                e => Failure::from(e).hint("the mount goes on as it was"),
            }
        })?;
        if let Some(memory) = &self.memory {
            memory.set_bound(volume.fs.cache_bytes);
        }
        Ok(())
    }

    /// Gives the mount the flags of `options`. Without root they are the same already.
    fn set_flags(&self, options: &Options) -> Result {
        if !is_root() {
            return Ok(());
        }
        Ok(self.mounted.set_flags(&options.mount(&self.source))?)
    }
}
