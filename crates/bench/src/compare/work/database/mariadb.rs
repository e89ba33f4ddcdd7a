//! MariaDB: its programs, its server and its clients.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::{Programs, Server, path};
use crate::compare::program::checked;

const PROGRAMS: [&str; 4] = ["mariadb-install-db", "mariadbd", "mariadb", "sysbench"];
/// A directory of servers, which a user's PATH may lack.
const SYSTEM: &str = "/usr/sbin";
/// Users as which the server can run.
const USERS: [&str; 2] = ["mysql", "nobody"];
const SOCKET: &str = "socket";

/// Finds the programs.
///
/// # Errors
/// A sentence that says what is missing.
pub(in super::super) fn find() -> std::result::Result<Programs, String> {
    let mut dirs = path();
    dirs.push(SYSTEM.into());
    let is_missing = |program: &&str| !dirs.iter().any(|d| d.join(program).is_file());
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(is_missing).collect();
    if !missing.is_empty() {
        return Err(format!(
            "{} of MariaDB and sysbench are not in PATH; Debian: apt install mariadb-server sysbench",
            missing.join(", ")
        ));
    }
    Programs::of("MariaDB", dirs, &USERS)
}

/// Makes the data directory.
pub(in super::super) fn init(
    programs: &Programs,
    data: &Path,
    settings: &[(&str, String)],
) -> Result<()> {
    programs.fill(data, || {
        let mut install = programs.command("mariadb-install-db");
        install
            .args([
                "--no-defaults",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ])
            .arg(format!("--datadir={}", data.display()))
            .args(options(settings));
        checked(&mut install)
    })
}

/// Starts a server and waits until it accepts connections.
pub(in super::super) fn start<'p>(
    programs: &'p Programs,
    data: &Path,
    settings: &[(&str, String)],
) -> Result<Server<'p>> {
    let command = |dir: &Path| {
        let mut command = programs.command("mariadbd");
        command
            .args(["--no-defaults", "--skip-networking"])
            .arg(format!("--datadir={}", data.display()))
            .arg(socket("--socket", dir))
            .arg(format!("--pid-file={}", dir.join("pid").display()))
            .args(options(settings));
        command
    };
    let is_ready = |dir: &Path| greets(&dir.join(SOCKET)).is_ok();
    Server::start(programs, [Signal::TERM, Signal::ABORT], command, is_ready)
}

/// A client that runs these statements one after the other and prints their results, without
/// headings.
pub(in super::super) fn client(server: &Server<'_>, statements: &str) -> Command {
    let mut command = server.programs.command("mariadb");
    command
        .args(["--no-defaults", "-N", "-B", "-u", "root"])
        .arg(socket("--socket", server.dir()))
        .args(["-e", statements]);
    command
}

/// sysbench on this database.
pub(in super::super) fn sysbench(server: &Server<'_>, script: &str, database: &str) -> Command {
    let mut command = server.programs.command("sysbench");
    command
        .args([script, "--db-driver=mysql", "--mysql-user=root"])
        .arg(format!("--mysql-db={database}"))
        .arg(socket("--mysql-socket", server.dir()));
    command
}

fn socket(option: &str, dir: &Path) -> String {
    format!("{option}={}", dir.join(SOCKET).display())
}

fn options(settings: &[(&str, String)]) -> impl Iterator<Item = String> {
    settings
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
}

/// Connects and waits for the server's greeting.
fn greets(socket: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.read_exact(&mut [0])
}
