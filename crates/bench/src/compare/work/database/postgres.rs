//! PostgreSQL: its programs, its server and its clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use rustix::process::Signal;

use super::{Programs, Server, path};
use crate::compare::program::checked;

/// The programs; all must be in the same directory: Debian's wrappers in /usr/bin are not enough.
const PROGRAMS: [&str; 4] = ["initdb", "postgres", "pgbench", "psql"];
/// Debian's directory of versions.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Users as which the server can run.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// Finds the programs.
///
/// # Errors
/// A sentence that says what is missing.
pub(in super::super) fn find() -> std::result::Result<Programs, String> {
    let dirs = path().into_iter().chain(versions(Path::new(VERSIONS)));
    let dir = complete(dirs).ok_or_else(|| {
        format!(
            "PostgreSQL ({}) is neither in PATH nor in {VERSIONS}/*/bin; Debian: apt install postgresql",
            PROGRAMS.join(", ")
        )
    })?;
    Programs::of("PostgreSQL", vec![dir], &USERS)
}

/// Makes the data directory, without syncs.
pub(in super::super) fn init(programs: &Programs, data: &Path) -> Result<()> {
    programs.fill(data, || {
        let mut initdb = programs.command("initdb");
        initdb
            .args(["--no-sync", "--no-instructions", "--auth=trust"])
            .args(["--username=bench", "--no-locale", "--encoding=UTF8", "-D"])
            .arg(data);
        checked(&mut initdb)
    })
}

/// Starts a server and waits until it accepts connections.
pub(in super::super) fn start<'p>(
    programs: &'p Programs,
    data: &Path,
    settings: &[(&str, String)],
) -> Result<Server<'p>> {
    let command = |dir: &Path| {
        let mut command = programs.command("postgres");
        command.arg("-D").arg(data);
        let place = [
            ("listen_addresses", String::new()),
            ("unix_socket_directories", dir.display().to_string()),
        ];
        for (name, value) in place.iter().chain(settings) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command
    };
    // The eighth line of the pid file is the state, as pg_ctl reads it.
    let is_ready = |_: &Path| {
        let pid_file = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        pid_file.lines().nth(7).is_some_and(|l| l.trim() == "ready")
    };
    // The fast shutdown, and the immediate one, which also ends the server's other processes.
    Server::start(programs, [Signal::INT, Signal::QUIT], command, is_ready)
}

/// A client program that connects to this server.
pub(in super::super) fn client(server: &Server<'_>, program: &str) -> Command {
    let mut command = server.programs.command(program);
    command
        .env("PGHOST", server.dir())
        .env("PGUSER", "bench")
        .env("PGDATABASE", "postgres");
    command
}

/// The program directories of all versions, newest first.
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

/// The first directory that has all programs.
fn complete(dirs: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let has_all = |dir: &PathBuf| PROGRAMS.iter().all(|p| dir.join(p).is_file());
    dirs.into_iter().find(has_all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
}
