//! Common programs as workloads: everything that they are told is durable must survive a crash.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use stetfs::low::FileType;
use stetfs_testkit::{Scratch, cmd};

use super::posix::sync_fs;
use crate::tree::Seen;
use crate::workload::op::bytes;

/// A program as a workload; its steps count from 1.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name as a workload.
    pub name: &'static str,
    /// A description of the work.
    pub about: &'static str,
    /// Runs the program in a directory; reports the begin and the acknowledgement of each step.
    pub run: fn(&Path, &mut dyn FnMut(Step)) -> Result<()>,
    /// Checks the directory (by its path in the tree) after a crash.
    pub check: Check,
}

/// A check after a crash. It gets the tree, the directory in it, and the numbers of steps begun and
/// acknowledged.
pub type Check = fn(&Seen, &str, (usize, usize)) -> Result<(), String>;

/// A report of a program's progress.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The program began a step.
    Begun(usize),
    /// The step was acknowledged.
    Acked(usize),
}

/// All programs.
pub const PROGRAMS: [Program; 5] = [
    Program {
        name: "sqlite-wal",
        about: "SQLite transactions, write-ahead log, synchronous=FULL",
        run: |dir, step| sqlite(dir, "WAL", "FULL", step),
        check: sqlite_check,
    },
    Program {
        name: "sqlite-delete",
        // With FULL SQLite does not sync the directory after it deletes the journal; then the
        // transaction may be rolled back on any file system.
        about: "SQLite transactions, rollback journal, synchronous=EXTRA",
        run: |dir, step| sqlite(dir, "DELETE", "EXTRA", step),
        check: sqlite_check,
    },
    Program {
        name: "git",
        about: "git commits with core.fsync=all",
        run: git,
        check: git_check,
    },
    Program {
        name: "maildir",
        about: "mails written to tmp, synced, moved to new, the directory synced",
        run: maildir,
        check: maildir_check,
    },
    Program {
        name: "tar",
        about: "tar -x, then syncfs",
        run: tar,
        check: tar_check,
    },
];

/// The program of this name.
pub fn program(name: &str) -> Option<Program> {
    PROGRAMS.into_iter().find(|p| p.name == name)
}

/// Copies a directory of a tree to the host's file system.
fn export(seen: &Seen, dir: &str, to: &Path) -> Result<(), String> {
    let said = |e: std::io::Error| e.to_string();
    let root = seen.find(dir).ok_or("the program's directory is gone")?;
    let mut todo = vec![(root, to.to_owned())];
    while let Some((ino, to)) = todo.pop() {
        let node = seen.nodes.get(&ino).ok_or("a name leads nowhere")?;
        match node.kind {
            FileType::Directory => {
                if !to.exists() {
                    fs::create_dir(&to).map_err(said)?;
                }
                todo.extend(node.entries.iter().map(|(n, i)| (*i, to.join(n))));
            }
            FileType::Regular => fs::write(&to, &node.content).map_err(said)?,
            _ => {}
        }
    }
    Ok(())
}

/// Runs a command on an exported directory; gives its output.
fn ask(command: &mut Command) -> Result<String, String> {
    cmd::run(command).map_err(|e| format!("{e:#}"))
}

/// Number of transactions.
const TRANSACTIONS: usize = 25;

fn sqlite(dir: &Path, mode: &str, sync: &str, step: &mut dyn FnMut(Step)) -> Result<()> {
    let mut child = Command::new("sqlite3")
        .args(["-batch", "-bail", "db"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run sqlite3 (package sqlite3)")?;
    let mut to = child.stdin.take().context("no pipe to sqlite3")?;
    let from = child.stdout.take().context("no pipe from sqlite3")?;
    let mut lines = BufReader::new(from).lines();
    let mut tell = |text: String| -> Result<()> {
        writeln!(to, "{text}\nSELECT 'done';")?;
        to.flush()?;
        loop {
            match lines.next() {
                Some(Ok(line)) if line == "done" => return Ok(()),
                Some(Ok(_)) => {}
                _ => bail!("sqlite3 ended early"),
            }
        }
    };
    tell(format!(
        "PRAGMA journal_mode={mode}; PRAGMA synchronous={sync}; PRAGMA wal_autocheckpoint=20;"
    ))?;
    step(Step::Begun(1));
    tell("CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB); CREATE TABLE m(n INTEGER);".into())?;
    // Each statement is a transaction of its own; this one is the step.
    tell("INSERT INTO m VALUES(1);".into())?;
    step(Step::Acked(1));
    for n in 2..=TRANSACTIONS {
        step(Step::Begun(n));
        tell(format!(
            "BEGIN; INSERT INTO t VALUES({n}, randomblob({})); UPDATE m SET n={n}; COMMIT;",
            n * 173 % 3000
        ))?;
        step(Step::Acked(n));
    }
    drop(to);
    ensure!(child.wait()?.success(), "sqlite3 failed");
    Ok(())
}

fn sqlite_check(seen: &Seen, dir: &str, (begun, acked): (usize, usize)) -> Result<(), String> {
    let scratch = Scratch::new("sqlite").map_err(|e| e.to_string())?;
    export(seen, dir, scratch.path())?;
    let db = scratch.path().join("db");
    let query = |sql: &str| {
        ask(Command::new("sqlite3")
            .args(["-batch", "-bail"])
            .arg(&db)
            .arg(sql))
    };
    let sound = query("PRAGMA integrity_check;")?;
    if sound.trim() != "ok" {
        return Err(format!("integrity_check: {sound}"));
    }
    if acked == 0 {
        return Ok(());
    }
    let n = query("SELECT (SELECT max(n) FROM m), (SELECT count(*) + 1 FROM t);")?;
    let Some((last, rows)) = n.trim().split_once('|') else {
        return Err(format!("the tables are empty: {n:?}"));
    };
    match (last.parse::<usize>(), rows.parse::<usize>()) {
        (Ok(last), Ok(rows)) if last == rows && (acked..=begun.max(acked)).contains(&last) => {
            Ok(())
        }
        _ => Err(format!(
            "{acked} transactions were acknowledged; the last there is {last}, of {rows} rows"
        )),
    }
}

/// Number of commits.
const COMMITS: usize = 6;

fn git(dir: &Path, step: &mut dyn FnMut(Step)) -> Result<()> {
    let repo = dir.join("repo");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(["-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync"])
            .args(["-c", "user.name=crash", "-c", "user.email=crash@lab"])
            .args(["-c", "gc.auto=0", "-c", "safe.directory=*"])
            .args(args)
            .current_dir(dir);
        cmd::run(&mut command).context("cannot run git (package git)")
    };
    git(&["init", "-q", "repo"])?;
    // git does not sync the files of the new repository.
    sync_fs(dir)?;
    for n in 1..=COMMITS {
        step(Step::Begun(n));
        for file in 0..3u64 {
            fs::write(
                repo.join(format!("file{file}")),
                bytes(n as u64 * 10 + file, 4000),
            )?;
        }
        git(&["-C", "repo", "add", "."])?;
        git(&["-C", "repo", "commit", "-q", "-m", "step"])?;
        // git does not sync the directory in which it renames the reference.
        File::open(repo.join(".git/refs/heads"))?.sync_all()?;
        step(Step::Acked(n));
    }
    Ok(())
}

fn git_check(seen: &Seen, dir: &str, (begun, acked): (usize, usize)) -> Result<(), String> {
    if acked == 0 {
        return Ok(());
    }
    let scratch = Scratch::new("git").map_err(|e| e.to_string())?;
    export(seen, dir, scratch.path())?;
    let repo = scratch.path().join("repo");
    let git = |args: &[&str]| {
        ask(Command::new("git")
            .args(["-c", "safe.directory=*", "-C"])
            .arg(&repo)
            .args(args))
    };
    git(&["fsck", "--full", "--strict"])?;
    let count = git(&["rev-list", "--count", "HEAD"])?;
    match count.trim().parse::<usize>() {
        Ok(n) if (acked..=begun.max(acked)).contains(&n) => Ok(()),
        _ => Err(format!(
            "{acked} commits were acknowledged, {} are there",
            count.trim()
        )),
    }
}

/// Number of mails.
const MAILS: usize = 20;

fn mail(n: usize) -> Vec<u8> {
    bytes(n as u64, 500 + n * 977 % 9000)
}

fn maildir(dir: &Path, step: &mut dyn FnMut(Step)) -> Result<()> {
    for sub in ["tmp", "new"] {
        fs::create_dir(dir.join(sub))?;
    }
    File::open(dir)?.sync_all()?;
    for n in 1..=MAILS {
        step(Step::Begun(n));
        let tmp = dir.join("tmp").join(n.to_string());
        let mut file = File::create(&tmp)?;
        file.write_all(&mail(n))?;
        file.sync_all()?;
        fs::rename(&tmp, dir.join("new").join(n.to_string()))?;
        File::open(dir.join("new"))?.sync_all()?;
        step(Step::Acked(n));
    }
    Ok(())
}

fn maildir_check(seen: &Seen, dir: &str, (begun, acked): (usize, usize)) -> Result<(), String> {
    for n in 1..=begun.max(acked) {
        let found = seen
            .find(&format!("{dir}/new/{n}"))
            .and_then(|ino| seen.nodes.get(&ino));
        match found {
            Some(node) if node.content == mail(n) => {}
            Some(_) => return Err(format!("mail {n} is there, but not whole")),
            None if n > acked => {}
            None => return Err(format!("mail {n} was delivered and is gone")),
        }
    }
    Ok(())
}

/// Number of files in the archive.
const FILES: usize = 40;

fn tar(dir: &Path, step: &mut dyn FnMut(Step)) -> Result<()> {
    let scratch = Scratch::new("tar")?;
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree)?;
    for n in 0..FILES {
        let sub = tree.join(format!("d{}", n % 5));
        if !sub.exists() {
            fs::create_dir(&sub)?;
        }
        fs::write(sub.join(n.to_string()), mail(n))?;
    }
    let archive = scratch.path().join("tree.tar");
    let tar = |args: &[&str], at: &Path| {
        let mut command = Command::new("tar");
        command.args(args).arg(&archive).arg("-C").arg(at);
        command
    };
    cmd::run(tar(&["-cf"], scratch.path()).arg("tree")).context("making the archive")?;
    step(Step::Begun(1));
    cmd::run(&mut tar(&["-xf"], dir)).context("cannot run tar (package tar)")?;
    sync_fs(dir)?;
    step(Step::Acked(1));
    Ok(())
}

fn tar_check(seen: &Seen, dir: &str, (_, acked): (usize, usize)) -> Result<(), String> {
    for n in 0..FILES * acked.min(1) {
        let path = format!("tree/d{}/{n}", n % 5);
        let found = seen
            .find(&format!("{dir}/{path}"))
            .and_then(|ino| seen.nodes.get(&ino));
        if found.is_none_or(|node| node.content != mail(n)) {
            return Err(format!("{path} was synced and is not there, or not whole"));
        }
    }
    Ok(())
}
