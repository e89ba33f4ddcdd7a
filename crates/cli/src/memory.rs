//! The cache of a mount goes by the memory that its server may use now: the server may be moved to
//! another control group, or its group get another limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use stetfs::low::{Preparer, default_cache_bytes};
use stetfs_fuse::VolumeFs;

use crate::options::Options;

/// What bound the cache of a mount shall have.
#[derive(Default)]
pub(crate) struct CacheBound {
    /// Once it is mounted.
    fs: OnceLock<Weak<VolumeFs>>,
    /// By the user: then it stays.
    said: AtomicBool,
}

impl CacheBound {
    /// For a mount with these options.
    pub(crate) fn of(options: &Options) -> CacheBound {
        let bound = CacheBound::default();
        bound.set(options);
        bound
    }

    /// Starts what prepares the memory of a cache of so many bytes, and asks [`follow`]. Nothing
    /// depends on it but time, and that the cache follows.
    ///
    /// [`follow`]: Self::follow
    pub(crate) fn prepare(self: &Arc<Self>, bytes: u64) -> Option<Preparer> {
        let bound = Arc::clone(self);
        Preparer::start(bytes, move || bound.follow())
            .inspect_err(|e| tracing::warn!("memory is not prepared before it is needed: {e}"))
            .ok()
    }

    /// It is for this mount.
    pub(crate) fn mounted(&self, fs: &Arc<VolumeFs>) {
        // Once in the life of a server.
        let _ = self.fs.set(Arc::downgrade(fs));
    }

    /// The mount has these options from now on.
    pub(crate) fn set(&self, options: &Options) {
        let said = options.cache_bytes.is_some();
        self.said.store(said, Ordering::Relaxed);
    }

    /// Looks at what memory there is. Where the cache shall have another bound, it gets that, and
    /// this says how many bytes.
    pub(crate) fn follow(&self) -> Option<u64> {
        if self.said.load(Ordering::Relaxed) {
            return None;
        }
        let volume = self.fs.get()?.upgrade()?.volume()?;
        let (fs, bound) = (volume.fs(), default_cache_bytes());
        if fs.cache_bytes() == bound {
            return None;
        }
        let mib = bound >> 20;
        tracing::info!("the memory that may be used is another: the cache has {mib} MiB now");
        fs.set_cache_bytes(bound);
        Some(bound)
    }
}
