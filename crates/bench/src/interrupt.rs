//! Ctrl-C: the running measurement ends, and everything is taken down. (An immediate end would
//! leave mounts behind and, where this process serves a simulated device, a kernel that waits for
//! it forever.)

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on SIGINT and SIGTERM end measurements between two steps, and not the process.
///
/// # Errors
/// The errors of the system.
pub fn watch() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&ASKED))?;
    }
    Ok(())
}

/// The measurement was interrupted. Everything was taken down.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted; everything was taken down")]
pub struct Interrupted;

/// Returns [`Interrupted`] once a signal has come.
pub(crate) fn check() -> Result<()> {
    if ASKED.load(Ordering::Relaxed) {
        bail!(Interrupted);
    }
    Ok(())
}
