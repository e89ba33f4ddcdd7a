//! Tests of limits and projects on a mounted volume. e2fsck checks the usage.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::common::daemon::{Daemon, fails, json, ok};
use crate::common::{stetfs, stetfs_with};
use stetfs_testkit::{Image, Mkfs, cmd};

const USER: &str = "12345";

fn image() -> Image {
    let mkfs = Mkfs::blocks(4096)
        .feature("quota,project")
        .extended("quotatype=usrquota:grpquota:prjquota");
    Image::make(64 << 20, &mkfs).unwrap()
}

fn quota(image: &Image, args: &[&str]) -> serde_json::Value {
    let mut command = Command::new(crate::BINARY);
    command.args(["--json", "quota"]).arg(image.path());
    let out = cmd::run(command.args(args)).unwrap();
    match out.trim() {
        "" => serde_json::Value::Null,
        json => serde_json::from_str(json).unwrap(),
    }
}

/// Usage of an id: bytes and inodes.
fn used(image: &Image, kind: &str, id: u64) -> (u64, u64) {
    let quota = quota(image, &[]);
    let kinds = quota["kinds"].as_array().unwrap();
    let of = kinds.iter().find(|k| k["kind"] == kind).unwrap();
    let entries = of["entries"].as_array().unwrap();
    let entry = entries.iter().find(|e| e["id"] == id);
    entry.map_or((0, 0), |e| {
        (e["space"].as_u64().unwrap(), e["inodes"].as_u64().unwrap())
    })
}

/// Runs a shell script in `dir` as a user without privileges, and returns its output.
fn as_user(dir: &Path, script: &str) -> String {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
    command.args(["sh", "-c", script]).current_dir(dir);
    let out = cmd::output(&mut command).unwrap();
    let text = [out.stdout, out.stderr].concat();
    String::from_utf8(text).unwrap()
}

fn fill(options: &str, script: &str) {
    let image = image();
    let limits = ["--space", "1M", "--inodes", "3"];
    quota(&image, &[&["--set", "user:12345"][..], &limits].concat());
    let mounted = stetfs_with(options).mount(image.path()).unwrap();
    let dir = mounted.path().join("mine");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(12345), Some(12345)).unwrap();
    let said = as_user(&dir, script);
    assert!(said.contains("quota exceeded"), "{options}: {said}");
    let said = as_user(&dir, "echo > 2");
    assert!(!said.contains("quota"), "{options}: {said}");
    let said = as_user(&dir, "touch 3");
    assert!(said.contains("quota exceeded"), "{options}: {said}");
    // Root may exceed limits.
    std::fs::write(dir.join("large"), vec![1; 3 << 20]).unwrap();
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

#[test]
fn limits_hold_for_users() {
    // A directory, a file that fills the limit except for one block, and a block for another file.
    let write = "dd if=/dev/zero of=1 bs=64k count=40; truncate -s 1M 1; truncate -s 100k 1";
    fill("", write);
    // The kernel's cache does not say which process wrote: the file's owner is charged, at fsync(2)
    // or close(2).
    fill(
        "writeback_cache",
        "dd if=/dev/zero of=1 bs=64k count=40 conv=fsync; truncate -s 100k 1",
    );
}

#[test]
fn projects_are_set_with_chattr() {
    let image = image();
    let mounted = stetfs().mount(image.path()).unwrap();
    let root = mounted.path();
    let run = |command: &str| cmd::run(Command::new("sh").args(["-c", command]).current_dir(root));
    run("mkdir a b && chattr -p 77 +P a && dd if=/dev/zero of=a/f bs=4k count=5 && mkdir a/sub && echo > b/g").unwrap();
    let listed = run("lsattr -p a").unwrap();
    assert!(
        listed.lines().all(|l| l.trim_start().starts_with("77 ")),
        "{listed}"
    );
    let link = run("ln b/g a/g").unwrap_err().to_string();
    assert!(link.contains("cross-device"), "{link}");
    // mv copies, as it does between file systems.
    run("mv b/g a/g && chattr -p 78 a/f").unwrap();
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
    assert_eq!(used(&image, "project", 77), (4096 * 3, 3));
    assert_eq!(used(&image, "project", 78), (4096 * 5, 1));
    let shown = cmd::run(Command::new(crate::BINARY).arg("quota").arg(image.path()));
    assert!(shown.unwrap().contains("project"));
}

#[test]
fn volumes_without_quota_say_so() {
    let image = Image::make(16 << 20, &Mkfs::blocks(1024)).unwrap();
    assert_eq!(quota(&image, &[])["kinds"], serde_json::json!([]));
    let mut command = Command::new(crate::BINARY);
    command.arg("quota").arg(image.path());
    let said = cmd::run(command.args(["--set", "user:1", "--space", "1G"])).unwrap_err();
    assert!(said.to_string().contains("tune2fs -Q"), "{said}");
    image.e2fsck_fn().unwrap();
}

/// Limits can be shown and set while the volume is mounted, with immediate effect, and stay.
#[test]
fn a_mounted_volume_shows_and_takes_limits() {
    let d = Daemon::unmounted(image());
    for (sandbox, hard) in [("sandbox=on", 1 << 20), ("sandbox=off", 2 << 20)] {
        d.mount(sandbox);
        let dir = d.file("mine");
        std::fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(12345), Some(12345)).unwrap();
        let size = hard.to_string();
        ok(&["quota", d.dir(), "--set", "user:12345", "--space", &size]);
        let said = as_user(&dir, "dd if=/dev/zero of=1 bs=64k count=100 conv=fsync");
        assert!(said.contains("quota exceeded"), "{said}");
        let shown = json(&["quota", d.dir()]);
        let users = shown["kinds"].as_array().unwrap();
        let users = users.iter().find(|k| k["kind"] == "user").unwrap();
        let of = |id: u64| {
            let entries = users["entries"].as_array().unwrap().iter();
            entries.clone().find(|e| e["id"] == id).unwrap()
        };
        assert_eq!(of(12345)["space_hard"], hard);
        let used = of(12345)["space"].as_u64().unwrap();
        assert!(used > hard / 2 && used <= hard, "{used}");
        assert_eq!(of(0)["name"], "root");
        assert!(of(12345).get("name").is_none());
        let human = ok(&["quota", d.dir()]);
        assert!(
            human.lines().any(|l| l.trim().starts_with("root ")),
            "{human}"
        );
        // A limit that was reported as set is durable.
        let more = 3 * hard;
        let size = more.to_string();
        ok(&["quota", d.dir(), "--set", "user:12345", "--space", &size]);
        // Asked again for the root's attributes, the kernel notices that the server ended.
        File::create(d.file("last")).unwrap();
        d.crash();
        ok(&["recover", d.image()]);
        let entry = quota(&d.image, &[]).to_string();
        let wanted = format!("\"space_hard\":{more}");
        assert!(entry.contains(&wanted), "{entry}");
    }
    ok(&["quota", d.image(), "--set", "user:root", "--inodes", "900"]);
    fails(
        &[
            "quota",
            d.image(),
            "--set",
            "user:nobody-here",
            "--inodes",
            "9",
        ],
        1,
        &["no user \"nobody-here\""],
    );
    d.mount("ro");
    assert!(
        json(&["quota", d.dir()])
            .to_string()
            .contains("\"inodes_hard\":900")
    );
    fails(
        &["quota", d.dir(), "--set", "user:1", "--space", "1M"],
        1,
        &["Read-only"],
    );
    fails(
        &["quota", "-o", "partition=1", d.dir()],
        1,
        &["is not an image"],
    );
    ok(&["umount", d.dir()]);
    fails(&["quota", d.dir()], 3, &[]);
    d.image.e2fsck_fn().unwrap();
}
