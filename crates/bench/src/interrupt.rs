//! Ctrl-C: what runs comes to its end, and all is taken down. (A process that ended at once would
//! leave mounts behind, and where it serves a simulated device itself, a kernel that waits for it
//! for ever.)

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on SIGINT and SIGTERM end measurements between two steps instead of the process.
///
/// # Errors
/// The system's.
pub fn watch() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&ASKED))?;
    }
    Ok(())
}

/// Somebody wanted the end. All was taken down.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted; everything was taken down")]
pub struct Interrupted;

/// [`Interrupted`] once a signal has come.
pub(crate) fn check() -> Result<()> {
    if ASKED.load(Ordering::Relaxed) {
        bail!(Interrupted);
    }
    Ok(())
}
