//! Tests with common programs: git, SQLite, tar; and with the server killed under each.
//!
//! After a kill the volume is mounted again: synced data must be there, the program's own check
//! must find its data in order, and e2fsck must find nothing.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{assert_same, kernel, stetfs};
use stetfs_testkit::sys::Shutdown;
use stetfs_testkit::workload::{Bytes, Plan, Section, fsync_all};
use stetfs_testkit::{
    CaptureOptions, Image, Mkfs, Mounted, Mounter, Scratch, Tree, cmd, tools, wait_until,
};

const IMAGE: u64 = 1 << 30;

fn volume(mounter: &Mounter) -> (Image, Mounted) {
    let image = Image::make(IMAGE, &Mkfs::new()).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    (image, mounted)
}

/// A tree that is durable before a program starts, and must be unchanged after the kill.
struct Base {
    tree: Tree,
}

impl Base {
    fn make(mounted: &Mounted) -> Self {
        let dir = mounted.path().join("base");
        fs::create_dir(&dir).unwrap();
        Plan::small(77).populate(&dir).unwrap();
        fsync_all(mounted.path()).unwrap();
        Self {
            tree: Tree::capture(&dir, &CaptureOptions::default()).unwrap(),
        }
    }

    /// Remounts (which recovers), checks the synced tree, lets `check` look at the rest, and
    /// unmounts for e2fsck.
    fn survives(&self, mounter: &Mounter, image: &Image, check: impl FnOnce(&Path)) {
        let mounted = mounter.mount(image.path()).unwrap();
        let found =
            Tree::capture(&mounted.path().join("base"), &CaptureOptions::default()).unwrap();
        assert_same("what was synced before the crash", &self.tree, &found);
        check(mounted.path());
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// Kills the server. The programs notice by themselves (EIO, ENOTCONN), or `release` ends them.
fn crash_under(mounted: Mounted, release: impl FnOnce()) {
    mounted.crash_with(Shutdown::NoLogFlush, release).unwrap();
}

fn reap(mut child: Child) {
    // The program would fail by itself without its file system; killing it saves waiting for its
    // further attempts.
    let _ = child.kill();
    child.wait().unwrap();
}

// --- git ---

fn git(dir: &Path) -> Command {
    let mut command = Command::new(tools::system_tool("git", "git").unwrap());
    command
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.args([
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@localhost",
        "-c",
        "init.defaultBranch=main",
    ]);
    // git makes each object and ref durable before it reports success; otherwise there would be no
    // promise to check.
    command.args(["-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync"]);
    command
}

/// A repository of thousands of files, with links, executables and several commits.
fn repository(dir: &Path, files: u64) -> PathBuf {
    let path = dir.join("source");
    fs::create_dir(&path).unwrap();
    cmd::run(git(&path).args(["init", "-q"])).unwrap();
    let bytes = Bytes::new(5);
    for commit in 0..3 {
        for i in (commit..files).step_by(3) {
            let sub = path.join(format!("dir-{}/sub-{}", i % 17, i % 5));
            fs::create_dir_all(&sub).unwrap();
            let text: String = bytes
                .get(i, 40 << (i % 7))
                .iter()
                .map(|b| char::from(b'a' + b % 26))
                .collect();
            fs::write(sub.join(format!("file-{i}.txt")), text).unwrap();
        }
        std::os::unix::fs::symlink("dir-1", path.join(format!("link-{commit}"))).unwrap();
        cmd::run(git(&path).args(["add", "-A"])).unwrap();
        cmd::run(git(&path).args(["commit", "-q", "-m", &format!("commit {commit}")])).unwrap();
    }
    path
}

fn worktree(dir: &Path) -> Tree {
    let options = CaptureOptions {
        mtime: false,
        exclude: vec![".git".into()],
        ..CaptureOptions::default()
    };
    Tree::capture(dir, &options).unwrap()
}

fn git_is_in_order(clone: &Path) {
    cmd::run(git(clone).args(["fsck", "--full", "--strict", "--no-dangling"])).unwrap();
    let status = cmd::run(git(clone).args(["status", "--porcelain"])).unwrap();
    assert_eq!(status, "", "git status");
}

fn git_works(mounter: &Mounter) {
    let scratch = Scratch::new("git").unwrap();
    let source = repository(scratch.path(), 3_000);
    let (image, mounted) = volume(mounter);
    cmd::run(
        git(mounted.path())
            .args(["clone", "-q", "--no-hardlinks"])
            .arg(&source)
            .arg("clone"),
    )
    .unwrap();
    let clone = mounted.path().join("clone");
    assert_same("the clone", &worktree(&source), &worktree(&clone));
    git_is_in_order(&clone);

    cmd::run(git(&clone).args(["checkout", "-q", "-b", "work", "HEAD~2"])).unwrap();
    fs::write(clone.join("new-file"), "new").unwrap();
    cmd::run(git(&clone).args(["add", "-A"])).unwrap();
    cmd::run(git(&clone).args(["commit", "-q", "-m", "on a branch"])).unwrap();
    cmd::run(git(&clone).args(["merge", "-q", "-m", "merge", "main"])).unwrap();
    cmd::run(git(&clone).args(["gc", "-q", "--prune=now"])).unwrap();
    git_is_in_order(&clone);
    let before = worktree(&clone);
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();

    let mounted = mounter.mount(image.path()).unwrap();
    let clone = mounted.path().join("clone");
    assert_same("after a remount", &before, &worktree(&clone));
    git_is_in_order(&clone);
    mounted.umount().unwrap();
}

/// Makes commits, each of which git fsyncs; the server is killed meanwhile.
fn git_survives_a_kill(mounter: &Mounter) {
    let (image, mounted) = volume(mounter);
    let base = Base::make(&mounted);
    let repo = mounted.path().join("repo");
    fs::create_dir(&repo).unwrap();
    cmd::run(git(&repo).args(["init", "-q"])).unwrap();
    fsync_all(mounted.path()).unwrap();
    // Reported on a pipe after each commit, outside the volume.
    let script = "i=0; while i=$((i+1)); do echo $i > file-$i; git add -A && git commit -q -m $i || exit 1; echo $i; done";
    let shell = git(&repo);
    let config: Vec<String> = shell
        .get_args()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let script = format!(
        "git() {{ command git {} \"$@\"; }}; {script}",
        config.join(" ")
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(&repo)
        .envs(shell.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = 0;
    while last < 15 {
        last = lines
            .next()
            .expect("git goes on")
            .unwrap()
            .parse::<u32>()
            .unwrap();
    }
    crash_under(mounted, || {});
    // The commits that it reported before it noticed.
    last = lines
        .map_while(Result::ok)
        .filter_map(|l| l.parse().ok())
        .last()
        .unwrap_or(last);
    reap(child);
    base.survives(mounter, &image, |root| {
        let repo = root.join("repo");
        // A commit in flight may leave its lock, as it does on any file system.
        for lock in ["index.lock", "HEAD.lock", "refs/heads/main.lock"] {
            let _ = fs::remove_file(repo.join(".git").join(lock));
        }
        cmd::run(git(&repo).args(["fsck", "--full", "--strict", "--no-dangling"])).unwrap();
        let count = cmd::run(git(&repo).args(["rev-list", "--count", "HEAD"])).unwrap();
        let count: u32 = count.trim().parse().unwrap();
        // git fsyncs its files but not the rename of the branch's file: the last commit may be
        // missing; the one before became durable with the fsyncs of the last.
        assert!(
            count + 1 >= last,
            "{last} commits were acknowledged, {count} are there"
        );
    });
}

// --- SQLite ---

fn sqlite(database: &Path, sql: &str) -> String {
    let program = tools::system_tool("sqlite3", "sqlite3").unwrap();
    cmd::run(
        Command::new(program)
            .arg("-batch")
            .arg("-bail")
            .arg(database)
            .arg(sql),
    )
    .unwrap()
}

/// Inserts rows, one per transaction, each durable when acknowledged; the server is killed after
/// some acknowledgements.
fn sqlite_survives_a_kill(mounter: &Mounter, journal_mode: &str) {
    let (image, mounted) = volume(mounter);
    let base = Base::make(&mounted);
    let database = mounted.path().join("data.db");
    sqlite(
        &database,
        &format!(
            "PRAGMA journal_mode={journal_mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB, twice);"
        ),
    );
    let served = mounted.path().join("served");
    std::fs::write(&served, "").unwrap();
    fsync_all(mounted.path()).unwrap();
    // stdbuf makes each answer appear at once, without buffering.
    let mut child = Command::new("stdbuf")
        .args(["-oL", "sqlite3", "-batch", "-bail"])
        .arg(&database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        // EXTRA: with FULL, SQLite does not sync the directory after it removed the rollback
        // journal, and the last transaction may be rolled back.
        let _ = writeln!(input, "PRAGMA synchronous=EXTRA;");
        for i in 1..1_000_000 {
            // A transaction writes pages of two tables, so that half of it would be visible. SQLite
            // treats a directory that it cannot open as one that needs no sync; only a file that
            // can be opened proves that the server lived until then.
            let sql = format!(
                "BEGIN; INSERT INTO t VALUES({i}, randomblob(3000), NULL); UPDATE t SET twice={i} WHERE id > {i} - 10; COMMIT; SELECT 'ack', {i} WHERE readfile('{}') NOT NULL;",
                served.display()
            );
            if writeln!(input, "{sql}").is_err() {
                break;
            }
        }
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = 0;
    let ack = |line: &str| {
        line.strip_prefix("ack|")
            .and_then(|n| n.parse::<u32>().ok())
    };
    while acknowledged < 200 {
        let line = lines.next().expect("sqlite3 goes on").unwrap();
        acknowledged = ack(&line).unwrap_or(acknowledged);
    }
    crash_under(mounted, || {});
    for line in lines.map_while(Result::ok) {
        acknowledged = ack(&line).unwrap_or(acknowledged);
    }
    reap(child);
    feeder.join().unwrap();
    base.survives(mounter, &image, |root| {
        let database = root.join("data.db");
        assert_eq!(sqlite(&database, "PRAGMA integrity_check;").trim(), "ok");
        let found = sqlite(
            &database,
            "SELECT max(id), count(*), (SELECT twice FROM t ORDER BY id DESC LIMIT 1) FROM t;",
        );
        let found: Vec<u32> = found
            .trim()
            .split('|')
            .map(|n| n.parse().unwrap())
            .collect();
        assert!(
            found[0] >= acknowledged,
            "{acknowledged} transactions were acknowledged, {} are there",
            found[0]
        );
        assert_eq!(found, [found[0]; 3], "every transaction whole");
        sqlite(&database, "INSERT INTO t(v) VALUES('goes on');");
    });
}

fn sqlite_works(mounter: &Mounter, journal_mode: &str) {
    let (image, mounted) = volume(mounter);
    let database = mounted.path().join("data.db");
    let script = format!(
        "PRAGMA journal_mode={journal_mode}; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50000) INSERT INTO t SELECT i, 'row ' || i FROM n; \
         CREATE INDEX v ON t(v); DELETE FROM t WHERE id % 3 = 0; VACUUM; UPDATE t SET v = v || '!' WHERE id % 2 = 0;"
    );
    sqlite(&database, &script);
    let check = "PRAGMA integrity_check; SELECT count(*), sum(id), sum(length(v)) FROM t;";
    let before = sqlite(&database, check);
    assert!(before.starts_with("ok\n33334|"), "{before}");
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    assert_eq!(sqlite(&mounted.path().join("data.db"), check), before);
    mounted.umount().unwrap();
}

// --- tar ---

/// Everything that tar can carry: no sockets, no inode flags, no times before 1970.
fn tar_plan() -> Plan {
    [Section::Special, Section::Flags]
        .into_iter()
        .fold(Plan::full(9), Plan::without)
}

fn pipe_tar(from: &Path, to: &Path) -> (Child, Child) {
    let tar = tools::system_tool("tar", "tar").unwrap();
    let options = [
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--sparse",
        "--format=posix",
        "--numeric-owner",
    ];
    let mut pack = Command::new(&tar)
        .args(options)
        .args(["-cf", "-", "-C"])
        .arg(from)
        .arg(".")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let unpack = Command::new(&tar)
        .args(options)
        .args(["-xpf", "-", "-C"])
        .arg(to)
        .stdin(pack.stdout.take().unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (pack, unpack)
}

/// A tree on a kernel mount, to be copied. (Root's file system may not support some of its
/// attributes.)
fn tar_source() -> (Image, Mounted) {
    let (image, mounted) = volume(&kernel());
    fs::create_dir(mounted.path().join("tree")).unwrap();
    tar_plan().populate(&mounted.path().join("tree")).unwrap();
    // tar knows hard links of regular files and symlinks only.
    fs::remove_file(mounted.path().join("tree/hard-links/b/link-of-fifo")).unwrap();
    (image, mounted)
}

fn tar_works(mounter: &Mounter) {
    let (_source_image, source) = tar_source();
    let from = source.path().join("tree");
    let (image, mounted) = volume(mounter);
    let to = mounted.path().join("copy");
    fs::create_dir(&to).unwrap();
    let (pack, unpack) = pipe_tar(&from, &to);
    for child in [unpack, pack] {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "tar: {}", cmd::said(&out));
    }
    let expected = Tree::capture(&from, &CaptureOptions::default()).unwrap();
    assert_same(
        "unpacked",
        &expected,
        &Tree::capture(&to, &CaptureOptions::default()).unwrap(),
    );
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    let again = Tree::capture(&mounted.path().join("copy"), &CaptureOptions::default()).unwrap();
    assert_same("after a remount", &expected, &again);
    mounted.umount().unwrap();
}

fn tar_survives_a_kill(mounter: &Mounter) {
    let (_source_image, source) = tar_source();
    let (image, mounted) = volume(mounter);
    let base = Base::make(&mounted);
    let to = mounted.path().join("copy");
    fs::create_dir(&to).unwrap();
    let (pack, unpack) = pipe_tar(&source.path().join("tree"), &to);
    // tar creates the large directory in the middle of the copy.
    wait_until("tar reaching the large directory", || {
        to.join("directories/many").exists()
    });
    std::thread::sleep(Duration::from_millis(100));
    crash_under(mounted, || {
        reap(unpack);
        reap(pack);
    });
    base.survives(mounter, &image, |root| {
        // A partial copy can be read and removed.
        if root.join("copy").exists() {
            Tree::capture(&root.join("copy"), &CaptureOptions::default()).unwrap();
            fs::remove_dir_all(root.join("copy")).unwrap();
        }
    });
}

// --- programs on the volume ---

/// Opening a running program for writing is refused (ETXTBSY) and changes nothing, with O_TRUNC
/// too.
fn a_running_program_is_left_alone(mounter: &Mounter) {
    let (_image, mounted) = volume(mounter);
    let program = mounted.path().join("sleep");
    fs::copy(tools::system_tool("sleep", "coreutils").unwrap(), &program).unwrap();
    let size = fs::metadata(&program).unwrap().len();
    let mut running = Command::new(&program).arg("60").spawn().unwrap();
    let mut options = fs::OpenOptions::new();
    for attempt in [
        options.write(true).open(&program),
        options.truncate(true).open(&program),
    ] {
        assert_eq!(
            attempt.unwrap_err().kind(),
            std::io::ErrorKind::ExecutableFileBusy
        );
    }
    assert_eq!(fs::metadata(&program).unwrap().len(), size);
    assert!(running.try_wait().unwrap().is_none(), "the program ended");
    reap(running);
    fs::File::create(&program).unwrap();
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
    mounted.umount().unwrap();
}

macro_rules! programs {
    ($($name:ident / $harness:ident: $test:expr;)*) => { $(
        #[test]
        fn $name() {
            $test(&stetfs());
        }
        /// Proves the test itself, on the kernel's ext4.
        #[test]
        fn $harness() {
            $test(&kernel());
        }
    )* };
}

programs! {
    git_clone_gc_fsck / harness_git: git_works;
    git_killed / harness_git_killed: git_survives_a_kill;
    sqlite_delete / harness_sqlite_delete: |m: &Mounter| sqlite_works(m, "DELETE");
    sqlite_wal / harness_sqlite_wal: |m: &Mounter| sqlite_works(m, "WAL");
    sqlite_delete_killed / harness_sqlite_delete_killed: |m: &Mounter| sqlite_survives_a_kill(m, "DELETE");
    sqlite_wal_killed / harness_sqlite_wal_killed: |m: &Mounter| sqlite_survives_a_kill(m, "WAL");
    tar_copy / harness_tar: tar_works;
    tar_killed / harness_tar_killed: tar_survives_a_kill;
    running_program / harness_running_program: a_running_program_is_left_alone;
}
