//! Tests of the attributes that a server inherits from the process that mounts: limits (ulimit,
//! prlimit), signals, the umask and the OOM score.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::daemon::{BINARY, Daemon, answer, json, ok};
use rustix::process::{Pid, Signal, kill_process};
use stetfs_testkit::{Image, Mkfs, mount, wait_until};

/// Mounts as a child of `before`, a command that runs the following one.
fn mount_by(d: &Daemon, before: &[&str], options: &str) -> Output {
    let mut command = Command::new(before[0]);
    command
        .args(&before[1..])
        .args([BINARY, "mount", "-o", options]);
    command.args([d.image(), d.dir()]).output().unwrap()
}

fn mounted_by(d: &Daemon, before: &[&str]) -> String {
    let out = mount_by(d, before, "commit=60");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{before:?}: {said}");
    said
}

fn daemon() -> Daemon {
    Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap())
}

/// The value of a line of `/proc/PID/limits` or `/proc/PID/status`, by the name at its beginning.
fn line(d: &Daemon, file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", d.pid())).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
}

/// Writes and syncs a file; reads it.
fn works(d: &Daemon, name: &str) {
    let path = d.file(name);
    let mut file = File::create(&path).unwrap();
    file.write_all(&[7; 4 << 20]).unwrap();
    file.sync_all().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), [7; 4 << 20]);
}

#[test]
fn soft_limits_are_raised() {
    for (limit, name) in [
        ("--fsize=1048576:", "Max file size"),
        ("--cpu=1:", "Max cpu time"),
        ("--nofile=32:", "Max open files"),
        ("--nproc=8:", "Max processes"),
        ("--as=300000000:", "Max address space"),
        ("--data=200000000:", "Max data size"),
        ("--memlock=0:", "Max locked memory"),
        ("--sigpending=1:", "Max pending signals"),
    ] {
        let d = daemon();
        let said = mounted_by(&d, &["prlimit", limit]);
        assert_eq!(said, "", "{limit}");
        let now = line(&d, "limits", name);
        let mut now = now.split_whitespace();
        assert_eq!(now.next(), now.next(), "{limit}");
        works(&d, "file");
        ok(&["umount", d.dir()]);
        d.image.e2fsck_fn().unwrap();
    }
}

/// A write that would grow the image beyond the limit fails, and nothing else: the server lives,
/// and synced data is there.
#[test]
fn a_hard_limit_of_files_is_said_and_makes_writes_fail() {
    let d = daemon();
    let said = mounted_by(&d, &["prlimit", "--fsize=40000000:40000000"]);
    assert!(said.contains("40000000 bytes (ulimit -f)"), "{said}");
    works(&d, "synced");
    let pid = d.pid();
    let fill = |n: u32| {
        let mut file = File::create(d.file(&format!("more-{n}")))?;
        file.write_all(&[8; 1 << 20])?;
        file.sync_all()
    };
    let failed = (0..64).find_map(|n| fill(n).err());
    assert!(failed.is_some(), "the image grew beyond the limit");
    let room = rustix::fs::statvfs(d.dir()).unwrap();
    assert!(
        room.f_bavail * room.f_frsize > 8 << 20,
        "the volume is full"
    );
    assert_eq!(d.pid(), pid, "the server lives");
    assert_eq!(std::fs::read(d.file("synced")).unwrap(), [7; 4 << 20]);
    // The unmount reports the data that could not be written.
    let _ = answer(&["umount", d.dir()]);
    ok(&["recover", d.image()]);
    d.image.e2fsck_fn().unwrap();
    d.mount("ro");
    assert_eq!(std::fs::read(d.file("synced")).unwrap(), [7; 4 << 20]);
    ok(&["umount", d.dir()]);
}

/// A command that writes a volume survives the limit, too.
#[test]
fn a_hard_limit_of_files_makes_commands_fail() {
    let d = daemon();
    let from = d.image.dir().join("from");
    std::fs::write(&from, vec![9; 40 << 20]).unwrap();
    let to = format!("{}:/to", d.image());
    let mut command = Command::new("prlimit");
    command.args(["--fsize=30000000:30000000", BINARY, "cp"]);
    let out = command
        .args([from.to_str().unwrap(), &to])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(6), "{out:?}");
    ok(&["recover", d.image()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn hard_limits_that_a_server_cannot_live_with_are_said() {
    for (limit, word) in [
        ("--as=400000000:400000000", "ulimit -v"),
        ("--data=400000000:400000000", "ulimit -v"),
        ("--nofile=40:40", "ulimit -n"),
    ] {
        let d = daemon();
        let out = mount_by(&d, &["prlimit", limit], "cache=256M");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{limit}: {said}");
        assert!(said.contains(word), "{limit}: {said}");
        assert!(!mount::is_mounted(&d.dir));
    }
    let d = daemon();
    let said = mounted_by(&d, &["prlimit", "--cpu=1000:1000"]);
    assert!(said.contains("1000 seconds of processor time"), "{said}");
    works(&d, "file");
    ok(&["umount", d.dir()]);
}

#[test]
fn signals_masks_and_places_are_the_servers_own() {
    let d = daemon();
    let before = "umask 0777; echo 700 > /proc/self/oom_score_adj
        exec env --block-signal=TERM --block-signal=INT --ignore-signal=CHLD --ignore-signal=TERM \"$@\"";
    let said = mounted_by(&d, &["sh", "-c", before, "sh"]);
    assert_eq!(said, "");
    assert_eq!(line(&d, "status", "Umask:").trim(), "0077");
    assert_eq!(line(&d, "status", "SigBlk:").trim(), "0000000000000000");
    let adj = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", d.pid())).unwrap();
    assert_eq!(adj.trim(), "0");
    works(&d, "file");
    let mode = d.file("file").metadata().unwrap().mode();
    assert_ne!(mode & 0o600, 0, "{mode:o}");
    d.signal(Signal::TERM);
    wait_until("that SIGTERM unmounts", || !mount::is_mounted(&d.dir));
    wait_until("that the volume is clean", || {
        answer(&["info", d.image()]).1["state"] == "clean"
    });
}

/// nohup(1): the end of a terminal does not unmount.
#[test]
fn a_signal_that_is_ignored_on_purpose_stays_ignored() {
    let d = daemon();
    let mut command = Command::new("env");
    command.args([
        "--ignore-signal=HUP",
        BINARY,
        "mount",
        "-f",
        d.image(),
        d.dir(),
    ]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_until("that it is mounted", || mount::is_mounted(&d.dir));
    wait_until("that it serves", || {
        Path::new(&d.file("lost+found")).exists()
    });
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::HUP).unwrap();
    works(&d, "file");
    assert!(child.try_wait().unwrap().is_none());
    kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    d.image.e2fsck_fn().unwrap();
}

/// syncfs(2) of a mount of a block device or an image reaches the server.
#[test]
fn the_kernel_passes_syncs_of_images_on() {
    let d = Daemon::new("commit=3600,dirty_expire=3600");
    let syncs = || {
        json(&["stat", d.dir()])["requests"]["syncfs"]
            .as_u64()
            .unwrap_or(0)
    };
    assert_eq!(json(&["stat", d.dir()])["connection"]["passes_sync"], true);
    std::fs::write(d.file("one"), "1").unwrap();
    let before = syncs();
    rustix::fs::syncfs(File::open(d.dir()).unwrap()).unwrap();
    assert_eq!(syncs(), before + 1);
    std::fs::write(d.file("two"), "2").unwrap();
    let done = Command::new("sync").args(["-f", d.dir()]).status().unwrap();
    assert!(done.success());
    assert_eq!(syncs(), before + 2);
    std::fs::write(d.file("three"), "3").unwrap();
    let done = json(&["sync", d.dir()]);
    assert_eq!(
        (&done["synced"], &done["volume"]),
        (&true.into(), &d.image().into())
    );
    d.crash();
    ok(&["recover", d.image()]);
    for (name, text) in [("one", "1"), ("two", "2"), ("three", "3")] {
        assert_eq!(d.image.debugfs(&format!("cat /{name}")).unwrap(), text);
    }
}
