//! Ctrl-C as an event that can be waited for beside others.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::{Code, Failure, Result};

/// Ctrl-C and SIGTERM, which no longer end the process by themselves.
pub struct Interrupt {
    came: Arc<AtomicBool>,
    /// Becomes readable when one came.
    pub pipe: UnixStream,
}

impl Interrupt {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn watch() -> Result<Interrupt> {
        Interrupt::register()
            .map_err(|e| Failure::new(Code::System, format!("cannot handle signals: {e}")))
    }

    fn register() -> io::Result<Interrupt> {
        let came = Arc::new(AtomicBool::new(false));
        let (pipe, tell) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            // The flag is registered first: the pipe wakes the thread that looks at the flag.
            signal_hook::flag::register(signal, Arc::clone(&came))?;
            signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
        }
        Ok(Interrupt { came, pipe })
    }

    /// Whether one came.
    pub fn came(&self) -> bool {
        self.came.load(Ordering::Acquire)
    }
}
