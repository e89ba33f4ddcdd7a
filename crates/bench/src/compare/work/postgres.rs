//! A PostgreSQL server of our own, for the time of a workload: from a fresh data directory, reached by a socket in a
//! temporary directory, stopped at the end in any case.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::checked;

/// All have to be in the same directory: Debian's wrappers in /usr/bin are not enough.
const PROGRAMS: [&str; 5] = ["initdb", "postgres", "pg_ctl", "pgbench", "psql"];
/// Debian's, by version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Users that the server can run as; it refuses root.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Until a server is ready, or has ended: devices may be slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// The programs, and who runs them.
pub(super) struct Postgres {
    bin: PathBuf,
    /// If we are root.
    user: Option<User>,
}

struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// Finds the programs; else says what is missing.
    pub(super) fn find() -> std::result::Result<Self, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).chain(versions(Path::new(VERSIONS)));
        let bin = complete(dirs).ok_or_else(|| {
            format!(
                "PostgreSQL ({}) is neither in PATH nor in {VERSIONS}/*/bin; Debian: apt install postgresql",
                PROGRAMS.join(", ")
            )
        })?;
        let user = if rustix::process::geteuid().is_root() {
            let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
            let user = USERS.iter().find_map(|name| User::of(&table, name));
            let none = || {
                format!(
                    "PostgreSQL refuses root, and there is no user {}",
                    USERS.join(" or ")
                )
            };
            Some(user.ok_or_else(none)?)
        } else {
            None
        };
        Ok(Self { bin, user })
    }

    /// Why the server's user cannot get at this directory, if it cannot.
    pub(super) fn cannot_reach(&self, dir: &Path) -> Option<String> {
        let user = self.user.as_ref()?;
        let closed = dir.ancestors().find(|a| user.is_kept_out_of(a))?;
        Some(format!(
            "PostgreSQL refuses root, and the user {} cannot reach {}: {} is closed to it (chmod o+x opens it)",
            user.name,
            dir.display(),
            closed.display()
        ))
    }

    /// Gives what we made to the server's user.
    fn give(&self, path: &Path) -> Result<()> {
        if let Some(user) = &self.user {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))
                .with_context(|| format!("giving {} to {}", path.display(), user.name))?;
        }
        Ok(())
    }

    /// One of the programs, as the server's user, with nothing of our environment.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command
            .current_dir("/")
            .env_clear()
            .env("PATH", &self.bin)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        if let Some(user) = &self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// Makes the data directory; nothing is synced.
    pub(super) fn init(&self, data: &Path) -> Result<()> {
        fs::create_dir(data)?;
        self.give(data)?;
        let mut initdb = self.command("initdb");
        initdb
            .args(["--no-sync", "--no-instructions", "--auth=trust"])
            .args(["--username=bench", "--no-locale", "--encoding=UTF8", "-D"])
            .arg(data);
        checked(&mut initdb).with_context(|| match &self.user {
            Some(user) => format!(
                "making a data directory as {} (a FUSE mount lets other users in with allow_other)",
                user.name
            ),
            None => "making a data directory".to_owned(),
        })
    }

    /// Starts a server and waits until it takes connections.
    pub(super) fn start(&self, data: &Path, settings: &[(&str, String)]) -> Result<Server<'_>> {
        let socket = tempfile::Builder::new()
            .prefix("stetfs-bench-")
            // Whoever connects is the superuser.
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()?;
        self.give(socket.path())?;
        let log = File::create(socket.path().join("log"))?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(data);
        let place = [
            ("listen_addresses", String::new()),
            (
                "unix_socket_directories",
                socket.path().display().to_string(),
            ),
        ];
        for (name, value) in place.iter().chain(settings) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let child = command
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting PostgreSQL")?;
        let mut server = Server {
            postgres: self,
            data: data.to_owned(),
            socket,
            child,
            ended: false,
        };
        server.wait_until_ready()?;
        Ok(server)
    }
}

impl User {
    /// The user of this name in a password table.
    fn of(table: &str, name: &str) -> Option<Self> {
        table.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then_some(())?;
            let mut number = |skip| fields.nth(skip)?.parse().ok();
            Some(Self {
                name: name.to_owned(),
                uid: number(1)?,
                gid: number(0)?,
            })
        })
    }

    fn is_kept_out_of(&self, dir: &Path) -> bool {
        let Ok(found) = fs::metadata(dir) else {
            return false;
        };
        let needed = if found.uid() == self.uid {
            0o100
        } else if found.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        found.mode() & needed == 0
    }
}

/// The directories of programs of all versions, the newest first.
fn versions(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin"))))
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, path)| path).collect()
}

/// The first of the directories that has all programs.
fn complete(dirs: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let has_all = |dir: &PathBuf| PROGRAMS.iter().all(|p| dir.join(p).is_file());
    dirs.into_iter().find(has_all)
}

/// A server at work. Stopped when dropped.
pub(super) struct Server<'p> {
    postgres: &'p Postgres,
    data: PathBuf,
    /// Has the socket, the server's messages, and scripts.
    socket: TempDir,
    child: Child,
    ended: bool,
}

impl Server<'_> {
    /// A client program, to connect with this server.
    pub(super) fn client(&self, program: &str) -> Command {
        let mut command = self.postgres.command(program);
        command
            .env("PGHOST", self.socket.path())
            .env("PGUSER", "bench")
            .env("PGDATABASE", "postgres");
        command
    }

    /// Puts a file where the server's user can read it.
    pub(super) fn place(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.socket.path().join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        self.postgres.give(&path)?;
        Ok(path)
    }

    /// What the server said last.
    fn messages(&self) -> String {
        let text = fs::read_to_string(self.socket.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                bail!(
                    "PostgreSQL ended at its start ({status}):\n{}",
                    self.messages()
                );
            }
            // The eighth line of the pid file is the state, as pg_ctl reads it.
            let pid_file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
            if pid_file.lines().nth(7).is_some_and(|l| l.trim() == "ready") {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "PostgreSQL is not ready after {PATIENCE:?}:\n{}",
                    self.messages()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn pg_ctl_stop(&self) -> Result<()> {
        let mut command = self.postgres.command("pg_ctl");
        command.arg("stop").arg("-D").arg(&self.data);
        command.args(["-s", "-w", "-m", "fast", "-t"]);
        checked(command.arg(PATIENCE.as_secs().to_string()))
    }

    fn shut_down(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let stopped = self.pg_ctl_stop();
        if stopped.is_err() {
            self.quit()?;
        }
        self.child.wait()?;
        stopped.with_context(|| format!("stopping PostgreSQL:\n{}", self.messages()))
    }

    /// Ends it without its pid file, which a broken mount may keep from us. Its other processes are ended by it (those that
    /// wait for a lock would not see that it is gone), so it is killed only if it does not even do that.
    fn quit(&mut self) -> Result<()> {
        let immediate = rustix::process::Signal::QUIT;
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), immediate)?;
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                return Ok(self.child.kill()?);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Stops it: what it had in memory is written, as for a clean end.
    pub(super) fn stop(mut self) -> Result<()> {
        self.shut_down()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // Only after a failure, which is what is told.
        let _ = self.shut_down();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let table = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nbroken:x:a:b\n";
        let nobody = User::of(table, "nobody").unwrap();
        assert_eq!((nobody.uid, nobody.gid), (65534, 65533));
        assert!(User::of(table, "postgres").is_none());
        assert!(User::of(table, "broken").is_none());
    }

    #[test]
    fn the_newest_complete_version_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["9", "15", "notes"] {
            fs::create_dir_all(dir.path().join(version).join("bin")).unwrap();
        }
        let found = versions(dir.path());
        assert_eq!(found, [dir.path().join("15/bin"), dir.path().join("9/bin")]);
        assert_eq!(complete(found.clone().into_iter()), None);
        for program in PROGRAMS {
            fs::write(dir.path().join("9/bin").join(program), "").unwrap();
        }
        assert_eq!(complete(found.into_iter()), Some(dir.path().join("9/bin")));
        assert!(versions(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn a_closed_directory_is_told_before() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let owner = fs::metadata(dir.path()).unwrap();
        let user = |uid, gid| Postgres {
            bin: PathBuf::new(),
            user: Some(User {
                name: "someone".into(),
                uid,
                gid,
            }),
        };
        let reason = user(owner.uid() + 7, owner.gid() + 7)
            .cannot_reach(&inner)
            .unwrap();
        assert!(
            reason.contains("someone") && reason.contains("chmod o+x"),
            "{reason}"
        );
        assert_eq!(user(owner.uid(), owner.gid()).cannot_reach(&inner), None);
    }

    /// A data directory that the server's user can reach.
    fn with_data(test: impl FnOnce(&Postgres, &Path)) {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (postgres, data) = (Postgres::find().unwrap(), dir.path().join("data"));
        postgres.init(&data).unwrap();
        test(&postgres, &data);
        assert!(!data.join("postmaster.pid").exists(), "it is not running");
    }

    #[test]
    fn a_server_ends_when_the_workload_fails() {
        with_data(|postgres, data| {
            let server = postgres.start(data, &[]).unwrap();
            let pid = server.child.id();
            let socket = server.socket.path().to_owned();
            assert!(data.join("postmaster.pid").exists());
            drop(server);
            assert!(!Path::new("/proc").join(pid.to_string()).exists());
            assert!(!socket.exists());
        });
    }

    #[test]
    fn a_server_ends_when_its_files_are_gone() {
        with_data(|postgres, data| {
            let server = postgres.start(data, &[]).unwrap();
            let pid = server.child.id();
            fs::remove_file(data.join("postmaster.pid")).unwrap();
            assert!(server.stop().is_err(), "this is no clean end");
            assert!(!Path::new("/proc").join(pid.to_string()).exists());
        });
    }

    #[test]
    fn a_server_that_does_not_start_says_why() {
        with_data(|postgres, data| {
            let settings = [("no_such_setting", "1".to_owned())];
            let error = postgres.start(data, &settings).err().unwrap().to_string();
            assert!(error.contains("no_such_setting"), "{error}");
        });
    }
}
