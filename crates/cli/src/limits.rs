//! Limits of the process (ulimit, prlimit) that a server inherits and cannot raise.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGXCPU, SIGXFSZ};
use stetfs::low::Host;
use stetfs_fuse::Limits;

use crate::failure::{Code, Failure, Result};
use crate::options::Options;

/// Memory that a server needs beside its cache, bytes.
const MEMORY: u64 = 256 << 20;
/// Fewest files and sockets that a server needs open at a time.
const OPEN_FILES: u64 = 64;

/// Catches SIGXFSZ and SIGXCPU, so that they do not end this process: a write beyond the limit of
/// file size fails with EFBIG, and the soft limit of processor time has no effect. Programs that
/// this process starts have the default actions.
pub(crate) fn outlive() {
    for signal in [SIGXFSZ, SIGXCPU] {
        let seen = Arc::new(AtomicBool::new(false));
        if let Err(e) = signal_hook::flag::register(signal, seen) {
            tracing::debug!("signal {signal} ends this process: {e}");
        }
    }
}

/// Refuses to serve with a limit that would end the server sooner or later.
pub(crate) fn check(limits: &Limits, options: &Options) -> Result {
    let few = |what: String, hint: &str| Err(Failure::new(Code::System, what).hint(hint));
    let needed = options.volume()?.fs.cache_bytes.saturating_add(MEMORY);
    if let Some(memory) = limits.memory_bytes.filter(|memory| *memory < needed) {
        let what = format!(
            "the memory of processes is limited to {memory} bytes (ulimit -v, -d); this mount needs {needed}"
        );
        return few(
            what,
            "raise the limit, or give it a smaller cache: -o cache=64M",
        );
    }
    if let Some(files) = limits.open_files.filter(|files| *files < OPEN_FILES) {
        let what = format!(
            "processes may have {files} files open (ulimit -n); a mount needs {OPEN_FILES}"
        );
        return few(what, "raise the limit: ulimit -n 1024");
    }
    Ok(())
}

/// Warnings about limits that restrict the mount of a volume on `host`.
pub(crate) fn warnings(limits: &Limits, host: &Host) -> Vec<String> {
    let image = host.file().filter(|file| !file.is_block_device());
    let size = image.map(|_| host.device().size());
    let file = limits
        .file_bytes
        .filter(|most| size.is_some_and(|size| *most < size));
    let file = file.map(|most| {
        format!(
            "files may not be larger than {most} bytes (ulimit -f): writes to the image beyond \
             that fail as if its disk were full"
        )
    });
    let cpu = limits.cpu_seconds.map(|seconds| {
        format!(
            "the server is killed when it has used {seconds} seconds of processor time (ulimit -t); \
             what was synced is kept then"
        )
    });
    file.into_iter().chain(cpu).collect()
}
