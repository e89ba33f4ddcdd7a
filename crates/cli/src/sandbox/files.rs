//! The Landlock rules: once the files of the volume are open, the server opens almost none. The
//! rules also deny TCP, abstract sockets, signals to other processes, changes of mounts, and
//! looking into other processes.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

/// The newest version that is used (Linux 6.12).
const WANTED: ABI = ABI::V6;

/// The restrictions that each version added, with its Linux version.
const BROUGHT: [(ABI, &str); 6] = [
    (ABI::V1, "files (Linux 5.13)"),
    (ABI::V2, "moving files to other directories (Linux 5.19)"),
    (ABI::V3, "truncation (Linux 6.2)"),
    (ABI::V4, "TCP (Linux 6.7)"),
    (ABI::V5, "ioctl of devices (Linux 6.10)"),
    (ABI::V6, "abstract sockets and signals (Linux 6.12)"),
];

/// The result of the restriction.
#[derive(Debug)]
pub(super) struct Restricted {
    /// The version of Landlock.
    pub(super) version: String,
    /// The restrictions that this kernel lacks.
    pub(super) lacking: Vec<&'static str>,
    /// Keeps the process's directory in `/proc` alive: without an opener `/proc` may drop it and
    /// later make another one that the rules do not cover.
    _own: Option<File>,
}

/// Restricts the calling thread, and those that it starts, to the files that a server opens while
/// it serves.
///
/// # Errors
/// The kernel has no Landlock, or it is turned off.
pub(super) fn restrict() -> io::Result<Restricted> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let rules: [(&Path, BitFlags<AccessFs>); 5] = [
        // Its control groups and their limits, and the number of processors, for the sizes of the
        // cache and of thread pools.
        (Path::new("/proc/self"), read),
        (Path::new("/sys/fs/cgroup"), read),
        (Path::new("/sys/devices/system/cpu"), read),
        // For the standard streams, when the command that started it ends.
        (
            Path::new("/dev/null"),
            AccessFs::ReadFile | AccessFs::WriteFile,
        ),
        // For another descriptor of the connection.
        (
            Path::new("/dev/fuse"),
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        ),
    ];
    let made = || -> Result<RulesetCreated, landlock::RulesetError> {
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(WANTED))?
            .handle_access(AccessNet::from_all(WANTED))?
            .scope(Scope::from_all(WANTED))?
            .create()?
            .no_new_privs(false);
        for (path, access) in rules {
            // A missing file needs no rule: it cannot be opened either.
            if let Ok(fd) = PathFd::new(path) {
                ruleset = ruleset.add_rule(PathBeneath::new(fd, access))?;
            }
        }
        Ok(ruleset)
    };
    let own = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open("/proc/self");
    let status = made()
        .and_then(RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
        LandlockStatus::NotEnabled => return Err(io::Error::other("it is turned off (lsm=)")),
        _ => return Err(io::Error::other("this kernel has none (Linux 5.13)")),
    };
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(io::Error::other("it is not enforced"));
    }
    Ok(Restricted {
        version: format!("{abi:?}"),
        lacking: lacking(abi),
        _own: own.ok(),
    })
}

/// The restrictions that version `abi` lacks.
fn lacking(abi: ABI) -> Vec<&'static str> {
    let newer = BROUGHT.iter().filter(|(since, _)| *since > abi);
    newer.map(|(_, what)| *what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_kernels_lack_what_came_later() {
        assert!(lacking(WANTED).is_empty());
        assert!(lacking(ABI::V7).is_empty());
        assert_eq!(
            lacking(ABI::V5),
            ["abstract sockets and signals (Linux 6.12)"]
        );
        assert_eq!(lacking(ABI::Unsupported).len(), BROUGHT.len());
    }
}
