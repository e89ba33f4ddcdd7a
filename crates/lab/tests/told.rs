//! Tests of messages to users of the laboratory: mistakes have the exit codes of
//! docs/operations.md.

use std::process::Command;

use stetfs_testkit::{Image, Mkfs};

use crate::common::daemon::{BINARY, fails, ok};

#[test]
fn mistakes_have_the_codes_of_the_table() {
    let image = Image::make(32 << 20, &Mkfs::new()).unwrap();
    let volume = image.path().to_str().unwrap();
    fails(&["bench", "compare"], 1, &["NAME=DIR"]);
    let nowhere = ["bench", "compare", "a=/nonexistent", "-w", "names-1"];
    fails(
        &nowhere,
        3,
        &["preparing a", "/nonexistent", "No such file"],
    );
    let no_dir = format!("a={volume}");
    fails(&["bench", "compare", &no_dir], 1, &["preparing a", volume]);
    let cut = |volume| ["crash", "cut", volume, "--run", "true", "--check", "true"];
    fails(&cut("/nonexistent.img"), 3, &["cannot open", "stetfs mkfs"]);
    fails(&["flash", "run", "/nonexistent"], 3, &["No such file"]);
}

/// Servers of network block devices are refused, and so no help mentions them.
#[test]
fn servers_are_named_nowhere() {
    let server = "nbd+unix:///?socket=/nonexistent";
    fails(&["certify", server], 1, &["where the server runs"]);
    assert!(!ok(&["certify", "--help"]).contains("nbd://"));
    let cut = ["crash", "cut", server, "--run", "true", "--check", "true"];
    fails(&cut, 1, &["name a file"]);
}

/// A missing requirement of the system is reported before anything is prepared.
#[test]
fn a_cut_without_fuse_lacks_something() {
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    // A mount namespace without the device file; it ends with the shell.
    let script = r#"
        mount -t tmpfs -o mode=755 none /dev || exit 99
        exec "$0" "$@"
    "#;
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, BINARY])
        .args(["crash", "cut", image.path().to_str().unwrap()])
        .args([
            "--prepare",
            "echo prepared",
            "--run",
            "true",
            "--check",
            "true",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot open /dev/fuse"), "{said}");
    assert!(said.contains("modprobe fuse"), "{said}");
}
