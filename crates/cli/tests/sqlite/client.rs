//! The client: a process that writes to the database until it is killed or cannot go on.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use stetfs_testkit::cmd::tied;

use super::ledger::{Ledger, open};

const PATH: &str = "STETFS_SQLITE_PATH";
const HOW: &str = "STETFS_SQLITE_HOW";
const LEDGER: &str = "STETFS_SQLITE_LEDGER";

/// The client's task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) mode: &'a str,
    pub(crate) ledger: Ledger,
    /// Pragmas for the connection.
    pub(crate) pragmas: &'a str,
    /// The file system claims to have atomic writes, and has none.
    pub(crate) fake: bool,
}

/// The work of the process: reports each transaction that is acknowledged.
pub(crate) fn work() {
    let told = |name: &str| std::env::var(name).unwrap();
    let path = told(PATH);
    let how = told(HOW);
    let (how, pragmas) = how.split_once('/').unwrap();
    let mode = match how.strip_prefix("fake ") {
        Some(mode) => {
            super::fake::atomic_writes();
            mode
        }
        None => how,
    };
    let ledger = Ledger::of_text(&told(LEDGER));
    let mut db = open(Path::new(&path), mode).unwrap();
    db.execute_batch(pragmas).unwrap();
    let last: i64 = db
        .query_row("SELECT coalesce(max(n), 0) FROM done", [], |row| row.get(0))
        .unwrap();
    let mut out = std::io::stdout().lock();
    for n in last as u64 + 1.. {
        let done = ledger.carry_out(&mut db, n).map_err(|e| e.to_string());
        let done = done.and_then(|()| serves(&path));
        if let Err(e) = done {
            // The outcome is unknown, so nothing else may follow.
            writeln!(out, "failed: {e}").unwrap();
            std::process::exit(0);
        }
        writeln!(out, "{n}").unwrap();
    }
}

/// Whether the server lives. SQLite treats a directory that it cannot open as one that needs no
/// sync (`unixDelete`): if the server is killed after the unlink of a rollback journal, SQLite
/// reports success for a transaction whose journal comes back. This request follows any such sync;
/// it makes nothing durable itself.
fn serves(path: &str) -> Result<(), String> {
    let answer = rustix::fs::statfs(path);
    answer.map(drop).map_err(|e| format!("no server: {e}"))
}

/// The process, as the test that kills it sees it.
pub(crate) struct Client {
    child: Child,
    reader: Option<JoinHandle<()>>,
    said: Arc<Mutex<(u64, Option<String>)>>,
}

impl Client {
    pub(crate) fn start(path: &Path, how: How<'_>) -> Client {
        let fake = if how.fake { "fake " } else { "" };
        let mut child = tied(std::env::current_exe().unwrap(), libc::SIGKILL)
            .args([
                "--exact",
                "sqlite::works_until_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(PATH, path)
            .env(HOW, format!("{fake}{}/{}", how.mode, how.pragmas))
            .env(LEDGER, how.ledger.to_text())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::default();
        let out = child.stdout.take().unwrap();
        let its = Arc::clone(&said);
        let reader = Some(std::thread::spawn(move || listen(out, &its)));
        Client {
            child,
            reader,
            said,
        }
    }

    /// The last acknowledged transaction; 0: none yet.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.said.lock().unwrap().0
    }

    /// Kills it, if it still runs. Returns the last acknowledged transaction, and an error if one
    /// occurred.
    pub(crate) fn kill(mut self) -> (u64, Option<String>) {
        self.child.kill().unwrap();
        self.ended()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> (u64, Option<String>) {
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Needed after a failure only.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(out: ChildStdout, said: &Mutex<(u64, Option<String>)>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let mut said = said.lock().unwrap();
        if let Ok(n) = line.parse() {
            said.0 = n;
        } else if line.starts_with("failed: ") {
            said.1 = Some(line);
        }
    }
}
