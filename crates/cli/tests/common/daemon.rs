//! Runs the `stetfs` commands as a user does, and mounts in the background.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, Scratch, mount, wait_until};

pub(crate) use crate::BINARY;

pub(crate) fn stetfs(args: &[&str]) -> Output {
    Command::new(BINARY).args(args).output().unwrap()
}

/// As [`stetfs`]. An unmount that finds the mount busy is repeated for some seconds: another test
/// may start a program, and until that runs it holds copies of this test's files.
fn stetfs_when_idle(args: &[&str]) -> Output {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let out = stetfs(args);
        let is_busy = out.status.code() == Some(4) && args.first() == Some(&"umount");
        // Of a volume that is in use elsewhere the mount here is gone.
        let is_done = String::from_utf8_lossy(&out.stderr).contains("is unmounted");
        if !is_busy || is_done || Instant::now() > end {
            return out;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
pub(crate) fn ok(args: &[&str]) -> String {
    let out = stetfs_when_idle(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.success(),
        "stetfs {}: {}\n{said}",
        args.join(" "),
        out.status
    );
    String::from_utf8(out.stdout).unwrap()
}

#[track_caller]
pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(&[&["--json"], args].concat())).unwrap()
}

/// The exit code of `stetfs` with these arguments, and its answer as JSON.
#[track_caller]
pub(crate) fn answer(args: &[&str]) -> (i32, Value) {
    let out = stetfs(&[&["--json"], args].concat());
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{args:?}: {e}: {said}"));
    (out.status.code().unwrap(), value)
}

/// Checks that the command fails with exactly this code and a message with all of `words`.
#[track_caller]
pub(crate) fn fails(args: &[&str], code: i32, words: &[&str]) {
    let out = stetfs(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(
        out.status.code(),
        Some(code),
        "stetfs {}\n{said}",
        args.join(" ")
    );
    for word in words {
        assert!(said.contains(word), "{word:?} is not in:\n{said}");
    }
}

/// An image with a background mount; taken down when dropped.
pub(crate) struct Daemon {
    pub(crate) image: Image,
    pub(crate) dir: PathBuf,
    _scratch: Scratch,
}

impl Daemon {
    pub(crate) fn new(options: &str) -> Daemon {
        let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
        let this = Daemon::unmounted(image);
        this.mount(options);
        this
    }

    pub(crate) fn unmounted(image: Image) -> Daemon {
        let scratch = Scratch::new("cmd").unwrap();
        let dir = scratch.path().join("fs");
        std::fs::create_dir(&dir).unwrap();
        Daemon {
            image,
            dir,
            _scratch: scratch,
        }
    }

    pub(crate) fn mount(&self, options: &str) {
        let mut args = vec!["mount"];
        if !options.is_empty() {
            args.extend(["-o", options]);
        }
        let said = ok(&[&args[..], &[self.image(), self.dir()]].concat());
        assert_eq!(said, "", "a mount that works says nothing");
        assert!(mount::is_mounted(&self.dir));
    }

    pub(crate) fn image(&self) -> &str {
        self.image.path().to_str().unwrap()
    }

    pub(crate) fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(json(&["stat", self.dir()])["pid"].as_i64().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Kills the server and waits until the kernel has noticed, and no server thread answers any
    /// more.
    pub(crate) fn kill9(&self) {
        let pid = self.pid();
        self.signal(rustix::process::Signal::KILL);
        // Not by attributes, which the kernel may have cached.
        wait_until("the end of the connection", || {
            rustix::fs::statfs(&self.dir).is_err()
        });
        wait_until("the end of the server", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        });
    }

    /// Kills the server and takes the dead mount down, which reports the kill.
    pub(crate) fn crash(&self) {
        self.kill9();
        fails(&["umount", self.dir()], 6, &["was gone", "stetfs recover"]);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if mount::is_mounted(&self.dir) {
            // Needed after a failure only: the tests take their mounts down.
            let _ = stetfs(&["umount", self.dir()]);
            mount::detach(&self.dir);
        }
    }
}
