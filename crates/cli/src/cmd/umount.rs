//! `stetfs umount`: take a mount down, and wait until its volume is clean.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::json;
use stetfs::low::namespaces::{Viewer, viewers};
use stetfs::low::{FsError, LeftBehind, Part, Source};
use stetfs_fuse::mountinfo::MountEntry;
use stetfs_fuse::{MountError, Unmount, is_root, unmount};

use super::mounted::{find_mount, mounts};
use crate::args::UmountArgs;
use crate::control::client::Client;
use crate::failure::{Code, Failure, Result};
use crate::held::volume_of;
use crate::{control, print};

/// The pause between two checks for something that is to go away.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for a server to begin closing. The kernel tells it before umount(2) returns that no mount
/// is left.
const PATIENCE: Duration = Duration::from_secs(3);
/// The holder of a mount that no table of mounts shows.
const HIDDEN: &str = "the mount is still used by an overlay or a detached mount; end it, and the \
     volume is closed";

/// Unmounts, and waits until the server has written everything back.
pub(crate) fn run(args: &UmountArgs, json: bool) -> Result {
    let mount = find_mount(&args.dir)?;
    let volume = volume_of(&mount);
    down(args, &mount)?;
    if json {
        let answer = json!({
            "unmounted": true, "volume": volume.path.display().to_string(),
            "dir": mount.dir.display().to_string(),
        });
        print::value(&answer, true);
    }
    Ok(())
}

fn down(args: &UmountArgs, mount: &MountEntry) -> Result {
    // Connects before the unmount, while the server certainly exists. A server that is being killed
    // may still accept, but does not answer.
    let met = Client::connect(mount);
    // A refused connection means that the server is gone, but its socket is still there.
    let was_there = match &met {
        Ok(_) => true,
        Err(e) => e.kind() == ErrorKind::ConnectionRefused,
    };
    let client = met.ok().and_then(|mut client| {
        // After a lazy unmount the volume cannot be thawed any more. A volume that is not frozen
        // answers with an error, which is ignored.
        if args.lazy {
            let _ = client.request(&json!({ "op": "thaw" }));
        }
        client
            .request(&json!({ "op": "watch" }))
            .is_ok()
            .then_some(client)
    });
    let mut gone = client.is_none() && is_dead(&mount.dir, was_there);
    let volume = volume_of(mount);
    let others = other_mounts(mount)?;
    let viewers = viewers(&mount.dev);
    let left = control::left_behind(&mount.dev);
    take_down(mount, args.lazy)?;
    // Another volume may have the device number already, but its mounts have other ids.
    let elsewhere = other_mounts(mount)?.iter().any(|id| others.contains(id));
    if (args.lazy || elsewhere) && !gone {
        return Ok(());
    }
    let viewer = remaining(mount, &viewers);
    // A server that has ended while a mount is still visible was killed.
    gone |= viewer.is_some() && client.as_ref().is_some_and(Client::has_ended);
    if let (Some(viewer), false) = (&viewer, gone) {
        return Err(still_in_use(mount, viewer.to_string()));
    }
    match client {
        Some(client) => match client.wait_closed(PATIENCE)? {
            true => Ok(()),
            false => Err(still_in_use(mount, HIDDEN)),
        },
        // The server was killed, or never had a socket: the lock of the volume tells its end.
        None => {
            if !elsewhere {
                left.iter().for_each(|socket| control::remove(socket));
                stetfs_fuse::mend_switch();
            }
            wait_unlocked(&volume)?;
            if viewer.is_none() {
                wait_detached(mount, &volume);
            }
            left_behind(mount, &volume, gone).map_err(|failure| match viewer {
                Some(viewer) => {
                    let hint = format!("{viewer}; then {}", failure.hint);
                    failure.hint(hint)
                }
                None => failure,
            })
        }
    }
}

fn still_in_use(mount: &MountEntry, by: impl Into<String>) -> Failure {
    let dir = mount.dir.display();
    let message = format!("{dir} is unmounted in this namespace, but the volume is still in use");
    Failure::new(Code::InUse, message).hint(by)
}

/// A mount namespace that saw the mount before it was taken down and still does after a while. A
/// server that starts sees the mounts of all others for a moment.
fn remaining(mount: &MountEntry, before: &[Viewer]) -> Option<Viewer> {
    const TRIES: u32 = 20;
    let saw_it = |v: &Viewer| before.iter().any(|b| b.namespace == v.namespace);
    let look = || viewers(&mount.dev).into_iter().find(saw_it);
    let mut found = look();
    for _ in 0..TRIES {
        if found.is_none() {
            break;
        }
        std::thread::sleep(PAUSE);
        found = look();
    }
    found
}

/// Whether the server of the mount at `dir`, which does not answer on its socket, is gone. A server
/// that was there and was just killed has threads that take a moment to end. The check is
/// statfs(2), which the kernel always passes on; attributes of the root may come from the kernel's
/// cache as long as they are valid.
fn is_dead(dir: &Path, was_there: bool) -> bool {
    const TRIES: u32 = 15;
    for n in 0..if was_there { TRIES } else { 1 } {
        if n > 0 {
            std::thread::sleep(PAUSE);
        }
        if let Err(e) = rustix::fs::statfs(dir) {
            return !matches!(e, Errno::ACCESS | Errno::PERM);
        }
    }
    false
}

/// The command line `recover` with its arguments for a volume.
fn recover_command(volume: &Source) -> String {
    let path = volume.path.display();
    match &volume.part {
        Part::Range { offset, size } => {
            let size = size.map(|size| format!(",size={size}"));
            let size = size.unwrap_or_default();
            format!("stetfs recover -o offset={offset}{size} {path}")
        }
        _ => format!("stetfs recover {path}"),
    }
}

/// Waits until the loop device of a mount is gone, which happens when its last opener closes it;
/// until then the image cannot be opened for writing. The wait is bounded, for another process may
/// keep the device open.
fn wait_detached(mount: &MountEntry, volume: &Source) {
    const TRIES: u32 = 50;
    for _ in 0..TRIES {
        if volume.path == Path::new(&mount.source) || volume_of(mount) != *volume {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reports the state that a server left behind which did not close its volume.
fn left_behind(mount: &MountEntry, volume: &Source, gone: bool) -> Result {
    let recover = format!(
        "the next mount replays the journal, or: {}",
        recover_command(volume)
    );
    let hint = match stetfs::low::left_behind(volume) {
        Ok(LeftBehind::Clean) => return Ok(()),
        _ if mount.read_only => return Ok(()),
        Ok(LeftBehind::ToRecover) => recover,
        Ok(LeftBehind::ToCheck) => {
            format!("it has no journal: run e2fsck -f {}", volume.path.display())
        }
        // No loop device tells where the volume is in the file.
        Err(FsError::Foreign(_)) if gone => {
            format!("{recover}, with the partition= or offset= that it was mounted with")
        }
        // The volume is not readable to this user.
        Err(_) if gone => recover,
        Err(_) => return Ok(()),
    };
    let dir = mount.dir.display();
    let how = match gone {
        true => format!("the server of {dir} was gone: the mount was removed, but"),
        false => format!("the server of {dir} ended, but"),
    };
    let message = format!(
        "{how} the volume was not closed; what was not synced may be lost: changes as old as commit= allows \
         (5 s), data of files as old as dirty_expire= allows (30 s)"
    );
    Err(Failure::new(Code::Io, message).hint(hint))
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
    let all = mounts()?;
    let others = all
        .iter()
        .filter(|m| m.dev == mount.dev && m.id != mount.id);
    Ok(others.map(|m| m.id).collect())
}

/// Waits until no process has the volume open.
fn wait_unlocked(source: &Source) -> Result {
    const TRIES: u32 = 600;
    for _ in 0..TRIES {
        match stetfs::low::is_in_use(source) {
            Ok(true) => std::thread::sleep(PAUSE),
            // The volume is gone, or not readable to this user: nothing to wait for.
            Ok(false) | Err(_) => return Ok(()),
        }
    }
    Err(Failure::new(
        Code::InUse,
        format!(
            "{} is unmounted, but its server still has it open",
            source.path.display()
        ),
    ))
}
