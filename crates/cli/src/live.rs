//! A mount while it is served: what the control socket and signals act on.

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
    /// What was given away.
    sandbox: OnceLock<Sandbox>,
    source: PathBuf,
    /// As of now.
    options: Mutex<Options>,
    /// Prepares memory for the cache.
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

    /// Notes what was given away, once it was.
    pub(crate) fn note(&self, sandbox: Sandbox) {
        // Set once, before the mount is said to stand.
        let _ = self.sandbox.set(sandbox);
    }

    /// What was given away; nothing before the mount stands.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandbox.get()
    }

    /// Changes the mount's options in place. Gives the names of those that were said, and stay as
    /// they are.
    pub(crate) fn remount(&self, text: &str) -> Result<Vec<&'static str>> {
        let mut current = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = current.clone();
        options::parse(text, false, &mut wanted)?;
        if wanted.part != current.part {
            let message = "a remount cannot go to another part of the image";
            return Err(Failure::new(Code::Usage, message)
                .hint("unmount it, and mount the other one, with its partition= or offset="));
        }
        if wanted.nvm != current.nvm {
            let message = "a remount cannot change where records of files go";
            return Err(Failure::new(Code::Usage, message)
                .hint("unmount it, and mount it again with the other nvm="));
        }
        if wanted.log_file != current.log_file {
            return Err(log::file_stays());
        }
        let kept = wanted.keep_fixed(&current);
        let volume = wanted.volume()?;
        // The kernel first stops writers, or last lets them in.
        let stops = wanted.read_only && !current.read_only;
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
                    tracing::error!("cannot take back a remount: {e}");
                }
            })?;
        }
        if !stops {
            self.set_flags(&wanted).inspect_err(|_| {
                if volume != old
                    && let Err(e) = self.reopen(&current, &old)
                {
                    tracing::error!("cannot take back a remount: {e}");
                }
            })?;
        }
        *current = wanted;
        Ok(kept)
    }

    /// Opens the volume again as `options` say, whose part for the volume is `volume`.
    fn reopen(&self, options: &Options, volume: &VolumeOptions) -> Result {
        // Before the new cache is there, which nobody is to change if its size was said.
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
                FsError::Errno(libc::EBUSY) => Failure::new(
                    Code::InUse,
                    "files that have no name any more are still open",
                )
                .hint("end the programs that hold them (lsof +L1), then try again"),
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

    /// Gives the mount the flags of `options`. Without root it has them.
    fn set_flags(&self, options: &Options) -> Result {
        if !is_root() {
            return Ok(());
        }
        Ok(self.mounted.set_flags(&options.mount(&self.source))?)
    }
}
