//! Cold caches.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The kernel needs seconds at most.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The kernel of a virtual machine that gives free memory back to its host does so by sixteenths,
/// one every 2 s (`mm/page_reporting.c`): so long it takes until all is given back.
const REPORTED: Duration = Duration::from_secs(40);

/// Waits until free memory is as on a machine that has been up for long: where a virtual machine
/// gives it back to its host, all of it has been, and the next to touch it waits for the host.
pub(crate) fn let_memory_go() {
    let order = Path::new("/sys/module/page_reporting/parameters/page_reporting_order");
    if order.exists() {
        std::thread::sleep(REPORTED);
    }
}

/// [`drop_caches`], or a word that reads may come from memory.
pub(crate) fn try_drop_caches() {
    static STUCK: AtomicBool = AtomicBool::new(false);
    if STUCK.load(Ordering::Relaxed) {
        return;
    }
    if let Err(e) = drop_caches() {
        STUCK.store(true, Ordering::Relaxed);
        eprintln!("reads may come from the host's cache: {e:#}");
    }
}

/// Has the kernel drop what it caches. Only root may.
///
/// # Errors
/// Not root; or the kernel does not answer, as when a mount of somebody's is stuck in it: then the
/// caches stay as they are.
fn drop_caches() -> Result<()> {
    // In a process of its own: whoever asks a kernel that is stuck cannot be ended.
    let mut child = Command::new("sh")
        .args(["-c", "echo 3 >/proc/sys/vm/drop_caches"])
        .stderr(Stdio::null())
        .spawn()
        .context("running sh")?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return match status.success() {
                true => Ok(()),
                false => bail!("the kernel's caches can be dropped by root only"),
            };
        }
        if begin.elapsed() > TIMEOUT {
            bail!(
                "the kernel does not drop its caches: something is stuck in it (dmesg may say what)"
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
