//! `stetfs flash trace record`: records the requests of programs to a mounted volume as traces.
//!
//! The server keeps recorded requests until this command fetches them over the control socket,
//! several times a second: a server cannot open files, and a client that is gone costs little.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags};
use serde_json::{Value, json};
use stetfs_cli::{Client, Code, Failure, Interrupt, Result, connect, find_mount, out, outln};
use stetfs_flashlab::command::{summary_head, summary_row};
use stetfs_flashlab::trace::{self, Op, Request, Trace};

use crate::args::RecordArgs;

/// The interval at which recorded requests are fetched.
const STEP: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(args: &RecordArgs, as_json: bool) -> Result<ExitCode> {
    let mount = find_mount(&args.dir)?;
    let client = connect(&mount)?;
    let interrupt = Interrupt::watch()?;
    let mut recording = Recording::begin(client)?;
    let recorded = recording.record(args, &interrupt);
    // Ends the recording on the server in any case, so that the next one need not wait for a
    // time-out.
    recording.step(true)?;
    let (mut files, code) = recorded?;
    let mut table = vec![[vec!["layer".to_owned()], summary_head()].concat()];
    let mut told = json!({});
    for (layer, file) in &mut files {
        let trace = recording.trace(layer);
        file.fill(&trace::write(trace))?;
        let summary = trace.summary();
        table.push([vec![(*layer).to_owned()], summary_row(&summary)].concat());
        told[*layer] = json!(summary);
    }
    if let Some(why) = recording.over {
        // A failure to print cannot be reported.
        let _ = writeln!(io::stderr(), "stetfs: {}: {why}", mount.dir.display());
    }
    let table = stetfs_bench::flash::table(&table);
    match (as_json, args.command.is_empty()) {
        (true, _) => outln!("{told}"),
        (false, true) => out!("{table}"),
        // Standard output belongs to the command.
        (false, false) => eprint!("{table}"),
    }
    match recording.lost {
        0 => Ok(code),
        n => Err(Failure::new(
            Code::Io,
            format!("{n} requests came too fast to be recorded: the trace lacks them"),
        )
        .hint("record less at a time, or with more processors")),
    }
}

/// A file that exists only once it is complete.
struct NewFile {
    path: PathBuf,
    file: File,
    filled: bool,
}

impl NewFile {
    /// Creates the file.
    ///
    /// # Errors
    /// It exists already, or cannot be created.
    fn create(path: &Path) -> Result<NewFile> {
        let file = File::create_new(path).map_err(|e| {
            let code = match e.kind() {
                io::ErrorKind::AlreadyExists => Code::Usage,
                _ => Code::Io,
            };
            Failure::new(code, format!("{}: {e}", path.display()))
        })?;
        Ok(NewFile {
            path: path.to_owned(),
            file,
            filled: false,
        })
    }

    fn fill(&mut self, bytes: &[u8]) -> Result {
        let written = self.file.write_all(bytes);
        written.map_err(|e| Failure::new(Code::Io, format!("{}: {e}", self.path.display())))?;
        self.filled = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.filled {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The recording so far.
struct Recording {
    client: Client,
    id: Value,
    above: Trace,
    below: Trace,
    lost: u64,
    /// The reason for its end, if it has ended.
    over: Option<&'static str>,
}

impl Recording {
    fn begin(mut client: Client) -> Result<Recording> {
        let mut answer = client.request(&json!({ "op": "record" }))?;
        Ok(Recording {
            client,
            id: answer["id"].take(),
            above: Trace::default(),
            below: Trace::default(),
            lost: 0,
            over: None,
        })
    }

    fn trace(&self, layer: &str) -> &Trace {
        match layer {
            "above" => &self.above,
            _ => &self.below,
        }
    }

    /// Records until the end. Returns the files to fill, by layer, and the exit code. The files are
    /// created when the recording has begun.
    fn record(
        &mut self,
        args: &RecordArgs,
        interrupt: &Interrupt,
    ) -> Result<(Vec<(&'static str, NewFile)>, ExitCode)> {
        let mut files = Vec::new();
        for (layer, path) in [("above", &args.out), ("below", &args.below)] {
            if let Some(path) = path {
                files.push((layer, NewFile::create(path)?));
            }
        }
        Ok((files, self.wait(args, interrupt)?))
    }

    /// Waits for the end of the recording; returns the exit code.
    fn wait(&mut self, args: &RecordArgs, interrupt: &Interrupt) -> Result<ExitCode> {
        let until = args
            .seconds
            .map(|n| Instant::now() + Duration::from_secs(n));
        let mut child = match args.command.split_first() {
            Some((program, rest)) => Some(Running::start(program, rest)?),
            None => None,
        };
        loop {
            if let Some(child) = &mut child
                && let Some(code) = child.ended()?
            {
                return Ok(code);
            }
            // Ctrl-C reaches the command, too: the recording ends when the command does.
            let ends = interrupt.came() || until.is_some_and(|until| Instant::now() >= until);
            if child.is_none() && (ends || self.over.is_some()) {
                return Ok(Code::Done.into());
            }
            let left = until.map_or(STEP, |u| u.saturating_duration_since(Instant::now()));
            let left = left.min(STEP);
            match (&child, self.over) {
                (Some(child), None) => self.rest(&child.pidfd, left)?,
                (None, _) => self.rest(&interrupt.pipe, left)?,
                // The server is gone, but the command still runs.
                (Some(_), Some(_)) => std::thread::sleep(left),
            }
            self.step(false)?;
        }
    }

    fn rest(&mut self, also: &impl AsFd, time: Duration) -> Result {
        let waited = self.client.rest(also, time);
        waited
            .map(drop)
            .map_err(|e| Failure::new(Code::System, format!("cannot wait: {e}")))
    }

    /// Fetches the recorded requests. With `end` they are the last.
    fn step(&mut self, end: bool) -> Result {
        while self.over.is_none() {
            let request = json!({ "op": "record", "id": self.id, "end": end });
            let Some(answer) = self.client.request_or_end(&request)? else {
                self.over = Some("it was unmounted; the last requests are not in the trace");
                break;
            };
            if answer["gone"] == true {
                self.over = Some("the server ended the recording, for a remount or after 10 s");
                break;
            }
            add(&mut self.above, &answer["above"])?;
            add(&mut self.below, &answer["below"])?;
            self.lost = answer["lost"].as_u64().unwrap_or_default();
            if answer["more"] != true {
                break;
            }
        }
        Ok(())
    }
}

/// Adds the requests of an answer to a trace.
fn add(trace: &mut Trace, asked: &Value) -> Result {
    let strange = || Failure::new(Code::Io, "the server's answer is invalid");
    for one in asked.as_array().ok_or_else(strange)? {
        let number = |at: usize| one[at].as_u64().ok_or_else(strange);
        let op = match number(1)? {
            0 => Op::Read,
            _ => Op::Write,
        };
        let request = Request::of_bytes(number(0)?, op, number(2)?, number(3)?);
        trace.requests.push(request.ok_or_else(strange)?);
    }
    Ok(())
}

/// A running command.
struct Running {
    child: Child,
    /// Becomes readable when it has ended.
    pidfd: std::os::fd::OwnedFd,
}

impl Running {
    fn start(program: &OsString, args: &[OsString]) -> Result<Running> {
        let shown = program.display();
        let child = Command::new(program)
            .args(args)
            .spawn()
            .map_err(|e| Failure::new(Code::NotFound, format!("cannot run {shown}: {e}")))?;
        let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
            .map_err(|e| Failure::new(Code::System, format!("cannot wait for {shown}: {e}")))?;
        Ok(Running { child, pidfd })
    }

    /// Its exit code if it has ended, as in shells: 128 and the number of the signal that ended it.
    fn ended(&mut self) -> Result<Option<ExitCode>> {
        let status = self.child.try_wait();
        let status = status
            .map_err(|e| Failure::new(Code::System, format!("cannot wait for the command: {e}")))?;
        Ok(status.map(|status| {
            let code = status.code().or(status.signal().map(|n| 128 + n));
            ExitCode::from(code.and_then(|n| u8::try_from(n).ok()).unwrap_or(1))
        }))
    }
}
