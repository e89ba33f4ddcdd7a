//! A process that writes to the database until it is killed or cannot go on.

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

/// What the process is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) mode: &'a str,
    pub(crate) ledger: Ledger,
    /// Said of the connection before it begins.
    pub(crate) pragmas: &'a str,
    /// Whether the file system says that it has atomic writes, and has none.
    pub(crate) fake: bool,
}

/// The process's work: tells each transaction that stands.
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
            // Not known to be done; nothing else may follow.
            writeln!(out, "failed: {e}").unwrap();
            std::process::exit(0);
        }
        writeln!(out, "{n}").unwrap();
    }
}

/// Whether the server lives. SQLite takes a directory that it cannot open for one that needs no
/// sync (`unixDelete`): a server that is killed behind the unlink of a rollback journal makes it
/// say that a transaction is done whose journal comes back. Such a sync lies before this request,
/// which makes nothing durable.
fn serves(path: &str) -> Result<(), String> {
    let answer = rustix::fs::statfs(path);
    answer.map(drop).map_err(|e| format!("no server: {e}"))
}

/// The process, seen by the one that kills it.
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

    /// The last transaction that it was told of as done; 0: none yet.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.said.lock().unwrap().0
    }

    /// Kills it, if it still runs. Gives what is acknowledged, and what failed.
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
        // On failure only.
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
