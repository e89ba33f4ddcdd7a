//! Ctrl-C, to be waited for beside other things.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::{Code, Failure, Result};

/// Ctrl-C, or SIGTERM, which end nothing by themselves any more.
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    /// Can be read when it came.
    pub(crate) pipe: UnixStream,
}

impl Interrupt {
    /// From now on.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn watch() -> Result<Interrupt> {
        Interrupt::register()
            .map_err(|e| Failure::new(Code::System, format!("cannot handle signals: {e}")))
    }

    fn register() -> io::Result<Interrupt> {
        let came = Arc::new(AtomicBool::new(false));
        let (pipe, tell) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            // In this order: the pipe wakes who then looks at the flag.
            signal_hook::flag::register(signal, Arc::clone(&came))?;
            signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
        }
        Ok(Interrupt { came, pipe })
    }

    /// Whether it came.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Acquire)
    }
}
