//! Runs other programs, and quotes their output in errors.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// A command whose process gets `signal` when the thread that started it ends, for whatever reason.
///
/// The kernel ties the signal to the *thread*: the thread that starts such a child must also keep
/// it.
pub fn tied(program: impl AsRef<OsStr>, signal: libc::c_int) -> Command {
    let mut command = Command::new(program);
    // SAFETY: prctl(PR_SET_PDEATHSIG) is a plain system call, which is allowed between fork and
    // exec.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    command
}

/// A child process of process `parent`.
pub fn child_of(parent: u32) -> Option<u32> {
    let parent = parent.to_string();
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        // "1234 (name) S 1 …"
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let tail = stat.rsplit(") ").next().unwrap_or_default();
        tail.split(' ').nth(1) == Some(&parent)
    })
}

/// Runs `command` without standard input and returns its output, whatever its exit status.
pub fn output(command: &mut Command) -> Result<Output> {
    let shown = shown(command);
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {shown}"))
}

/// Runs `command` and returns its standard output; an exit status other than 0 is an error that
/// shows the command and all it printed.
pub fn run(command: &mut Command) -> Result<String> {
    let out = output(command)?;
    if !out.status.success() {
        bail!("{} failed ({})\n{}", shown(command), out.status, said(&out));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The output of a finished command, of both streams.
pub fn said(out: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

/// The command line, for messages.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}
