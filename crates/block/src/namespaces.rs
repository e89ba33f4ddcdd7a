//! Mounts in other mount namespaces: containers, services with `PrivateMounts=`, `unshare -m`.
//!
//! Such a namespace has copies of the mounts that existed when it was made. They keep a volume in
//! use after it has been unmounted everywhere else, and only `/proc` shows them.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A process in a mount namespace in which a device is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Number of its namespace.
    pub namespace: u64,
    /// The mount point there.
    pub dir: PathBuf,
}

impl fmt::Display for Viewer {
    /// Names the process and the command that ends its mount.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Viewer { pid, name, .. } = self;
        let dir = self.dir.display();
        write!(
            f,
            "process {pid} ({name}) has it mounted on {dir} in its own mount namespace; end it, or \
             run: nsenter -t {pid} -m umount {dir}"
        )
    }
}

/// The mount namespace of the calling thread.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn own_namespace() -> std::io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/mnt")?.ino())
}

/// A process that stays in the mount namespace that this one has left; 0 if there is none.
static LEFT_BEHIND: AtomicU32 = AtomicU32::new(0);

/// Records that process `pid` stays in the user's mount namespace, for [`own_tables`].
pub fn leave_behind(pid: u32) {
    LEFT_BEHIND.store(pid, Ordering::Relaxed);
}

/// The mount tables of the calling process and of its user, in the format of `/proc/PID/mountinfo`,
/// its own first. There are two while a server starts: it has moved to another namespace, and the
/// process that mounts has stayed in the user's.
pub fn own_tables() -> Vec<Vec<u8>> {
    let left_behind = LEFT_BEHIND.load(Ordering::Relaxed);
    let left_behind = (left_behind != 0).then(|| format!("/proc/{left_behind}/mountinfo"));
    let own = "/proc/thread-self/mountinfo".to_owned();
    let all = [own].into_iter().chain(left_behind);
    // A process that has ended has no table.
    all.filter_map(|table| fs::read(table).ok()).collect()
}

/// The processes that keep the device `dev` (`major:minor`) mounted in mount namespaces other than
/// the caller's: one process for each namespace, as far as the caller may see them.
pub fn viewers(dev: &str) -> Vec<Viewer> {
    let mut found: Vec<Viewer> = Vec::new();
    let Ok(own) = own_namespace() else {
        return found;
    };
    for pid in pids() {
        let process = Path::new("/proc").join(pid.to_string());
        let Some(namespace) = namespace_of(&process) else {
            continue;
        };
        if namespace == own || found.iter().any(|v| v.namespace == namespace) {
            continue;
        }
        // A process in a chroot(2) may see less than its neighbours.
        if let Ok(table) = fs::read(process.join("mountinfo"))
            && let Some(dir) = mounted_on(&table, dev)
            && !is_of_the_kernel(&process)
        {
            found.push(Viewer {
                pid,
                name: name_of(pid),
                namespace,
                dir,
            });
        }
    }
    found
}

/// The processes in mount namespace `namespace` that see device `dev` (`major:minor`) mounted on
/// `dir`, the oldest first. Each is looked at when the iterator comes to it: it may have ended when
/// the caller looks again.
pub fn witnesses<'a>(
    dev: &'a str,
    namespace: u64,
    dir: &'a Path,
) -> impl Iterator<Item = u32> + use<'a> {
    pids().into_iter().filter(move |pid| {
        let process = Path::new("/proc").join(pid.to_string());
        namespace_of(&process) == Some(namespace)
            && fs::read(process.join("mountinfo"))
                .is_ok_and(|table| mounted_on(&table, dev).is_some_and(|on| on == dir))
    })
}

/// The mount namespace of a process; none if the process has ended or is hidden from the caller.
fn namespace_of(process: &Path) -> Option<u64> {
    Some(fs::metadata(process.join("ns/mnt")).ok()?.ino())
}

/// A process other than the caller that has the file at `path` open, as "process 1 (init)".
pub(crate) fn opener(path: &Path) -> Option<String> {
    let own = std::process::id();
    let pid = pids().into_iter().find(|&pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd"));
        pid != own
            && fds.is_ok_and(|fds| {
                fds.flatten()
                    .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path))
            })
    })?;
    Some(format!("process {pid} ({})", name_of(pid)))
}

/// The ids of all visible processes, the oldest first.
fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// Whether a process is a kernel thread, which cannot be ended: it is in the namespace of the first
/// process.
fn is_of_the_kernel(process: &Path) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    // "2 (kthreadd) S PPID PGRP SESSION TTY TPGID FLAGS …"
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    let flags = stat
        .rsplit_once(')')
        .and_then(|(_, tail)| tail.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map(|name| name.trim_end().to_owned())
        .unwrap_or_default()
}

/// The mount point of `dev` in a table of the format of `/proc/PID/mountinfo`: `36 35 98:0 /mnt1
/// /mnt2 rw,noatime master:1 - ext3 /dev/root rw`.
pub(crate) fn mounted_on(table: &[u8], dev: &str) -> Option<PathBuf> {
    table.split(|b| *b == b'\n').find_map(|line| {
        let mut fields = line.split(|b| *b == b' ').skip(2);
        (fields.next()? == dev.as_bytes()).then_some(())?;
        let dir = unescape(fields.nth(1)?);
        Some(PathBuf::from(std::ffi::OsString::from_vec(dir)))
    })
}

/// Decodes a field of mountinfo, in which blanks and some other bytes are written as `\ooo`.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.first_chunk::<3>()).flatten();
        match octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            None => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_kernel_are_known() {
        assert!(!is_of_the_kernel(Path::new("/proc/self")));
        let kthreadd = Path::new("/proc/2");
        if fs::read_to_string(kthreadd.join("comm")).is_ok_and(|name| name == "kthreadd\n") {
            assert!(is_of_the_kernel(kthreadd));
        }
        assert!(!own_tables().is_empty());
    }

    #[test]
    fn a_device_is_found_by_its_number_alone() {
        let table = b"36 35 7:1 / /mnt/my\\040dir rw shared:7 - fuseblk.stetfs /dev/loop1 rw\n\
            37 35 7:11 / /other rw - ext4 /dev/loop11 rw\nbad\n";
        assert_eq!(mounted_on(table, "7:1"), Some("/mnt/my dir".into()));
        assert_eq!(mounted_on(table, "7:11"), Some("/other".into()));
        assert_eq!(mounted_on(table, "7:111"), None);
    }
}
