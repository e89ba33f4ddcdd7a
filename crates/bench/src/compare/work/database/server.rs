//! A running database server.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Programs;

/// Longest wait for a server to be ready, or to end: devices may be slow.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server; stopped when dropped.
pub(in super::super) struct Server<'p> {
    pub(super) programs: &'p Programs,
    /// The directory of the socket, the server's messages, and scripts.
    dir: TempDir,
    child: Child,
    /// The signals for a shutdown with everything on the device, and for an immediate one.
    signals: [Signal; 2],
    ended: bool,
}

impl<'p> Server<'p> {
    /// Starts the command that `command` makes for a socket in the given directory, and waits until
    /// `is_ready`.
    pub(super) fn start(
        programs: &'p Programs,
        signals: [Signal; 2],
        command: impl FnOnce(&Path) -> Command,
        is_ready: impl Fn(&Path) -> bool,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("stetfs-bench-")
            // Every connection is the superuser's.
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()?;
        programs.give(dir.path())?;
        let log = File::create(dir.path().join("log"))?;
        let child = command(dir.path())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", programs.name))?;
        let mut server = Self {
            programs,
            dir,
            child,
            signals,
            ended: false,
        };
        server.wait_until(is_ready)?;
        Ok(server)
    }

    /// The directory of its socket.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file that the server's user can read.
    pub(in super::super) fn place(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        self.programs.give(&path)?;
        Ok(path)
    }

    /// The last messages of the server.
    fn messages(&self) -> String {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    fn wait_until(&mut self, is_ready: impl Fn(&Path) -> bool) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while !is_ready(self.dir.path()) {
            let name = self.programs.name;
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                bail!("{name} ended at its start ({status}):\n{}", self.messages());
            }
            if Instant::now() > until {
                bail!(
                    "{name} is not ready after {TIMEOUT:?}:\n{}",
                    self.messages()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Shuts it down, with ever stronger signals.
    fn shut_down(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        for signal in self.signals.into_iter().chain([Signal::KILL]) {
            kill_process(Pid::from_child(&self.child), signal)?;
            let until = Instant::now() + TIMEOUT;
            while Instant::now() < until {
                if let Some(status) = self.child.try_wait()? {
                    let clean = signal == self.signals[0] && status.success();
                    let name = self.programs.name;
                    ensure!(clean, "{name} ended ({status}):\n{}", self.messages());
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        bail!("{} does not end", self.programs.name)
    }

    /// Stops it cleanly: data in its memory is written.
    pub(in super::super) fn stop(mut self) -> Result<()> {
        self.shut_down()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // Reached only after a failure, which is reported instead.
        let _ = self.shut_down();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::postgres;
    use super::*;

    /// Runs a test with a data directory that the server's user can reach.
    fn with_data(test: impl FnOnce(&Programs, &Path)) {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (programs, data) = (postgres::find().unwrap(), dir.path().join("data"));
        postgres::init(&programs, &data).unwrap();
        test(&programs, &data);
        assert!(!data.join("postmaster.pid").exists(), "it is not running");
    }

    #[test]
    fn a_server_ends_when_the_workload_fails() {
        with_data(|programs, data| {
            let server = postgres::start(programs, data, &[]).unwrap();
            let pid = server.child.id();
            let socket = server.dir.path().to_owned();
            assert!(data.join("postmaster.pid").exists());
            drop(server);
            assert!(!Path::new("/proc").join(pid.to_string()).exists());
            assert!(!socket.exists());
        });
    }

    #[test]
    fn a_server_ends_when_its_files_are_gone() {
        with_data(|programs, data| {
            let server = postgres::start(programs, data, &[]).unwrap();
            let pid = server.child.id();
            fs::remove_file(data.join("global/pg_control")).unwrap();
            assert!(server.stop().is_err(), "this is no clean end");
            assert!(!Path::new("/proc").join(pid.to_string()).exists());
        });
    }

    #[test]
    fn a_server_that_does_not_start_says_why() {
        with_data(|programs, data| {
            let settings = [("no_such_setting", "1".to_owned())];
            let error = postgres::start(programs, data, &settings)
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("no_such_setting"), "{error}");
        });
    }
}
