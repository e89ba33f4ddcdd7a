//! Emptying of caches, so that measurements begin cold.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Longest wait for the kernel; it needs seconds at most.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The time in which the kernel of a virtual machine gives all free memory back to its host: a
/// sixteenth every 2 s (`mm/page_reporting.c`).
const REPORTED: Duration = Duration::from_secs(40);

/// Waits until free memory is as on a machine that has been up for long. Where a virtual machine
/// gives free memory back to its host, all of it has been given back then, and the next use of it
/// waits for the host.
pub(crate) fn let_memory_go() {
    let order = Path::new("/sys/module/page_reporting/parameters/page_reporting_order");
    if order.exists() {
        std::thread::sleep(REPORTED);
    }
}

/// [`drop_caches`], or a message that reads may come from memory.
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

/// Makes the kernel drop its caches. Only root may.
///
/// # Errors
/// Not root; or the kernel does not answer, for example because a mount hangs: then the caches stay
/// as they are.
fn drop_caches() -> Result<()> {
    // In a process of its own: a process that waits for a hanging kernel cannot be killed.
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
