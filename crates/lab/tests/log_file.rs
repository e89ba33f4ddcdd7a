//! Tests of `--log-file` and `-o log_file=`, the destination of a mount's messages.
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::daemon::{BINARY, Daemon, fails, ok, stetfs};
use crate::served::Served;
use stetfs_testkit::{Image, Mkfs, Scratch, cmd, mount, wait_until};

/// A volume on a device that fails on command.
struct Failing {
    served: Served,
    scratch: Scratch,
}

impl Failing {
    fn new() -> Failing {
        let served = Served::new(&["--model", "nvme-ssd", "--size", "64M"]);
        let mut mke2fs = Command::new("mke2fs");
        cmd::run(mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(served.disk())).unwrap();
        let scratch = Scratch::new("log").unwrap();
        std::fs::create_dir(scratch.path().join("fs")).unwrap();
        Failing { served, scratch }
    }

    fn dir(&self) -> String {
        self.at("fs")
    }

    fn disk(&self) -> String {
        self.served.disk().to_str().unwrap().to_owned()
    }

    fn at(&self, name: &str) -> String {
        self.scratch.path().join(name).to_str().unwrap().to_owned()
    }

    /// Makes a sync fail, which the server logs.
    fn fail(&self) {
        let mut file = File::create(Path::new(&self.dir()).join("file")).unwrap();
        file.write_all(&[2; 8192]).unwrap();
        self.served.fault(&["error-writes"]);
        assert!(file.sync_all().is_err());
        self.served.fault(&["pass"]);
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ = stetfs(&["umount", &self.dir()]);
        mount::detach(Path::new(&self.dir()));
    }
}

fn said(log: &str) -> String {
    std::fs::read_to_string(log).unwrap()
}

/// The number of lines with errors in `said`.
fn errors(said: &str) -> usize {
    said.lines().filter(|line| line.contains(" ERROR ")).count()
}

#[test]
fn messages_go_behind_what_is_in_the_file() {
    let volume = Failing::new();
    let (dir, disk, log) = (
        volume.dir(),
        volume.disk(),
        volume.at("a log, with a comma"),
    );
    std::fs::write(&log, "before\n").unwrap();
    for sandbox in ["sandbox=on", "sandbox=off"] {
        assert_eq!(
            ok(&["mount", "--log-file", &log, "-o", sandbox, &disk, &dir]),
            ""
        );
        assert_eq!(errors(&said(&log)), 0, "nothing failed yet");
        volume.fail();
        wait_until("a message", || errors(&said(&log)) > 0);
        let text = said(&log);
        assert!(
            text.starts_with("before\n20"),
            "behind it, with a time: {text}"
        );
        assert!(!text.contains('\u{1b}'), "no colours: {text}");
        let _ = stetfs(&["umount", &dir]);
        assert!(!mount::is_mounted(Path::new(&dir)));
        std::fs::write(&log, "before\n").unwrap();
    }
}

/// A device that fails over and over does not fill the disk of the log: the first line is written,
/// and the count of the others after ten seconds and at the end.
#[test]
fn repeated_messages_are_joined() {
    const READS: usize = 300;
    let volume = Failing::new();
    let (dir, disk, log) = (volume.dir(), volume.disk(), volume.at("log"));
    std::fs::write(volume.at("big"), vec![3; READS * 8192]).unwrap();
    ok(&["cp", &volume.at("big"), &format!("{disk}:/big")]);
    let option = format!("direct_io,log_file={log}");
    ok(&["mount", "-o", &option, &disk, &dir]);
    let big = File::open(Path::new(&dir).join("big")).unwrap();
    let read_all = || {
        for at in (0..READS as u64).map(|nr| nr * 8192) {
            assert!(big.read_exact_at(&mut [0; 512], at).is_err());
        }
    };
    // The failures that the log shows, each by a line or in a count.
    let failures = || {
        let text = said(&log);
        let errors = text.lines().filter(|line| line.contains(" ERROR "));
        let each = errors.map(|line| match line.split_once(" repeated: … ") {
            Some((_, count)) => count.split(' ').next().unwrap().parse().unwrap(),
            None => 1,
        });
        each.sum::<usize>()
    };
    volume.served.fault(&["error-reads"]);
    read_all();
    assert!(
        said(&log).contains(" a request failed: "),
        "the first is told at once"
    );
    wait_until("the counts", || failures() >= READS);
    assert!(said(&log).contains(" in 10 s: "), "{}", said(&log));
    read_all();
    volume.served.fault(&["pass"]);
    drop(big);
    ok(&["umount", &dir]);
    let text = said(&log);
    assert!(failures() >= 2 * READS, "{text}");
    assert!(text.lines().count() < 50, "{text}");
    assert!(
        text.lines()
            .all(|line| line.contains(&format!("]: {disk}: "))),
        "{text}"
    );
}

/// After a truncation, as logrotate's `copytruncate` does it, the next message is at the beginning,
/// not after a hole.
#[test]
fn the_file_may_be_made_short() {
    let volume = Failing::new();
    let (dir, disk, log) = (volume.dir(), volume.disk(), volume.at("log"));
    let option = format!("log_file={log}");
    ok(&["mount", "-o", &option, &disk, &dir]);
    let mode = std::fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    volume.fail();
    wait_until("a message", || errors(&said(&log)) > 0);
    let file = File::options().write(true).open(&log).unwrap();
    file.set_len(0).unwrap();
    // A volume that cannot be closed is logged, too.
    let _ = stetfs(&["umount", &dir]);
    wait_until("the next message", || errors(&said(&log)) > 0);
    assert!(said(&log).starts_with("20"), "{:?}", said(&log));
}

/// The command that stays logs to the file as well, and nothing to standard error.
#[test]
fn in_the_foreground_too() {
    let volume = Failing::new();
    let (dir, disk, log) = (volume.dir(), volume.disk(), volume.at("log"));
    let mut server = Command::new(BINARY)
        .args(["mount", "-f", "--log-file", &log, &disk, &dir])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the mount", || mount::is_mounted(Path::new(&dir)));
    volume.fail();
    wait_until("a message", || errors(&said(&log)) > 0);
    let _ = stetfs(&["umount", &dir]);
    let status = server.wait().unwrap();
    let mut stderr = String::new();
    server
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(errors(&stderr), 0, "{stderr}");
    // The final error, after which it ends, is in both places.
    if !status.success() {
        assert!(stderr.starts_with("stetfs: "), "{stderr}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_told_before_the_mount() {
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let before = std::fs::read(d.image.path()).unwrap();
    let none = d.dir.with_file_name("none").join("log");
    // Through a link another user could redirect the log.
    let (link, victim) = (d.dir.with_file_name("link"), d.dir.with_file_name("victim"));
    std::fs::write(&victim, "whole").unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    for path in [none.as_path(), &d.dir, &link] {
        let name = path.to_str().unwrap();
        let words = ["cannot open the log file", name];
        let option = format!("log_file={name}");
        for args in [["--log-file", name], ["-o", &option]] {
            for stay in [&["-f"][..], &[]] {
                let mount = [&["mount"], stay, &args[..], &[d.image(), d.dir()]].concat();
                fails(&mount, 1, &words);
                assert!(!mount::is_mounted(&d.dir));
            }
        }
    }
    assert_eq!(std::fs::read(victim).unwrap(), b"whole");
    assert_eq!(
        std::fs::read(d.image.path()).unwrap(),
        before,
        "it was touched"
    );
}

#[test]
fn a_remount_keeps_the_file() {
    let d = Daemon::unmounted(Image::make(64 << 20, &Mkfs::new()).unwrap());
    let log = d.dir.with_file_name("log");
    let option = format!("log_file={}", log.display());
    d.mount(&option);
    // As mount(8) repeats the options of fstab.
    ok(&[
        "mount",
        "-o",
        &format!("remount,commit=9,{option}"),
        d.image(),
        d.dir(),
    ]);
    let other = format!("remount,{option}2");
    fails(
        &["mount", "-o", &other, d.image(), d.dir()],
        1,
        &["cannot change the log file"],
    );
    let name = log.to_str().unwrap();
    let remount = [
        "mount",
        "--log-file",
        name,
        "-o",
        "remount",
        d.image(),
        d.dir(),
    ];
    fails(&remount, 1, &["cannot change the log file"]);
    ok(&["umount", d.dir()]);
}
