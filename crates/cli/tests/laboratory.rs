//! Tests of the laboratory's commands in the server's program: it hands them over, and links
//! nothing of the laboratory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use stetfs_testkit::{Scratch, cmd};

use crate::common::daemon::{BINARY, ok};

/// Crates that the server's program must not link.
const APART: [&str; 6] = [
    "rusqlite",
    "plotters",
    "stetfs-testkit",
    "stetfs-crash",
    "stetfs-bench",
    "stetfs-flashlab",
];

/// The server's program, alone in a directory.
struct Installed {
    scratch: Scratch,
}

impl Installed {
    fn new() -> Installed {
        let scratch = Scratch::new("installed").unwrap();
        std::fs::copy(BINARY, scratch.path().join("stetfs")).unwrap();
        Installed { scratch }
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.scratch.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Makes a fake laboratory in `dir` that prints its name, then its own name and arguments, and
    /// exits with code 7.
    fn laboratory(dir: &Path, name: &str) {
        let path = dir.join("stetfs-lab");
        let script = format!("#!/bin/sh\nprintf '%s|' {name} \"$@\"\nexit 7\n");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, args: &[&str], path: &str) -> Output {
        let mut stetfs = Command::new(self.scratch.path().join("stetfs"));
        stetfs.args(args).env("PATH", path);
        stetfs.current_dir(self.dir("here")).output().unwrap()
    }

    #[track_caller]
    fn hands_over(&self, args: &[&str], path: &str, to: &str) {
        let done = self.run(args, path);
        let said = String::from_utf8(done.stdout).unwrap();
        let expected = [&[to], args].concat().join("|") + "|";
        assert_eq!((said, done.status.code()), (expected, Some(7)), "{args:?}");
    }
}

#[test]
fn its_commands_are_handed_over_as_they_are() {
    let stetfs = Installed::new();
    let elsewhere = stetfs.dir("elsewhere");
    Installed::laboratory(&elsewhere, "elsewhere");
    let path = format!("/nonexistent:{}", elsewhere.display());
    let all: [&[&str]; 9] = [
        &["crash", "run", "--json", "out.json", "--seed", "7"],
        &["--json", "bench", "compare", "a=b", "-w", "names-1"],
        &["flash"],
        &["device", "fault", "/dev", "power-cut=lose", "--json"],
        &["certify", "--help"],
        &["help", "crash", "run"],
        &["crash", "--", "-x", ""],
        &["help", "--json", "certify"],
        &["crash", "-h"],
    ];
    for args in all {
        stetfs.hands_over(args, &path, "elsewhere");
    }
    // The program beside this one comes first; the current directory does not count.
    Installed::laboratory(&stetfs.dir("here"), "here");
    stetfs.hands_over(&["crash"], &format!(":.:{path}"), "elsewhere");
    Installed::laboratory(stetfs.scratch.path(), "beside");
    stetfs.hands_over(&["crash"], &path, "beside");
    // Other commands belong to the program itself, also with arguments of such names.
    for args in [&["info", "crash"][..], &["mount", "crash", "bench"]] {
        let done = stetfs.run(args, &path);
        assert_eq!(done.status.code(), Some(3), "{}", cmd::said(&done));
    }
}

#[test]
fn where_it_is_not_installed_it_says_how_to_get_it() {
    let stetfs = Installed::new();
    // A file that is not executable, or a directory, is not a program.
    let elsewhere = stetfs.dir("elsewhere");
    std::fs::write(elsewhere.join("stetfs-lab"), "").unwrap();
    std::fs::create_dir(stetfs.scratch.path().join("stetfs-lab")).unwrap();
    let path = elsewhere.to_str().unwrap();
    for args in [
        &["crash", "run"][..],
        &["help", "bench"],
        &["certify", "-h"],
    ] {
        let done = stetfs.run(args, path);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{said}");
        for word in ["laboratory", "package stetfs-lab", "cargo build --release"] {
            assert!(said.contains(word), "{word:?} is not in {said}");
        }
    }
    for args in [["--json", "flash", "run"], ["flash", "run", "--json"]] {
        let done = stetfs.run(&args, path);
        let said: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(said["error"]["code"], 2, "{said}");
        let hint = said["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("stetfs-lab"), "{said}");
    }
}

#[test]
fn help_names_its_commands_and_where_they_are() {
    let help = ok(&["--help"]);
    for name in ["bench", "certify", "crash", "device", "flash"] {
        assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
    }
    assert!(help.contains("stetfs-lab"), "{help}");
}

/// The crates that the package links, and their features, by `cargo tree`.
fn tree(package: &str) -> String {
    let mut tree = Command::new(env!("CARGO"));
    tree.args([
        "tree",
        "-q",
        "--locked",
        "--offline",
        "-e",
        "normal,features",
    ]);
    tree.args(["--prefix", "none", "--no-dedupe", "-p", package]);
    cmd::run(&mut tree).unwrap()
}

#[test]
fn the_server_links_nothing_of_it() {
    let has = |tree: &str, name: &str| {
        let mut names = tree.lines().filter_map(|line| line.split(' ').next());
        names.any(|linked| linked == name)
    };
    let (server, laboratory) = (tree("stetfs-cli"), tree("stetfs-lab"));
    assert!(has(&server, "stetfs-ext4"), "{server}");
    for name in APART {
        assert!(!has(&server, name), "stetfs-cli links {name}");
        assert!(has(&laboratory, name), "stetfs-lab links no {name}");
    }
    // Deliberate faults are compiled only where they can be planted.
    let has_faults = |tree: &str| tree.contains("stetfs-journal feature \"faults\"");
    assert!(!has_faults(&server) && has_faults(&laboratory), "{server}");
}
