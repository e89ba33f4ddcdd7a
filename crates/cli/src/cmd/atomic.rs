//! `stetfs atomic`: files that are written atomically on a mount (docs/atomic.md).

use std::os::fd::AsFd;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use stetfs_fuse::AtomicHolder;

use crate::args::Atomic;
use crate::failure::{Code, Failure, Result, code_of};
use crate::print;

/// Runs a command of `stetfs atomic`.
pub(crate) fn run(command: &Atomic, as_json: bool) -> Result {
    let Atomic::Abort(args) = command;
    abort(&args.file)?;
    if as_json {
        let file = args.file.display().to_string();
        print::value(&json!({ "aborted": true, "file": file }), true);
    }
    Ok(())
}

/// Ends the atomic write of a file, whichever program began it.
fn abort(path: &Path) -> Result {
    let shown = path.display();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| {
        let e = std::io::Error::from(e);
        Failure::new(code_of(e.kind()), format!("cannot open {shown}: {e}"))
    })?;
    stetfs_fuse::break_atomic_write(file.as_fd()).map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => Failure::new(
            Code::NotFound,
            format!("no process writes {shown} atomically"),
        )
        .hint("stetfs stat DIR lists the files written atomically, and their processes"),
        Some(libc::EPERM) => Failure::new(
            Code::Usage,
            format!("cannot end the atomic write of {shown}: the file is not yours"),
        )
        .hint("the owner of the file and root can"),
        Some(libc::ENOTTY | libc::EOPNOTSUPP) => Failure::new(
            Code::Usage,
            format!("{shown} is not on a mount with the option atomic"),
        ),
        _ => Failure::new(
            Code::Io,
            format!("cannot end the atomic write of {shown}: {e}"),
        ),
    })
}

/// The holders of atomic writes, as `stetfs stat` shows them.
pub(crate) fn shown(holders: &[AtomicHolder]) -> Value {
    let holder = |holder: &AtomicHolder| {
        let since = holder.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({
            "pid": holder.pid,
            "uid": holder.uid,
            "since": since.as_secs(),
            "idle_seconds": holder.idle.as_secs(),
            "bytes": holder.bytes,
            "inodes": holder.files,
        })
    };
    holders.iter().map(holder).collect()
}
