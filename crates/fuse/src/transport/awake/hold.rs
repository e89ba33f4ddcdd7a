//! The means that keep processors awake.

use std::fs::File;
use std::io::{self, Write};

use super::spin;

/// The kernel's file for the maximum wake-up latency of processors in µs. A value applies as long
/// as the process that wrote it has the file open.
pub(crate) const PATH: &str = "/dev/cpu_dma_latency";
/// The file with the kernel's idle driver (`cpuidle`), which knows the sleep states.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// No latency: idle processors poll for work instead of sleeping.
const NONE: i32 = 0;
/// Any latency: the kernel's default, as if the file was not open.
const ANY: i32 = 2_000_000_000;

/// The kernel's name of its idle driver, "none" if it has none; `None` if it does not say.
pub fn idle_driver() -> Option<String> {
    let driver = std::fs::read_to_string(DRIVER).ok()?;
    Some(driver.trim().to_owned())
}

/// The means in use. The file stays open, so that a process without the right to open files can
/// still use it.
pub(super) enum Hold {
    /// The kernel, by [`PATH`]. It is released when the process ends, in whatever way.
    Kernel {
        file: File,
        /// Whether the kernel halts idle processors regardless: it has no driver that knows
        /// different sleep states, as in some virtual machines.
        halts: bool,
    },
    /// Threads of the idle class.
    Threads {
        /// The reason why the kernel's file is not used.
        why_not: Option<String>,
    },
}

impl Hold {
    /// Uses the kernel's file.
    ///
    /// # Errors
    /// There is no such file (containers), or this process may not open it (it takes root).
    pub(super) fn by_kernel() -> io::Result<Hold> {
        let mut file = File::options().write(true).open(PATH)?;
        file.write_all(&ANY.to_ne_bytes())?;
        let halts = idle_driver().is_some_and(|driver| driver == "none");
        Ok(Hold::Kernel { file, halts })
    }

    /// Uses threads of this process.
    pub(super) fn by_threads(why_not: Option<String>) -> Hold {
        Hold::Threads { why_not }
    }

    /// The reason why the kernel's file is not used, if so.
    pub(super) fn why_not(&self) -> Option<&str> {
        match self {
            Hold::Kernel { .. } => None,
            Hold::Threads { why_not } => why_not.as_deref(),
        }
    }

    /// The reason why processors sleep all the same, if it is known.
    pub(super) fn no_effect(&self) -> Option<&'static str> {
        match self {
            Hold::Kernel { halts: true, .. } => Some("the kernel has no cpuidle driver here"),
            Hold::Kernel { .. } | Hold::Threads { .. } => None,
        }
    }

    /// Number of keeper threads.
    pub(super) fn keepers(&self) -> usize {
        match self {
            Hold::Kernel { .. } => 1,
            Hold::Threads { .. } => spin::threads(),
        }
    }

    /// Whether the keeper threads must run while processors are kept awake.
    pub(super) fn takes_threads(&self) -> bool {
        matches!(self, Hold::Threads { .. })
    }

    /// Called by each keeper thread at its start.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Hold::Kernel { .. } => Ok(()),
            Hold::Threads { .. } => spin::yield_to_all(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Hold::Kernel { .. } => PATH,
            Hold::Threads { .. } => "idle-class threads",
        }
    }

    pub(super) fn take(&self) -> io::Result<()> {
        self.say(NONE)
    }

    pub(super) fn give_back(&self) -> io::Result<()> {
        self.say(ANY)
    }

    fn say(&self, latency: i32) -> io::Result<()> {
        match self {
            Hold::Kernel { file, .. } => {
                let mut file = file;
                file.write_all(&latency.to_ne_bytes())
            }
            Hold::Threads { .. } => Ok(()),
        }
    }
}
