//! What keeps processors awake.

use std::fs::File;
use std::io::{self, Write};

use super::spin;

/// The kernel's: the longest time that waking a processor may take, in µs, for as long as somebody
/// who said so has it open.
pub(crate) const PATH: &str = "/dev/cpu_dma_latency";
/// Which driver knows what sleeps there are; the kernel says "none" where it has none.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// It may take no time: processors without work look for some instead of sleeping.
const NONE: i32 = 0;
/// It may take any: the kernel's own default, as if the file was not open.
const ANY: i32 = 2_000_000_000;

/// Why the kernel lets processors sleep all the same, if it does: where it has no driver that knows
/// different sleeps (`cpuidle`), as in some virtual machines, it asks nobody and halts them.
pub(super) fn no_effect() -> Option<&'static str> {
    let driver = std::fs::read_to_string(DRIVER).ok()?;
    (driver.trim() == "none").then_some("the kernel has no cpuidle driver here")
}

/// What is held. The file stays open, so that a process that later may open nothing can hold it
/// still.
pub(super) enum Hold {
    /// [`PATH`]. A process that ends, in whatever way, gives it back.
    Kernel(File),
    /// Threads of the idle class.
    Threads,
}

impl Hold {
    /// By the kernel.
    ///
    /// # Errors
    /// There is no such file here (containers), or it is not ours to open (it takes root).
    pub(super) fn by_kernel() -> io::Result<Hold> {
        let mut file = File::options().write(true).open(PATH)?;
        file.write_all(&ANY.to_ne_bytes())?;
        Ok(Hold::Kernel(file))
    }

    /// By threads of ours.
    pub(super) fn by_threads() -> Hold {
        Hold::Threads
    }

    /// Threads that look after it.
    pub(super) fn keepers(&self) -> usize {
        match self {
            Hold::Kernel(_) => 1,
            Hold::Threads => spin::threads(),
        }
    }

    /// Whether these threads have to run while it is held.
    pub(super) fn takes_threads(&self) -> bool {
        matches!(self, Hold::Threads)
    }

    /// To be called by each of them.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Hold::Kernel(_) => Ok(()),
            Hold::Threads => spin::yield_to_all(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Hold::Kernel(_) => PATH,
            Hold::Threads => "idle-class threads",
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
            Hold::Kernel(file) => {
                let mut file = file;
                file.write_all(&latency.to_ne_bytes())
            }
            Hold::Threads => Ok(()),
        }
    }
}
