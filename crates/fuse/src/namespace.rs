//! A mount namespace of the server's own, which never has the mount that it serves
//! (decisions/0025).
//!
//! The last process of a mount namespace takes its mounts down in its own exit, before its
//! `/dev/fuse` is closed, and for `fuseblk` waits there for an answer that only it could give.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::mountinfo::{self, MountEntry};
use crate::sys;

type Job = Box<dyn FnOnce() + Send>;

/// What a server looks at by path once it serves, as its user has it: with what is mounted within,
/// such as a container's masks.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The mount namespace that a server was started in, where it mounts.
pub struct Origin {
    /// A thread that stays there, with the privileges that the process had then; none if the
    /// caller does it all.
    left_behind: Option<(mpsc::Sender<Job>, JoinHandle<()>)>,
    /// The process has left it.
    elsewhere: bool,
}

impl Origin {
    /// The namespace of the calling thread, which stays in it.
    pub fn stay() -> Origin {
        Origin {
            left_behind: None,
            elsewhere: false,
        }
    }

    /// The same, with a thread that mounts: it has the privileges that the calling thread has now.
    /// That must be the only one of its process.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn stay_beside() -> io::Result<Origin> {
        Ok(Origin {
            left_behind: Some(leave_behind()?),
            elsewhere: false,
        })
    }

    /// Moves the calling thread, which must be the only one of its process, and the threads that it
    /// starts, to a namespace of their own. One thread stays behind until the volume is
    /// mounted. Takes CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// `Unsupported` in a chroot(2) whose root is no mount, where nothing can be kept from
    /// arriving, and `PermissionDenied`: the caller has not moved. After others it cannot go
    /// on.
    pub fn leave() -> io::Result<Origin> {
        let root = Path::new("/");
        if mountinfo::mount_at(root)?.is_none() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let left_behind = leave_behind()?;
        sys::unshare_mounts()?;
        // What happens here stays here, and the mount of the volume does not arrive.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(root, private)
            .map_err(|e| io::Error::other(format!("cannot be made private: {e}")))?;
        Ok(Origin {
            left_behind: Some(left_behind),
            elsewhere: true,
        })
    }

    /// Whether the process has left it.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Does `job` there.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let Some((jobs, _)) = &self.left_behind else {
            return Ok(job());
        };
        let (answer, answered) = mpsc::sync_channel(1);
        let gone = |_| io::Error::other("the thread that mounts is gone");
        jobs.send(Box::new(move || {
            let _ = answer.send(job());
        }))
        .map_err(|_| io::Error::other("the thread that mounts is gone"))?;
        answered.recv().map_err(gone)
    }

    /// Does `job` there. Afterwards no thread of this process is left there, if it moved, nor one
    /// with the privileges from before.
    pub(crate) fn last<T: Send + 'static>(
        self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let done = self.run(job);
        if let Some((jobs, thread)) = self.left_behind {
            drop(jobs);
            let _ = thread.join();
        }
        done
    }
}

/// A thread that does what it is sent.
fn leave_behind() -> io::Result<(mpsc::Sender<Job>, JoinHandle<()>)> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let thread = std::thread::Builder::new()
        .name("mount".into())
        .spawn(move || queue.into_iter().for_each(|job| job()))?;
    Ok((jobs, thread))
}

/// Takes every mount out of the calling thread's namespace, which [`Origin::leave`] made, but the
/// system's own and those that the paths in `needed` lie on. What is open stays open. Else the
/// copies would keep volumes in use that their users unmount.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn let_go_of_mounts(needed: &[&Path]) -> io::Result<()> {
    // From the top of the pile.
    for entry in mountinfo::mounts()?.into_iter().rev() {
        let is_system = SYSTEM.iter().any(|dir| entry.dir.starts_with(dir)) && !is_fuse(&entry);
        if is_system || needed.iter().any(|path| path.starts_with(&entry.dir)) {
            continue;
        }
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
        if let Err(e) = rustix::mount::unmount(&entry.dir, flags) {
            // Gone with the one that it was in, or hidden below another.
            tracing::debug!(dir = %entry.dir.display(), "not let go of: {e}");
        }
    }
    Ok(())
}

/// Whether its end could wait for another server.
fn is_fuse(entry: &MountEntry) -> bool {
    matches!(
        entry.fstype.split('.').next(),
        Some("fuse" | "fuseblk" | "virtiofs")
    )
}
