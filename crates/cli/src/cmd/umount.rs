//! `stetfs umount`: down, and clean.

use std::path::Path;

use serde_json::json;
use stetfs_fuse::mountinfo::{self, MountEntry};
use stetfs_fuse::{MountError, Unmount, is_root, unmount};

use super::find_mount;
use crate::args::UmountArgs;
use crate::control;
use crate::control::client::Client;
use crate::failure::{Code, Failure, Result};

/// Unmounts and waits until the server has brought everything home.
pub(crate) fn run(args: &UmountArgs) -> Result {
    let mount = find_mount(&args.dir)?;
    // Before the unmount, while the server is surely there to be met.
    // One that is being killed may still be met, but does not answer.
    let client = Client::connect(&mount).ok().and_then(|mut client| {
        client
            .request(&json!({ "op": "watch" }))
            .is_ok()
            .then_some(client)
    });
    let others = other_mounts(&mount)?;
    take_down(&mount, args.lazy)?;
    // Another volume may have the device number already, but not these mounts'.
    let elsewhere = other_mounts(&mount)?.iter().any(|id| others.contains(id));
    if args.lazy || elsewhere {
        return Ok(());
    }
    match client {
        Some(client) => client.wait_closed(),
        // Killed, or never had a socket. Then the lock tells.
        None => {
            control::remove_stale(&mount.dev);
            wait_unlocked(Path::new(&mount.source))
        }
    }
}

fn take_down(mount: &MountEntry, lazy: bool) -> Result {
    match unmount(&mount.dir, if lazy { Unmount::Lazy } else { Unmount::Now }) {
        Err(e @ MountError::Busy(_)) => Err(Failure::from(e)
            .hint("end them, or use `stetfs umount -l` to detach it and let them finish")),
        Err(e @ MountError::Unmount { .. }) if !is_root() => {
            Err(Failure::from(e).hint("only root, and the user who mounted it, can unmount it"))
        }
        other => Ok(other?),
    }
}

/// Other places where the volume is mounted (bind mounts).
fn other_mounts(mount: &MountEntry) -> Result<Vec<u64>> {
    let all = mountinfo::mounts()
        .map_err(|e| Failure::new(Code::System, format!("cannot read the mounts: {e}")))?;
    let others = all
        .iter()
        .filter(|m| m.dev == mount.dev && m.id != mount.id);
    Ok(others.map(|m| m.id).collect())
}

/// Waits until nobody has the volume open.
fn wait_unlocked(source: &Path) -> Result {
    const TRIES: u32 = 600;
    for _ in 0..TRIES {
        match stetfs::is_in_use(source) {
            Ok(true) => std::thread::sleep(std::time::Duration::from_millis(100)),
            // Not there any more, or not readable to us: nothing to wait for.
            Ok(false) | Err(_) => return Ok(()),
        }
    }
    Err(Failure::new(
        Code::InUse,
        format!(
            "{} is unmounted, but its server still has it open",
            source.display()
        ),
    ))
}
