//! `stetfs umount`: down, and clean.

use std::path::Path;

use serde_json::json;
use stetfs_fuse::mountinfo::{self, MountEntry};
use stetfs_fuse::{MountError, Unmount, unmount};

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
    take_down(&mount, args.lazy)?;
    if args.lazy || mounted_elsewhere(&mount)? {
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
        other => Ok(other?),
    }
}

/// Whether the volume stays mounted at another place (a bind mount).
fn mounted_elsewhere(mount: &MountEntry) -> Result<bool> {
    let all = mountinfo::mounts()
        .map_err(|e| Failure::new(Code::System, format!("cannot read the mounts: {e}")))?;
    Ok(all.iter().any(|m| m.dev == mount.dev))
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
