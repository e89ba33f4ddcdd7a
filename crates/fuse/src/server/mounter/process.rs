//! The mounter's main function.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use stetfs::low::namespaces::own_namespace;

use super::message::{Answer, Begin};
use super::plan::{Entrance, Late, Plan, Stood};
use super::uring::UringChoice;
use crate::helper;
use crate::mount::bdi::Knobs;
use crate::mount::loopdev::LoopDevice;
use crate::mount::mounted::Mounted;
use crate::mount::uring_switch::Moment;
use crate::mount::{self, MountError, MountOptions, Unmount, What};
use crate::mount::{fusermount, mountinfo};
use crate::server::options::ServeOptions;
use crate::system::passing;

/// Time limit for the server's answer to INIT: other mounts wait for the io_uring switch meanwhile.
const MOMENT: Duration = Duration::from_secs(10);

/// Waits for the orders, makes the mount, and ends when the kernel has the server's answer to INIT.
pub(super) fn run(
    plan: &Plan,
    orders: &OwnedFd,
    facts: &OwnedFd,
    entrance: impl FnOnce(&Mounted) -> io::Result<Entrance>,
) {
    let _ = rustix::thread::set_name(c"stetfs-mounter");
    // A program that reads the server's report to its end must not wait for this process.
    if let Ok(null) = File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
    }
    let Some(begin) = said(orders).and_then(|bytes| Begin::read(&bytes)) else {
        return;
    };
    let Some(late) = said(orders).and_then(|bytes| Late::read(&bytes)) else {
        return;
    };
    let mut options = plan.options.clone();
    options.mount.read_only |= late.read_only;
    let (uring, stood) = match make(plan, &options, late, begin.moved, entrance) {
        Ok(made) => made,
        Err(e) => {
            let _ = passing::send(orders, &Answer::failed(&e), &[]);
            return;
        }
    };
    let entry = stood.mounted.as_ref().map(Mounted::entry);
    let knobs = entry.map_or_else(Knobs::default, |entry| {
        Knobs::open(entry, options.readahead_kib)
    });
    if let Err(e) = tell(&stood, &options.mount, orders, facts) {
        tracing::warn!("the server ended before it could serve the mount: {e}");
        if let Some(mounted) = &stood.mounted {
            let _ = mount::unmount(mounted.dir(), Unmount::Lazy);
        }
        return;
    }
    // The server alone keeps the connection.
    drop(stood);
    // Waits until the server closes its end, or for the time limit.
    let _ = set_socket_timeout(orders, Timeout::Recv, Some(MOMENT));
    let _ = said(orders);
    drop(uring);
    knobs.turn();
}

fn said(orders: &OwnedFd) -> Option<Vec<u8>> {
    let (bytes, _) = passing::receive(orders).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

/// Tells the helper of the mount, then the server.
fn tell(
    stood: &Stood,
    options: &MountOptions,
    orders: &OwnedFd,
    facts: &OwnedFd,
) -> io::Result<()> {
    if let Some(mounted) = &stood.mounted {
        let device = stood.loop_device.as_deref();
        let entrance = stood.entrance.as_ref().map(|e| e.name.as_str());
        let known = helper::facts(mounted, options.flags(), device, entrance);
        // There may be no helper.
        if let Err(e) = passing::send(facts, &known, &[]) {
            tracing::debug!("no helper hears of the mount: {e}");
        }
    }
    let mut fds = vec![stood.fuse.as_fd()];
    fds.extend(stood.entrance.as_ref().map(|e| e.socket.as_fd()));
    passing::send(orders, &Answer::stood(stood, options.flags()), &fds)
}

/// Makes the mount. The kernel's switch for io_uring is on as long as the first value is held.
fn make(
    plan: &Plan,
    options: &ServeOptions,
    late: Late,
    moved: bool,
    entrance: impl FnOnce(&Mounted) -> io::Result<Entrance>,
) -> Result<(Option<Moment>, Stood), MountError> {
    let uring = UringChoice::of(options.io_uring)?;
    let device = plan.device.as_deref();
    let (fuse, loop_device) = if mount::is_root() {
        by_kernel(&plan.dir, device, late, &options.mount)?
    } else {
        (fusermount::mount(&plan.dir, &options.mount)?, None)
    };
    let mounted = find(&plan.dir, moved).map_err(|e| {
        let _ = mount::unmount(&plan.dir, Unmount::Lazy);
        MountError::Session(e)
    })?;
    let entrance = mounted.as_ref().and_then(|mounted| {
        entrance(mounted)
            .inspect_err(|e| {
                tracing::warn!("no control socket, `stetfs stat` and `remount` will not work: {e}");
            })
            .ok()
    });
    let stood = Stood {
        fuse,
        loop_device,
        mounted,
        no_uring: uring.why_not,
        entrance,
    };
    Ok((uring.moment, stood))
}

/// Finds the mount that was just made; `None` if it was unmounted at once.
fn find(dir: &Path, moved: bool) -> io::Result<Option<Mounted>> {
    let Some(entry) = mountinfo::mount_at(dir)?.filter(mountinfo::is_stetfs) else {
        return Ok(None);
    };
    Ok(Some(match moved {
        true => Mounted::elsewhere(entry, own_namespace()?),
        false => Mounted::here(entry),
    }))
}

/// Mounts with mount(2), as a block device if possible. Returns the connection, and the loop device
/// if one was made.
fn by_kernel(
    dir: &Path,
    device: Option<&Path>,
    late: Late,
    options: &MountOptions,
) -> Result<(OwnedFd, Option<PathBuf>), MountError> {
    let fuse = mount::open_fuse()?;
    let (Some(device), Some(block_size)) = (device, late.shown) else {
        mount::mount(&fuse, What::Nothing, dir, options)?;
        return Ok((fuse, None));
    };
    // Held until the mount holds the loop device.
    let looped;
    let mut loop_device = None;
    let is_block_device = std::fs::metadata(device).is_ok_and(|m| m.file_type().is_block_device());
    let path = if is_block_device && late.span.is_none() {
        device
    } else {
        match LoopDevice::attach(device, late.span, late.read_only) {
            Ok(attached) => {
                looped = attached;
                loop_device = Some(looped.path().to_owned());
                looped.path()
            }
            Err(e) => {
                tracing::info!("no loop device: sync(2) will not reach the volume: {e}");
                mount::mount(&fuse, What::Nothing, dir, options)?;
                return Ok((fuse, None));
            }
        }
    };
    match mount::mount(&fuse, What::Device(path, block_size), dir, options) {
        // The kernel lacks fuseblk.
        Err(MountError::Mount { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => {
            mount::mount(&fuse, What::Nothing, dir, options)?;
            loop_device = None;
        }
        other => other?,
    }
    Ok((fuse, loop_device))
}
