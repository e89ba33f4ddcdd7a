//! Tests of `stetfs mkfs`: what it makes, says and refuses.
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, Scratch};

use crate::common::daemon::BINARY;

fn mkfs(args: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.env_remove("SOURCE_DATE_EPOCH");
    command.arg("mkfs").args(args).output().unwrap()
}

/// The answer as JSON, and the exit code.
fn json(args: &[&str]) -> (Value, i32) {
    let out = mkfs(&[&["--json"], args].concat());
    let value = serde_json::from_slice(&out.stdout);
    let said = String::from_utf8_lossy(&out.stderr);
    (
        value.unwrap_or_else(|e| panic!("{args:?}: {e}: {said}")),
        out.status.code().unwrap(),
    )
}

/// The message and advice of a refusal.
fn refused(args: &[&str], code: i32) -> String {
    let (value, got) = json(args);
    assert_eq!(got, code, "{args:?}: {value}");
    let text = |key: &str| value["error"][key].as_str().unwrap().to_owned();
    format!("{}; {}", text("message"), text("hint"))
}

#[test]
fn a_volume_is_made_as_it_was_asked_for() {
    let scratch = Scratch::new("mkfs").unwrap();
    let path = scratch.path().join("disk.img");
    let image = path.to_str().unwrap().to_owned();
    let args = [
        "--size",
        "300M",
        "--like",
        "rootfs",
        "-b",
        "2K",
        "-O",
        "bigalloc,^resize_inode",
        "--cluster-size",
        "32K",
        "-O",
        "quota",
        "-L",
        "made",
        "-m",
        "0.5",
        "-N",
        "9000",
        "-I",
        "512",
        "-J",
        "8M",
        "--root-owner",
        "1000:100",
        "--root-mode",
        "1770",
        "--epoch",
        "1000000",
        "--seed",
        "7",
        "-U",
        "01234567-89ab-cdef-0123-456789abcdef",
        &image,
    ];
    let (made, code) = json(&args);
    assert_eq!(code, 0, "{made}");
    assert_eq!(made["label"], "made");
    assert_eq!(made["uuid"], "01234567-89ab-cdef-0123-456789abcdef");
    assert_eq!(made["block_size"], 2048);
    assert_eq!(made["cluster_size"], 32768);
    assert_eq!(made["inode_size"], 512);
    assert_eq!(made["journal_bytes"], 8 << 20);
    assert_eq!(made["written"], true);
    let first = fs::read(&path).unwrap();
    let image = Image::at(path.clone(), scratch);
    image.e2fsck_fn().unwrap();
    let root = image.debugfs("stat <2>").unwrap();
    assert!(
        root.contains("Mode:  01770") && root.contains("User:  1000"),
        "{root}"
    );
    // The same again is the same, byte for byte.
    let again = image.dir().join("again.img");
    let mut args = args;
    *args.last_mut().unwrap() = again.to_str().unwrap();
    assert_eq!(json(&args).1, 0);
    assert!(fs::read(&again).unwrap() == first);
}

#[test]
fn people_are_told_what_was_made() {
    let scratch = Scratch::new("mkfs").unwrap();
    let path = scratch.path().join("disk.img");
    let out = mkfs(&["--size", "1M", path.to_str().unwrap()]);
    assert!(out.status.success());
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(
        said.contains("made an ext4 volume of 1024 blocks of 1024 bytes"),
        "{said}"
    );
    assert!(
        said.contains("without has_journal: the volume is too small"),
        "{said}"
    );
    let dry = scratch.path().join("dry.img");
    let out = mkfs(&["-n", "--size", "1M", dry.to_str().unwrap()]);
    assert!(
        String::from_utf8(out.stdout)
            .unwrap()
            .contains("would make")
    );
    assert!(!dry.exists());
}

#[test]
fn what_would_be_lost_is_refused() {
    let image = Image::make(32 << 20, &Mkfs::new()).unwrap();
    let path = image.path().to_str().unwrap();
    let before = fs::read(path).unwrap();
    let said = refused(&[path], 1);
    assert!(
        said.contains("an ext4 volume") && said.contains("--force"),
        "{said}"
    );
    assert!(fs::read(path).unwrap() == before);
    assert_eq!(json(&["--force", path]).1, 0);
    image.e2fsck_fn().unwrap();
}

#[test]
fn mistakes_are_told_with_the_way_out() {
    let scratch = Scratch::new("mkfs").unwrap();
    let path = scratch.path().join("disk.img");
    let path = path.to_str().unwrap();
    for (args, hint) in [
        (
            &["--size", "64M", "-O", "casefold"][..],
            "StetFS does not write such volumes",
        ),
        (
            &["--size", "64M", "-O", "meta_bg,resize_inode"],
            "exclude each other",
        ),
        (
            &["--size", "64M", "--like", "ext5"],
            "mke2fs, small, android, rootfs",
        ),
        (&["--size", "64M", "-m", "60"], "from 0 to 50"),
        (&["--size", "64M", "-b", "3K"], "give 1K, 2K"),
        (&["--size", "1K"], "more room"),
        (&[], "--size"),
    ] {
        let said = refused(&[args, &[path]].concat(), 1);
        assert!(said.contains(hint), "{args:?}: {said}");
        assert!(!scratch.path().join("disk.img").exists());
    }
    let no_dir = scratch.path().join("none/disk.img");
    refused(&["--size", "64M", no_dir.to_str().unwrap()], 3);
}
