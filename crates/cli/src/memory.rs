//! The bound of a mount's cache follows the memory that its server may use: the server may be moved
//! to another control group, or its group may get another limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use stetfs::low::{Preparer, default_cache_bytes};
use stetfs_fuse::VolumeFs;

use crate::options::Options;

/// The bound of a mount's cache.
#[derive(Default)]
pub(crate) struct CacheBound {
    /// The mount; set when it stands.
    fs: OnceLock<Weak<VolumeFs>>,
    /// The user gave the size: it stays.
    said: AtomicBool,
}

impl CacheBound {
    /// The bound for a mount with these options.
    pub(crate) fn of(options: &Options) -> CacheBound {
        let bound = CacheBound::default();
        bound.set(options);
        bound
    }

    /// Starts the thread that prepares the memory of a cache of so many bytes, and regularly calls
    /// [`follow`]. Without it the mount is slower, and the cache keeps its bound.
    ///
    /// [`follow`]: Self::follow
    pub(crate) fn prepare(self: &Arc<Self>, bytes: u64) -> Option<Preparer> {
        let bound = Arc::clone(self);
        Preparer::start(bytes, move || bound.follow())
            .inspect_err(|e| tracing::warn!("memory is not prepared before it is needed: {e}"))
            .ok()
    }

    /// Sets the mount.
    pub(crate) fn mounted(&self, fs: &Arc<VolumeFs>) {
        // Called once in the life of a server.
        let _ = self.fs.set(Arc::downgrade(fs));
    }

    /// Takes the options of a remount.
    pub(crate) fn set(&self, options: &Options) {
        let said = options.request.cache.is_some();
        self.said.store(said, Ordering::Relaxed);
    }

    /// Compares the cache's bound with the memory there is. If it should differ, sets it, and
    /// returns it in bytes.
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
        tracing::info!("available memory changed: the cache is now {mib} MiB");
        fs.set_cache_bytes(bound);
        Some(bound)
    }
}
