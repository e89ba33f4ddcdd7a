//! `stetfs crash`: the crash lab.

use stetfs::low::BlockError;
use stetfs_crash::command::CrashCommand;
use stetfs_fuse::MountError;

use crate::failure::{Code, Failure, Result};

/// Does it, and prints what it has to say. Broken promises are exit code 7.
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
                format!("{} is one argument too many", path.display()),
            )
            .hint("a file for the JSON is given with --json FILE"));
        }
        (None, true) => outln!("{}", answer.json),
        (None, false) => out!("{}", answer.text),
    }
    if answer.broken {
        std::process::exit(Code::Broken as i32);
    }
    Ok(())
}

/// What other commands fail with, too, has the code that it has there.
fn failed(e: &anyhow::Error) -> Failure {
    let of_mount = e.downcast_ref::<MountError>().map(Failure::from);
    // Others are of devices that are made to fail.
    let of_volume = e
        .downcast_ref::<BlockError>()
        .filter(|e| matches!(e, BlockError::Open { .. }))
        .map(Failure::from);
    of_mount
        .or(of_volume)
        .unwrap_or_else(|| Failure::new(Code::Usage, format!("{e:#}")))
}
