//! What keeps processors awake.

use std::fs::File;
use std::io::{self, Write};

use super::spin;

/// The kernel's: the longest time that waking a processor may take, in µs, for as long as somebody
/// who said so has it open.
pub(crate) const PATH: &str = "/dev/cpu_dma_latency";
/// Which driver knows what sleeps there are (`cpuidle`).
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// It may take no time: processors without work look for some instead of sleeping.
const NONE: i32 = 0;
/// It may take any: the kernel's own default, as if the file was not open.
const ANY: i32 = 2_000_000_000;

/// What the kernel calls its driver for processors without work, "none" where it has none; nothing
/// where it does not say.
pub fn idle_driver() -> Option<String> {
    let driver = std::fs::read_to_string(DRIVER).ok()?;
    Some(driver.trim().to_owned())
}

/// What is held. The file stays open, so that a process that later may open nothing can hold it
/// still.
pub(super) enum Hold {
    /// [`PATH`]. A process that ends, in whatever way, gives it back.
    Kernel {
        file: File,
        /// The kernel asks nobody and halts: it has no driver that knows different sleeps, as in
        /// some virtual machines.
        halts: bool,
    },
    /// Threads of the idle class.
    Threads {
        /// Why it is not the kernel's way.
        why_not: Option<String>,
    },
}

impl Hold {
    /// By the kernel.
    ///
    /// # Errors
    /// There is no such file here (containers), or it is not ours to open (it takes root).
    pub(super) fn by_kernel() -> io::Result<Hold> {
        let mut file = File::options().write(true).open(PATH)?;
        file.write_all(&ANY.to_ne_bytes())?;
        let halts = idle_driver().is_some_and(|driver| driver == "none");
        Ok(Hold::Kernel { file, halts })
    }

    /// By threads of ours.
    pub(super) fn by_threads(why_not: Option<String>) -> Hold {
        Hold::Threads { why_not }
    }

    /// Why it is not the kernel's way, if so.
    pub(super) fn why_not(&self) -> Option<&str> {
        match self {
            Hold::Kernel { .. } => None,
            Hold::Threads { why_not } => why_not.as_deref(),
        }
    }

    /// Why processors sleep all the same, if that is known.
    pub(super) fn no_effect(&self) -> Option<&'static str> {
        match self {
            Hold::Kernel { halts: true, .. } => Some("the kernel has no cpuidle driver here"),
            Hold::Kernel { .. } | Hold::Threads { .. } => None,
        }
    }

    /// Threads that look after it.
    pub(super) fn keepers(&self) -> usize {
        match self {
            Hold::Kernel { .. } => 1,
            Hold::Threads { .. } => spin::threads(),
        }
    }

    /// Whether these threads have to run while it is held.
    pub(super) fn takes_threads(&self) -> bool {
        matches!(self, Hold::Threads { .. })
    }

    /// To be called by each of them.
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
