//! Obstacles in the machine: kernel features that are switched off or missing.

use std::fs;
use std::path::Path;

use super::hint::Hint;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// `f_type` of file systems in memory: tmpfs and ramfs (statfs(2)).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// The hints for a volume, or a mount, at this path.
pub(super) fn hints(volume: &Path) -> Vec<Hint> {
    let mut hints = Vec::new();
    match fs::read_to_string(SWITCH).as_deref().map(str::trim) {
        // A server that root starts switches it on itself.
        Ok("N" | "0") if !rustix::process::geteuid().is_root() => hints.push(
            Hint::new("FUSE over io_uring is switched off: each call takes longer than where root mounts")
                .by(format!("echo Y > {SWITCH}")),
        ),
        Ok(_) => {}
        Err(_) => hints.push(Hint::new(
            "this kernel has no FUSE over io_uring (Linux 6.14 or newer has, once the module fuse is loaded): each call takes longer",
        )),
    }
    let in_memory = rustix::fs::statfs(volume).is_ok_and(|s| IN_MEMORY.contains(&s.f_type));
    if in_memory {
        hints.push(Hint::new(
            "it is in memory (tmpfs): synced data survives the programs, but no power failure",
        ));
    }
    hints
}
