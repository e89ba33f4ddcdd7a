//! Mounts by `stetfs`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use rustix::process::{Pid, Signal, kill_process};

use crate::cmd;
use crate::mounts::{self, is_mounted};
use crate::scratch::Scratch;

/// Most time that a mount (with a journal replay) or an unmount (with write-back) may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Most time that a mount may be busy before its unmount: a child that another test of this process
/// just forked holds all descriptors until it runs its program.
const BUSY: Duration = Duration::from_secs(2);

/// The exit code of `stetfs umount` for a busy mount.
const IN_USE: i32 = 4;

/// A volume mounted by a `stetfs mount -f` child of this process; taken down when dropped.
#[derive(Debug)]
pub struct StetMount {
    binary: PathBuf,
    dir: PathBuf,
    log: PathBuf,
    /// The command and the server that it started; each ends when the other does.
    command: Option<Child>,
    server: Option<u32>,
    /// Ends the watchdog when dropped.
    watchdog: Option<mpsc::Sender<()>>,
    scratch: Scratch,
}

/// Kills the server if the mount still exists after `deadline`; calls that wait for a reply then
/// get an error.
fn watch(server: &Child, deadline: Duration) -> Result<mpsc::Sender<()>> {
    let pid = Pid::from_child(server);
    let (alive, ended) = mpsc::channel::<()>();
    std::thread::Builder::new()
        .name("mount-watchdog".into())
        .spawn(move || {
            if ended.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!(
                    "a StetFS mount of this test stood for {deadline:?}: killing its server {pid:?}"
                );
                let _ = kill_process(pid, Signal::KILL);
            }
        })?;
    Ok(alive)
}

impl StetMount {
    /// Runs `BINARY mount -f [-o OPTIONS] VOLUME DIR` and waits until DIR is mounted. `volume` is
    /// an image or a block device. The server's output goes to a file that errors quote. If there
    /// is a `deadline`, the server is killed then.
    pub fn new(
        binary: &Path,
        volume: &Path,
        options: &str,
        deadline: Option<Duration>,
    ) -> Result<Self> {
        let scratch = Scratch::new("stet")?;
        let dir = scratch.path().join("fs");
        std::fs::create_dir(&dir)?;
        let log = scratch.path().join("server.log");
        let out = File::create(&log)?;
        let mut command = cmd::tied(binary, libc::SIGTERM);
        command.args(["mount", "-f"]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        command.arg(volume).arg(&dir);
        let server = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot run {}", cmd::shown(&command)))?;
        let mut this = Self {
            binary: binary.into(),
            dir,
            log,
            command: Some(server),
            server: None,
            watchdog: None,
            scratch,
        };
        if let (Some(deadline), Some(server)) = (deadline, &this.command) {
            this.watchdog = Some(watch(server, deadline)?);
        }
        let until = Instant::now() + TIMEOUT;
        while !is_mounted(&this.dir) {
            if let Some(status) = this.try_wait()? {
                this.command = None;
                bail!(
                    "{} ended ({status}) without mounting:\n{}",
                    cmd::shown(&command),
                    this.log()
                );
            }
            if Instant::now() > until {
                bail!(
                    "{} did not mount in time:\n{}",
                    cmd::shown(&command),
                    this.log()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The call returns once the server serves; it may still have been starting.
        std::fs::metadata(&this.dir)
            .with_context(|| format!("the server said:\n{}", this.log()))?;
        let command = this.command.as_ref();
        this.server = command.map(|c| cmd::child_of(c.id()).unwrap_or(c.id()));
        Ok(this)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Lets programs of other users reach the mount; its own permissions still apply.
    pub fn open_to_others(&self) -> Result<()> {
        self.scratch.open_to_others()
    }

    /// The server's process id.
    pub fn pid(&self) -> Option<u32> {
        self.server
    }

    /// The server's output so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.command {
            Some(child) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    /// Waits for the server to end.
    fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_wait()? {
                (self.command, self.watchdog) = (None, None);
                return Ok(Some(status));
            }
            if self.command.is_none() || Instant::now() > until {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs `stetfs umount DIR`; an error unless it succeeds and the server then ends with status
    /// 0.
    pub fn umount(mut self) -> Result<()> {
        let until = Instant::now() + BUSY;
        let said = loop {
            let mut command = Command::new(&self.binary);
            let out = cmd::output(command.arg("umount").arg(&self.dir))?;
            if out.status.success() {
                break cmd::said(&out);
            }
            if out.status.code() != Some(IN_USE) || Instant::now() > until {
                bail!(
                    "{}: {}\n{}\nthe server said:\n{}",
                    cmd::shown(&command),
                    out.status,
                    cmd::said(&out),
                    self.log()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if is_mounted(&self.dir) {
            bail!(
                "`stetfs umount` succeeded but {} is still mounted: {said}",
                self.dir.display()
            );
        }
        match self.wait(TIMEOUT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!(
                "the server ended with {status} after umount:\n{}",
                self.log()
            ),
            None => bail!(
                "the server still ran {TIMEOUT:?} after umount:\n{}",
                self.log()
            ),
        }
    }

    /// Kills the server with SIGKILL, as in a crash, and removes the dead mount. Writes of the
    /// server to the volume stand.
    pub fn kill9(mut self) -> Result<()> {
        self.watchdog = None;
        let (Some(mut command), Some(server)) = (self.command.take(), self.server) else {
            bail!("the server is gone already:\n{}", self.log())
        };
        let server = i32::try_from(server).ok().and_then(Pid::from_raw);
        kill_process(server.context("no process id")?, Signal::KILL)?;
        // The command has waited for the server.
        command.wait()?;
        mounts::detach(&self.dir);
        Ok(())
    }
}

impl Drop for StetMount {
    fn drop(&mut self) {
        self.watchdog = None;
        if is_mounted(&self.dir) && mounts::umount(&self.dir, Duration::from_millis(500)).is_ok() {
            let _ = self.wait(Duration::from_secs(10));
        }
        if let Some(mut child) = self.command.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        mounts::detach(&self.dir);
    }
}
