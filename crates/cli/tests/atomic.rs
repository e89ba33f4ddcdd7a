//! Tests of atomic writes on mounts, through the ioctls of F2FS.
mod groups;
mod held;
mod requests;

use std::fs::{File, OpenOptions};
use std::io;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::stetfs_with;
use crate::sources::root;
use stetfs_testkit::{Image, Mkfs, Mounted, Scratch, cmd, sys, wait_until};

const FEATURES: u32 = 0x8004_f50c;
const START: u32 = 0xf501;
const COMMIT: u32 = 0xf502;
const ABORT: u32 = 0xf505;
/// The ioctl of FusionIO that asks whether writes are whole.
const WRITES_WHOLE: u32 = 0x4004_9502;

fn ioctl(file: &File, number: u32) -> io::Result<u32> {
    let mut answer = [0; 4];
    sys::file_ioctl(file.as_fd(), number, &mut answer)?;
    Ok(u32::from_ne_bytes(answer))
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// A volume mounted with these options.
fn mount(options: &str) -> (Image, Mounted) {
    let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
    let mounted = stetfs_with(options).mount(image.path()).unwrap();
    (image, mounted)
}

/// Waits until a file holds this content: a server thread drops the kernel's pages a moment later.
#[track_caller]
fn becomes(path: &Path, expected: &[u8]) {
    wait_until(format_args!("{} is another", path.display()), || {
        std::fs::read(path).unwrap() == expected
    });
}

#[test]
fn a_file_is_committed_whole_or_leaves_no_trace() {
    for journal in ["data", "ldj", "stet", "afs"] {
        let (image, mounted) = mount(&format!("journal={journal},atomic"));
        let path = mounted.path().join("db");
        let old = vec![1; 50_000];
        std::fs::write(&path, &old).unwrap();
        let db = open(&path);
        assert_eq!(ioctl(&db, FEATURES).unwrap() & 4, 4, "{journal}");

        // After an abort, and after a close, the file is as before, also in the kernel's pages.
        for closes in [false, true] {
            let db = open(&path);
            ioctl(&db, START).unwrap();
            db.write_all_at(&[2; 9000], 3000).unwrap();
            db.write_all_at(&[3; 9000], 60_000).unwrap();
            let mut seen = [0; 2];
            db.read_exact_at(&mut seen, 2999).unwrap();
            assert_eq!(seen, [1, 2]);
            assert_eq!(db.metadata().unwrap().len(), 69_000);
            let another = open(&path);
            assert!(ioctl(&another, START).is_err() && ioctl(&another, COMMIT).is_err());
            match closes {
                true => drop(db),
                false => drop(ioctl(&db, ABORT).unwrap()),
            }
            becomes(&path, &old);
            assert_eq!(path.metadata().unwrap().len(), 50_000);
        }

        ioctl(&db, START).unwrap();
        db.write_all_at(&[2; 9000], 3000).unwrap();
        db.set_len(20_000).unwrap();
        // A syncfs makes no part of it durable. A commit does, without a sync after it.
        rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
        let before = copy(image.path());
        ioctl(&db, COMMIT).unwrap();
        let after = copy(image.path());
        let mut new = old[..20_000].to_vec();
        new[3000..12_000].fill(2);
        assert!(std::fs::read(&path).unwrap() == new);
        assert!(ioctl(&db, COMMIT).is_err(), "it has ended");
        db.write_all_at(b"plain", 0).unwrap();
        drop(db);
        mounted.umount().unwrap();
        for (image, expected) in [(before, &old), (after, &new)] {
            let mounted = stetfs_with("").mount(&image.1).unwrap();
            assert!(std::fs::read(mounted.path().join("db")).unwrap() == *expected);
            mounted.umount().unwrap();
        }
        image.e2fsck_fn().unwrap();
    }
}

/// A copy of the device as it is now: the state after a crash.
fn copy(image: &Path) -> (Scratch, PathBuf) {
    let scratch = Scratch::new("crashed").unwrap();
    let path = scratch.path().join("image");
    std::fs::copy(image, &path).unwrap();
    (scratch, path)
}

#[test]
fn it_is_not_offered_where_it_would_not_hold() {
    for options in ["journal=data", "journal=data,opens=handles"] {
        let (_image, mounted) = mount(options);
        let path = mounted.path().join("db");
        std::fs::write(&path, "old").unwrap();
        let db = open(&path);
        assert_eq!(ioctl(&db, FEATURES).unwrap() & 4, 0, "{options}");
        let refused = ioctl(&db, START).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{options}");
        drop(db);
        mounted.umount().unwrap();
    }
}

/// A C program, compiled with the public header.
fn compiled(scratch: &Scratch, source: &str) -> PathBuf {
    let program = scratch.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(root().join("crates/cli/tests").join(source));
    cmd::run(cc.arg("-o").arg(&program)).unwrap();
    program
}

#[test]
fn a_c_program_writes_atomically_where_it_is_offered() {
    let scratch = Scratch::new("atomic").unwrap();
    let program = compiled(&scratch, "atomic.c");
    let runs = |path: &Path, offered: i32| {
        std::fs::write(path, "old").unwrap();
        let mut run = Command::new(&program);
        let said = cmd::run(run.arg(path).arg(offered.to_string())).unwrap();
        assert!(said.contains("done"), "{said}");
    };
    for (options, offered) in [
        ("journal=stet,atomic", 1),
        ("journal=stet", -libc::EOPNOTSUPP),
    ] {
        let (image, mounted) = mount(options);
        runs(&mounted.path().join("db"), offered);
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
        if offered == 1 {
            assert_eq!(image.debugfs("cat /db").unwrap(), "2ldabcdef");
        }
    }
    // Another file system.
    runs(&scratch.path().join("db"), -libc::ENOTTY);
}

/// The examples of docs/atomic.md in C and Python are parts of programs that tests run.
#[test]
fn the_documentation_shows_what_is_tried() {
    let text = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let lines = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let tried = [
        "crates/capi/examples/transfer.c",
        "python/examples/transfer.py",
        "crates/cli/tests/atomic.c",
        "crates/cli/tests/atomic_group.c",
    ];
    let page = text("docs/atomic.md");
    for source in tried.map(text) {
        let tried = lines(&source);
        let mut blocks = page.split("```").skip(1).step_by(2);
        let is_shown = |block: &str| {
            let shown = lines(block.split_once('\n').unwrap().1);
            let language = block.lines().next();
            matches!(language, Some("c" | "python"))
                && tried.windows(shown.len()).any(|part| part == shown)
        };
        assert!(blocks.any(is_shown), "of this nothing is shown:\n{source}");
    }
    let blocks = page.matches("```c\n").count() + page.matches("```python\n").count();
    assert_eq!(blocks, tried.len());
}

/// A program that locks the file, begins an atomic write of all of it, and of another file in the
/// same group, and waits to be killed.
const DIES: &str = "
import fcntl, os, sys, threading, time
fd, other = [os.open(path, os.O_RDWR) for path in sys.argv[1:3]]
fcntl.lockf(fd, fcntl.LOCK_EX)
has_begun = threading.Event()
def begin():
    try:
        fcntl.ioctl(fd, 0xf501)
        token = fcntl.ioctl(fd, 0x8008f540, bytes(8))
        fcntl.ioctl(other, 0x4008f541, token)
        for file in fd, other:
            os.pwrite(file, b'n' * int(sys.argv[3]), 0)
    except OSError as e:
        print(e, file=sys.stderr)
        os._exit(1)
    has_begun.set()
    time.sleep(999)
threading.Thread(target=begin).start()
has_begun.wait()
child = os.fork()
if child == 0:
    # It has the descriptor, too, and closes it.
    os._exit(0)
os.waitpid(child, 0)
if os.pread(fd, 1, 0) + os.pread(other, 1, 0) != b'nn':
    os._exit(1)
print('x', flush=True)
time.sleep(999)
";

/// A program that waits for the lock of one that dies sees nothing of the other's unfinished atomic
/// write, from the first moment on: SQLite's next writer would build on it.
#[test]
fn what_the_dead_had_begun_is_gone_when_their_locks_are() {
    const LEN: usize = 1 << 20;
    let image = Image::make(64 << 20, &Mkfs::blocks(4096).journal_mib(16)).unwrap();
    let mounted = stetfs_with("journal=ldj,atomic")
        .mount(image.path())
        .unwrap();
    let path = mounted.path().join("db");
    let old = vec![b'o'; LEN];
    std::fs::write(&path, &old).unwrap();
    let other = mounted.path().join("other");
    std::fs::write(&other, &old).unwrap();
    let db = open(&path);
    for death in 0..20 {
        let mut begins = cmd::tied("python3", libc::SIGKILL);
        let begins = begins.args(["-c", DIES]).arg(&path).arg(&other);
        begins.arg(LEN.to_string());
        let mut child = begins.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0];
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut said).unwrap();
        child.kill().unwrap();
        rustix::fs::fcntl_lock(&db, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let mut seen = vec![0; LEN];
        db.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == old, "death {death}");
        assert!(std::fs::read(&other).unwrap() == old, "death {death}");
        ioctl(&db, START).unwrap();
        ioctl(&db, ABORT).unwrap();
        rustix::fs::fcntl_lock(&db, rustix::fs::FlockOperation::Unlock).unwrap();
        child.wait().unwrap();
    }
    drop(db);
    mounted.umount().unwrap();
}

/// Closing a descriptor ends an atomic write; later writes by a duplicate of it are refused, lest
/// they be committed alone.
#[test]
fn what_is_written_behind_a_close_does_not_stand_alone() {
    let (_image, mounted) = mount("journal=data,atomic");
    let path = mounted.path().join("db");
    std::fs::write(&path, "old").unwrap();
    let db = open(&path);
    ioctl(&db, START).unwrap();
    db.write_all_at(b"n", 0).unwrap();
    drop(db.try_clone().unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    let refused = db.write_all_at(b"w", 2).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EIO));
    assert!(ioctl(&db, COMMIT).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    // The handle got its error, and can be used again.
    ioctl(&db, START).unwrap();
    db.write_all_at(b"new", 0).unwrap();
    ioctl(&db, COMMIT).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    drop(db);
    mounted.umount().unwrap();
}

fn refusal<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// MariaDB's question gets yes where a write is one request and one transaction.
#[test]
fn whole_pages_are_promised_where_a_crash_leaves_none_in_half() {
    for (options, journal_mib, holds) in [
        ("journal=data,direct_io", 16, true),
        ("journal=ldj,direct_io", 16, true),
        ("journal=stet,direct_io", 16, true),
        ("journal=afs,direct_io", 16, true),
        ("journal=ordered,direct_io", 16, false),
        ("journal=ijournal,direct_io", 16, false),
        ("journal=data", 16, false),
        ("journal=data,atomic", 16, false),
    ] {
        let image = Image::make(64 << 20, &Mkfs::blocks(4096).journal_mib(journal_mib)).unwrap();
        let mounted = stetfs_with(options).mount(image.path()).unwrap();
        let path = mounted.path().join("space");
        std::fs::write(&path, "").unwrap();
        let space = open(&path);
        let said = ioctl_in(&space, WRITES_WHOLE);
        match holds {
            true => said.unwrap(),
            false => {
                let refused = said.unwrap_err().raw_os_error();
                assert_eq!(refused, Some(libc::ENOTTY), "{options}");
            }
        }
        drop(space);
        mounted.umount().unwrap();
    }
}

/// An ioctl whose argument is an int.
fn ioctl_in(file: &File, number: u32) -> io::Result<()> {
    sys::file_ioctl(file.as_fd(), number, &mut 1_u32.to_ne_bytes())
}
