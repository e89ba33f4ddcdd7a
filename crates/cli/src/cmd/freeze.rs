//! `stetfs freeze` and `stetfs thaw`: hold changes of a mounted volume, and resume them.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use stetfs::low::FsError;
use stetfs_fuse::{Frozen, VolumeFs};

use super::{connect, find_mount};
use crate::args::FreezeArgs;
use crate::failure::{Code, Failure, Result};
use crate::print;

/// Freezes the volume mounted at a directory.
pub(crate) fn freeze(args: &FreezeArgs, as_json: bool) -> Result {
    let mount = find_mount(&args.dir)?;
    let mut client = connect(&mount)?;
    // The kernel's dirty pages come to the server first.
    write_back(&mount.dir)?;
    let mut answer = client.request(&json!({ "op": "freeze" }))?;
    answer["dir"] = json!(mount.dir.display().to_string());
    match as_json {
        true => print::value(&answer, true),
        false => outln!(
            "{} is frozen; changes wait until: stetfs thaw {}",
            answer["volume"].as_str().unwrap_or_default(),
            mount.dir.display()
        ),
    }
    Ok(())
}

/// Thaws the volume mounted at a directory.
pub(crate) fn thaw(args: &FreezeArgs, as_json: bool) -> Result {
    let mount = find_mount(&args.dir)?;
    let mut answer = connect(&mount)?.request(&json!({ "op": "thaw" }))?;
    answer["dir"] = json!(mount.dir.display().to_string());
    if as_json {
        print::value(&answer, true);
    }
    Ok(())
}

/// syncfs(2).
pub(super) fn write_back(dir: &Path) -> Result {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .and_then(|dir| rustix::fs::syncfs(&dir))
        .map_err(|e| {
            let message = format!("cannot sync {}: {e}", dir.display());
            Failure::new(Code::Io, message)
        })
}

/// The server's answer to `op`: `freeze` or `thaw`.
pub(crate) fn answer(fs: &VolumeFs, op: &str) -> Result<Value> {
    let volume = fs.volume().map(|v| v.path().display().to_string());
    let since = fs.frozen().map(|frozen| frozen.since);
    if op == "thaw" {
        fs.thaw().map_err(|e| match e {
            FsError::Errno(libc::EINVAL) => Failure::new(Code::Usage, "the volume is not frozen"),
            e => e.into(),
        })?;
        let seconds = since.map(|at| at.elapsed().unwrap_or_default().as_secs_f64());
        return Ok(json!({ "thawed": true, "volume": volume, "seconds": seconds }));
    }
    fs.freeze().map_err(|e| match e {
        FsError::Errno(libc::EBUSY) => Failure::new(Code::InUse, "the volume is frozen already")
            .hint("stetfs stat DIR shows since when; stetfs thaw DIR ends it"),
        e => e.into(),
    })?;
    tracing::info!("the volume is frozen");
    Ok(json!({ "frozen": true, "volume": volume }))
}

/// The state of the freeze for `stetfs stat`; null if the volume is not frozen.
pub(crate) fn shown(frozen: Option<Frozen>) -> Value {
    let Some(frozen) = frozen else {
        return Value::Null;
    };
    let time = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "since": time(frozen.since).as_secs(),
        "seconds": frozen.since.elapsed().unwrap_or_default().as_secs(),
        "waiting": frozen.waiting,
    })
}
