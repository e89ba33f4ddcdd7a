//! Mounting in the background: the command waits until the mount stands, then ends; a process of
//! its own serves it.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::failure::{Code, Failure, Result};
use crate::log;
use crate::serve::{Job, serve};

/// Starts the server as a process of its own and waits until the mount stands or failed.
///
/// The server is this program again, with a pipe as standard output on which it reports.
pub(crate) fn start(source: &Path, dir: &Path, options: &str) -> Result {
    let failed =
        |e: std::io::Error| Failure::new(Code::System, format!("cannot start the server: {e}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut server = Command::new(program)
        .arg0("stetfs")
        .args(["mount", "--daemon", "-o", options, "--"])
        .arg(source)
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut report = String::new();
    if let Some(pipe) = server.stdout.as_mut() {
        pipe.read_to_string(&mut report).map_err(failed)?;
    }
    let answer: Option<Value> = serde_json::from_str(&report).ok();
    match answer {
        Some(answer) if answer["mounted"] == true => {
            if let Some(warning) = answer["warning"].as_str() {
                warn(warning);
            }
            Ok(())
        }
        Some(answer) if Failure::from_json(&answer).is_some() => {
            let _ = server.wait();
            Err(Failure::from_json(&answer)
                .unwrap_or_else(|| Failure::new(Code::Mount, "mounting failed")))
        }
        _ => {
            let status = server.wait().map_err(failed)?;
            stetfs_fuse::mend_switch();
            Err(Failure::new(
                Code::Mount,
                format!("the server ended without a word ({status})"),
            ))
        }
    }
}

/// The server: reports on standard output, then lets go of the terminal.
pub(crate) fn run(job: &Job) -> Result {
    // Out of the terminal's session: its end is not ours. Fails only for a group leader.
    let _ = rustix::process::setsid();
    log::to_syslog();
    let mut reported = false;
    let result = serve(job, |warning| {
        reported = true;
        report(&json!({ "mounted": true, "warning": warning }));
        detach();
    });
    if let (Err(failure), false) = (&result, reported) {
        report(&failure.to_json());
        // The command that waits tells the user; this process says nothing more.
        detach();
    } else if let Err(failure) = &result {
        tracing::error!("{failure}");
    }
    result
}

/// Tells the user who mounts of something that is not as he asked for.
pub(crate) fn warn(warning: &str) {
    eprintln!("stetfs: {warning}");
}

fn report(value: &Value) {
    // The one who waits may be gone; then nobody wants to know.
    let _ = writeln!(std::io::stdout(), "{value}");
}

/// Gives up the working directory and the standard streams; the end of the pipe lets the waiting
/// command go.
fn detach() {
    let _ = std::env::set_current_dir("/");
    match std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        Ok(null) => {
            let _ = rustix::stdio::dup2_stdin(null.as_fd());
            let _ = rustix::stdio::dup2_stdout(null.as_fd());
            let _ = rustix::stdio::dup2_stderr(null.as_fd());
        }
        Err(e) => tracing::warn!("cannot open /dev/null: {e}"),
    }
}
