//! Tests of copies while another process changes the tree on the host.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{at, image, kernel, text};
use crate::common::daemon::BINARY;
use stetfs_testkit::{Image, Scratch, cmd};

/// The longest time of a copy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats an action until it is dropped.
struct Meanwhile {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meanwhile {
    fn again(mut something: impl FnMut() + Send + 'static) -> Meanwhile {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                something();
            }
        });
        Meanwhile {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for the end of a copy, successful or not.
#[track_caller]
fn ends(mut child: Child) {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the copy does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(BINARY);
    command
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Files that must stay unchanged.
struct Victim {
    scratch: Scratch,
    file: PathBuf,
    dir: PathBuf,
}

impl Victim {
    fn new() -> Victim {
        let scratch = Scratch::new("victim").unwrap();
        let (file, dir) = (scratch.path().join("file"), scratch.path().join("dir"));
        fs::write(&file, "secret").unwrap();
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        Victim { scratch, file, dir }
    }

    #[track_caller]
    fn is_whole(&self) {
        assert_eq!(fs::read(&self.file).unwrap(), b"secret");
        for (path, mode) in [(&self.file, 0o600), (&self.dir, 0o700)] {
            let m = fs::metadata(path).unwrap();
            assert_eq!(
                (m.mode() & 0o7777, m.uid(), m.gid()),
                (mode, 0, 0),
                "{path:?}"
            );
            assert_eq!(m.nlink(), if m.is_dir() { 2 } else { 1 }, "{path:?}");
            let mut names = [0; 256];
            assert_eq!(rustix::fs::listxattr(path, &mut names[..]).unwrap(), 0);
        }
        assert_eq!(fs::read_dir(&self.dir).unwrap().count(), 0);
        assert_eq!(fs::read_dir(self.scratch.path()).unwrap().count(), 2);
    }
}

/// An image of many files and directories with access for everybody, of various owners.
fn many() -> Image {
    let image = image();
    let mounted = kernel(&image);
    for n in 0..200 {
        let dir = mounted.path().join(format!("dir{n}"));
        fs::create_dir(&dir).unwrap();
        for name in ["x", "y", "z"] {
            fs::write(dir.join(name), name).unwrap();
            fs::set_permissions(dir.join(name), Permissions::from_mode(0o6777)).unwrap();
        }
        fs::hard_link(dir.join("x"), dir.join("zz")).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o7777)).unwrap();
    }
    let mut chown = Command::new("chown");
    cmd::run(chown.args(["-hR", "1000:1000"]).arg(mounted.path())).unwrap();
    let mut chmod = Command::new("chmod");
    cmd::run(chmod.args(["-R", "7777"]).arg(mounted.path())).unwrap();
    mounted.umount().unwrap();
    image
}

/// Replaces all files and directories below `dir` by links to the victim.
fn swap(dir: &Path, victim: &(PathBuf, PathBuf), away: &Path, n: &mut u64) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_symlink() {
            continue;
        }
        *n += 1;
        if kind.is_dir() && !n.is_multiple_of(3) {
            swap(&entry.path(), victim, away, n);
            continue;
        }
        let to = if kind.is_dir() { &victim.1 } else { &victim.0 };
        let _ = fs::rename(entry.path(), away.join(n.to_string()));
        let _ = symlink(to, entry.path());
    }
}

#[test]
fn links_that_are_put_in_place_meanwhile_lead_nowhere() {
    let image = many();
    for how in ["-r", "-a"] {
        for _ in 0..5 {
            let victim = Victim::new();
            let scratch = Scratch::new("target").unwrap();
            let (out, away) = (scratch.path().join("out"), scratch.path().join("away"));
            fs::create_dir(&out).unwrap();
            fs::create_dir(&away).unwrap();
            let mut n = 0;
            let (dir, to) = (out.clone(), (victim.file.clone(), victim.dir.clone()));
            let swaps = Meanwhile::again(move || swap(&dir, &to, &away, &mut n));
            ends(start(&["cp", how, &at(&image, "/."), text(&out)]));
            drop(swaps);
            victim.is_whole();
        }
    }
}

/// Eight files, each of which is swapped with something else all the time.
fn restless(make_other: impl Fn(&Path)) -> (Scratch, PathBuf, Meanwhile) {
    let scratch = Scratch::new("source").unwrap();
    let from = scratch.path().join("from");
    fs::create_dir(&from).unwrap();
    let mut pairs = Vec::new();
    for n in 0..8 {
        let (file, other) = (
            from.join(format!("file{n}")),
            scratch.path().join(format!("other{n}")),
        );
        fs::write(&file, "plain").unwrap();
        make_other(&other);
        pairs.push((file, other));
    }
    let swaps = Meanwhile::again(move || {
        for (file, other) in &pairs {
            let (here, with) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            rustix::fs::renameat_with(here, file, here, other, with).unwrap();
        }
    });
    (scratch, from, swaps)
}

/// A source that becomes a pipe meanwhile does not block the copy: opening a pipe waits for a
/// writer. (Without that, 4 of 40 copies hung.)
#[test]
fn sources_that_become_pipes_meanwhile_are_not_waited_for() {
    let (_scratch, from, _swaps) = restless(|other| {
        let mut mkfifo = Command::new("mkfifo");
        cmd::run(mkfifo.arg(other)).unwrap();
    });
    for _ in 0..60 {
        let image = image();
        ends(start(&["cp", text(&from), &at(&image, "/copy")]));
    }
}

#[test]
fn sources_that_become_links_meanwhile_are_not_read_through() {
    let victim = Victim::new();
    let (_scratch, from, _swaps) = restless(|other| symlink(&victim.file, other).unwrap());
    for _ in 0..20 {
        let image = image();
        ends(start(&["cp", text(&from), &at(&image, "/copy")]));
        let mounted = kernel(&image);
        for entry in fs::read_dir(mounted.path().join("copy")).unwrap() {
            let path = entry.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_file() {
                assert_ne!(fs::read(&path).unwrap(), b"secret", "{path:?}");
            }
        }
        mounted.umount().unwrap();
    }
}
