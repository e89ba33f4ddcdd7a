//! The server of a mount as a process of its own. The command that starts it waits until the mount
//! stands, then ends; in the foreground it stays as long as the server.
//!
//! The server leaves the mount namespace that it is started in (decisions/0025). The command does
//! not: in the foreground it keeps the namespace alive, as the first process of a container or a
//! service must.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Code, Failure, Result, printable};
use crate::job::Job;
use crate::log;
use crate::notify::{self, Manager};
use crate::serve::serve;

fn cannot_start(e: impl std::fmt::Display) -> Failure {
    Failure::new(Code::System, format!("cannot start the server: {e}"))
}

/// The arguments of the server besides source and directory.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    /// `-o`.
    pub(crate) options: &'a str,
    /// The file for messages, if not the default.
    pub(crate) log_file: Option<&'a Path>,
}

/// The command line of the server: this program again, with a pipe as standard output on which it
/// reports.
fn server(told: Told<'_>) -> Result<Command> {
    let mut server = Command::new(std::env::current_exe().map_err(cannot_start)?);
    server
        .arg0("stetfs")
        .args(["mount", "--server", &std::process::id().to_string()])
        .args(["-o", told.options])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(path) = told.log_file {
        server.arg("--log-file").arg(path);
    }
    Ok(server)
}

fn spawn(server: &mut Command, source: &Path, dir: &Path) -> Result<Child> {
    let server = server.arg("--").arg(source).arg(dir);
    server.spawn().map_err(cannot_start)
}

/// Starts the server in the background and waits until the mount stands or failed. Returns warnings
/// where the mount is not as requested.
pub(crate) fn start(source: &Path, dir: &Path, told: Told<'_>) -> Result<Vec<String>> {
    let mut server = spawn(&mut server(told)?, source, dir)?;
    wait_for_mount(&mut server).map(|mount| mount.warnings)
}

/// Starts the server and stays until it ends: signals are passed on to it, and its exit code is
/// returned.
pub(crate) fn stay(source: &Path, dir: &Path, told: Told<'_>, json: bool) -> Result<Code> {
    let mut heard = vec![SIGTERM, SIGINT];
    // A SIGHUP ignored by nohup(1) stays ignored.
    heard.extend((!stetfs_fuse::is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut signals = Signals::new(heard).map_err(cannot_start)?;
    let mut command = server(told)?;
    command.arg("--foreground");
    if json {
        command.arg("--json");
    }
    // The service manager knows this process, not the server.
    let mut server = spawn(command.env_remove(notify::SOCKET), source, dir)?;
    let handle = rustix::process::pidfd_open(Pid::from_child(&server), PidfdFlags::empty())
        .map_err(cannot_start)?;
    let hand_on = move || {
        for signal in signals.forever() {
            if let Some(signal) = Signal::from_named_raw(signal) {
                // The call fails only when the server has ended.
                let _ = rustix::process::pidfd_send_signal(&handle, signal);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(hand_on)
        .map_err(cannot_start)?;
    let mut mount = wait_for_mount(&mut server)?;
    mount.warnings.iter().for_each(|warning| warn(warning));
    Manager::find().ready();
    // The last line is the server's final report.
    let _ = io::copy(&mut mount.said, &mut io::stdout());
    let status = server.wait().map_err(cannot_start)?;
    match status.code() {
        Some(code) => Ok(u8::try_from(code).map_or(Code::Mount, Code::from_number)),
        None => Err(Failure::new(
            Code::Io,
            format!("the server was killed ({status}); what was not synced may be lost"),
        )
        .hint("the next mount replays the journal, or: stetfs recover VOLUME")),
    }
}

/// A mount that stands.
struct Standing {
    /// Warnings where the mount is not as requested.
    warnings: Vec<String>,
    /// Later output of the server.
    said: BufReader<ChildStdout>,
}

/// Waits until the mount stands.
fn wait_for_mount(server: &mut Child) -> Result<Standing> {
    let said = server.stdout.take();
    let mut said = BufReader::new(said.ok_or_else(|| cannot_start("its output is missing"))?);
    let mut report = String::new();
    said.read_line(&mut report).map_err(cannot_start)?;
    let answer: Option<Value> = serde_json::from_str(&report).ok();
    match answer {
        Some(answer) if answer["mounted"] == true => {
            let warnings = answer["warnings"].as_array().into_iter().flatten();
            let warnings = warnings.filter_map(Value::as_str).map(str::to_owned);
            Ok(Standing {
                warnings: warnings.collect(),
                said,
            })
        }
        Some(answer) if Failure::from_json(&answer).is_some() => {
            let _ = server.wait();
            Err(Failure::from_json(&answer)
                .unwrap_or_else(|| Failure::new(Code::Mount, "mounting failed")))
        }
        _ => {
            let status = server.wait().map_err(cannot_start)?;
            stetfs_fuse::mend_switch();
            Err(Failure::new(
                Code::Mount,
                format!("the server ended without a report ({status})"),
            ))
        }
    }
}

/// Runs the server: it reports on standard output. In the background it then detaches from the
/// terminal; in the foreground it ends with the command that stays.
pub(crate) fn run(job: &Job, parent: i32) -> Result {
    // Leaves the terminal's session: neither its end nor Ctrl-C reaches this process. The call
    // fails only for a group leader.
    let _ = rustix::process::setsid();
    let limits = stetfs_fuse::shed();
    let logs = log::of(&job.source, job.options.log_file.as_deref(), job.daemon);
    let has_stderr = logs.as_ref().is_ok_and(|logs| logs.has_stderr);
    if !job.daemon {
        end_with(parent)?;
    }
    // In the foreground the command that stays notifies the service manager.
    let manager = job.daemon.then(Manager::find);
    let mut reported = false;
    let result = logs.and_then(|logs| {
        serve(job, limits, |mut warnings| {
            reported = true;
            warnings.extend(logs.nowhere);
            report(&json!({ "mounted": true, "warnings": warnings }));
            if let Some(manager) = &manager {
                detach(has_stderr);
                manager.ready();
            }
        })
    });
    // In the foreground the command shows the failure on standard error.
    if let Err(failure) = &result
        && (job.daemon || job.options.log_file.is_some())
    {
        tracing::error!("{failure}");
    }
    log::finish();
    if let Err(failure) = &result {
        if !reported {
            report(&failure.to_json());
        }
        if !reported || job.daemon {
            // The failure is told: nothing more is written to standard error.
            detach(false);
        }
    }
    result
}

/// Has the kernel kill this process when the process that started it ends.
fn end_with(parent: i32) -> Result {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(cannot_start)?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now != Some(parent) {
        return Err(cannot_start(
            "the command that started the server has ended",
        ));
    }
    Ok(())
}

/// Warns the user of a mount that is not as requested, or of options that may not be as meant.
pub(crate) fn warn(warning: &str) {
    eprintln!("stetfs: {}", printable(warning));
}

fn report(value: &Value) {
    // The waiting command may be gone; then the report has no reader.
    let _ = writeln!(std::io::stdout(), "{value}");
}

/// Gives up the working directory and the standard streams, except standard error if messages go
/// there. The closed pipe lets the waiting command end.
fn detach(keeps_stderr: bool) {
    let _ = std::env::set_current_dir("/");
    match std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        Ok(null) => {
            let _ = rustix::stdio::dup2_stdin(null.as_fd());
            let _ = rustix::stdio::dup2_stdout(null.as_fd());
            if !keeps_stderr {
                let _ = rustix::stdio::dup2_stderr(null.as_fd());
            }
        }
        Err(e) => tracing::warn!("cannot open /dev/null: {e}"),
    }
}
