//! `stetfs crash`: the crash lab.

use stetfs::low::BlockError;
use stetfs_cli::{Code, Failure, Result, out, outln};
use stetfs_crash::command::CrashCommand;
use stetfs_fuse::MountError;

/// Runs a command and prints its answer. A broken promise is exit code 7.
pub(crate) fn run(command: &CrashCommand, json: bool) -> Result {
    let answer = command.run().map_err(|e| failed(&e))?;
    match (&answer.json_file, json) {
        (Some(path), true) => {
            std::fs::write(path, format!("{:#}\n", answer.json)).map_err(|e| {
                Failure::new(Code::Usage, format!("cannot write {}: {e}", path.display()))
            })?;
            out!("{}", answer.text);
        }
        (Some(path), false) => {
            return Err(Failure::new(
                Code::Usage,
                format!("unexpected argument {}", path.display()),
            )
            .hint("name a file for the JSON with --json FILE"));
        }
        (None, true) => outln!("{}", answer.json),
        (None, false) => out!("{}", answer.text),
    }
    if answer.broken {
        std::process::exit(Code::Broken as i32);
    }
    Ok(())
}

/// The failure for an error. Errors that other commands have, too, get the same exit code here.
fn failed(e: &anyhow::Error) -> Failure {
    let of_mount = e.downcast_ref::<MountError>().map(Failure::from);
    // Other errors come from devices that are made to fail.
    let of_volume = e
        .downcast_ref::<BlockError>()
        .filter(|e| matches!(e, BlockError::Open { .. }))
        .map(Failure::from);
    of_mount
        .or(of_volume)
        .unwrap_or_else(|| Failure::new(Code::Usage, format!("{e:#}")))
}
