//! `tar`: compression, listing, chosen and excluded names, beside GNU tar.

use std::path::Path;
use std::process::Command;

use super::Pair;
use crate::common::daemon::{fails, json, ok, stetfs};
use crate::files::{at, image, kernel, text};
use stetfs_testkit::{CaptureOptions, Scratch, Tree, cmd, tree};

// The format of GNU tar has whole seconds.
const FILES: &str = "mkdir -p d/sub e; echo one > d/a; echo two > d/sub/b.o; echo three > d/b.o
    echo f > f; ln f hard; ln -s d link; chown 5:6 d/a; chmod 4711 d/a
    find . -exec touch -h -d @1000000000 {} +";

fn capture(root: &Path) -> Tree {
    let options = CaptureOptions {
        exclude: vec!["lost+found".into()],
        ..CaptureOptions::default()
    };
    let mut tree = Tree::capture(root, &options).unwrap();
    // The directory lost+found counts as a link of the root.
    if let Some(root) = tree.entries.get_mut("") {
        root.nlink = 2;
    }
    tree
}

#[track_caller]
fn same(what: &str, a: &Tree, b: &Tree) {
    let differences = tree::diff(a, b);
    assert!(differences.is_empty(), "{what}: {differences:#?}");
}

#[test]
fn packed_archives_are_those_of_gnu_tar() {
    let pair = Pair::new(FILES);
    let scratch = Scratch::new("packed").unwrap();
    for (n, (flags, program)) in [
        ("-czf", "gzip"),
        ("-cjf", "bzip2"),
        ("-cJf", "xz"),
        ("--zstd -cf", "zstd"),
    ]
    .into_iter()
    .enumerate()
    {
        let archive = scratch.path().join(format!("a{n}"));
        let mut args = vec!["tar"];
        args.extend(flags.split(' '));
        let place = at(&pair.ours, "/");
        args.extend([text(&archive), &place]);
        ok(&args);
        let whole = format!("{program} -t < {}", text(&archive));
        cmd::run(Command::new("bash").args(["-c", &whole])).unwrap();
        // GNU tar unpacks it.
        let out = scratch.path().join(format!("out{n}"));
        std::fs::create_dir(&out).unwrap();
        let mut tar = Command::new("tar");
        cmd::run(
            tar.args(["--numeric-owner", "-xpf"])
                .arg(&archive)
                .arg("-C")
                .arg(&out),
        )
        .unwrap();
        assert!(!out.join("lost+found").exists());
        same(program, &capture(pair.root()), &capture(&out));
        // An archive that GNU tar has packed is recognized, also on standard input.
        let theirs = scratch.path().join(format!("t{n}"));
        let mut tar = Command::new("tar");
        tar.args(flags.split(' '))
            .arg(&theirs)
            .arg("-C")
            .arg(pair.root());
        cmd::run(tar.args(["--exclude=./lost+found", "."])).unwrap();
        let unpacked = image();
        let line = format!(
            "cat {} | stetfs tar -x {}",
            text(&theirs),
            at(&unpacked, "/")
        );
        let line = line.replace("stetfs ", &format!("{} ", crate::common::daemon::BINARY));
        cmd::run(Command::new("bash").args(["-c", &line])).unwrap();
        unpacked.e2fsck_fn().unwrap();
        let mounted = kernel(&unpacked);
        let seen = capture(mounted.path());
        mounted.umount().unwrap();
        same(program, &capture(pair.root()), &seen);
    }
}

#[test]
fn archives_that_are_cut_off_are_told() {
    let pair = Pair::new(FILES);
    let scratch = Scratch::new("cut").unwrap();
    let archive = scratch.path().join("a.tgz");
    ok(&["tar", "-czf", text(&archive), &at(&pair.ours, "/")]);
    let bytes = std::fs::read(&archive).unwrap();
    let cut = scratch.path().join("cut");
    // Half of it; all but the check sum, which only the program reads; something else.
    for (content, code) in [
        (&bytes[..bytes.len() / 2], 6),
        (&bytes[..bytes.len() - 4], 6),
    ] {
        std::fs::write(&cut, content).unwrap();
        let target = image();
        fails(
            &["tar", "-xf", text(&cut), &at(&target, "/")],
            code,
            &["gzip failed"],
        );
        fails(&["tar", "-tf", text(&cut)], code, &["gzip failed"]);
        target.e2fsck_fn().unwrap();
    }
    std::fs::write(&cut, "no archive").unwrap();
    fails(
        &["tar", "-xzf", text(&cut), &at(&pair.ours, "/")],
        6,
        &["gzip failed"],
    );
    let mut without = Command::new(crate::common::daemon::BINARY);
    without
        .args(["tar", "-tf", text(&archive)])
        .env("PATH", "/nonexistent");
    let out = without.output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(
        cmd::said(&out).contains("install gzip"),
        "{}",
        cmd::said(&out)
    );
}

#[test]
fn names_are_chosen_and_listed_as_by_gnu_tar() {
    let pair = Pair::new(FILES);
    let scratch = Scratch::new("chosen").unwrap();
    let place = |name: &str| scratch.path().join(name);
    let names = |archive: &Path| {
        let mut tar = Command::new("tar");
        let all = cmd::run(tar.arg("-tf").arg(archive)).unwrap();
        let mut all: Vec<String> = all.lines().map(Into::into).collect();
        all.sort();
        all
    };
    let root = pair.root().to_str().unwrap();
    for (n, (options, members)) in [
        ("", "."),
        ("", "d f"),
        ("", "./d/sub link"),
        ("--exclude=*.o", "."),
        ("--exclude=sub", "d e"),
        ("--exclude=d/[a-b]*", "d"),
    ]
    .into_iter()
    .enumerate()
    {
        let (theirs, ours) = (place(&format!("t{n}")), place(&format!("o{n}")));
        let words: Vec<&str> = options.split(' ').filter(|o| !o.is_empty()).collect();
        let members: Vec<&str> = members.split(' ').collect();
        let mut tar = Command::new("tar");
        tar.args(["--exclude=./lost+found", "-cf"])
            .arg(&theirs)
            .args(["-C", root]);
        cmd::run(tar.args(&words).args(&members)).unwrap();
        let at = at(&pair.ours, "/");
        let args = [
            &["tar", "-cf", text(&ours), "-C", &at][..],
            &words,
            &members,
        ]
        .concat();
        ok(&args);
        let plain = |names: Vec<String>| -> Vec<String> {
            names
                .into_iter()
                .map(|name| name.trim_start_matches("./").to_owned())
                .collect()
        };
        assert_eq!(
            plain(names(&ours)),
            plain(names(&theirs)),
            "{options} {members:?}"
        );
        // The list is that of GNU tar.
        let listed = ok(&["tar", "-tf", text(&ours)]);
        let theirs = cmd::run(Command::new("tar").arg("-tf").arg(&ours)).unwrap();
        assert_eq!(listed, theirs);
        let mut tar = Command::new("tar");
        tar.env("TZ", "UTC")
            .env("LC_ALL", "C")
            .args(["--numeric-owner", "-tvf"]);
        let theirs = cmd::run(tar.arg(&ours)).unwrap();
        let fields = |text: &str| -> Vec<Vec<String>> {
            let lines = text.lines();
            lines
                .map(|line| line.split_whitespace().map(Into::into).collect())
                .collect()
        };
        assert_eq!(fields(&ok(&["tar", "-tvf", text(&ours)])), fields(&theirs));
    }
    let archive = place("o0");
    let listed = json(&["tar", "-tf", text(&archive), "./d/a"]);
    assert_eq!(listed["entries"][0]["mode"], "4711");
    let one = stetfs(&["tar", "-tf", text(&archive), "d/sub", "nope"]);
    assert_eq!(one.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&one.stdout), "d/sub/\nd/sub/b.o\n");
    // Some of the names are unpacked, and told.
    let target = image();
    let told = ok(&[
        "tar",
        "-xvf",
        text(&archive),
        &at(&target, "/"),
        "d",
        "--exclude",
        "*.o",
    ]);
    assert_eq!(told, "d/\nd/a\nd/sub/\n");
    let into = at(&target, "/new");
    let partly = stetfs(&["tar", "-xf", text(&archive), "-C", &into, "./e", "nope"]);
    assert_eq!(partly.status.code(), Some(3), "{}", cmd::said(&partly));
    assert_eq!(ok(&["ls", &into]), "e\n");
    target.e2fsck_fn().unwrap();
}

#[test]
fn lost_found_is_packed_if_it_is_asked_for() {
    let pair = Pair::new("mkdir -p d/lost+found; echo x > d/lost+found/x");
    let scratch = Scratch::new("lost").unwrap();
    let archive = scratch.path().join("a");
    let listed = |args: &[&str]| {
        ok(&[&["tar", "-cf", text(&archive)][..], args].concat());
        ok(&["tar", "-tf", text(&archive)])
    };
    let root = at(&pair.ours, "/");
    assert_eq!(listed(&[&root]), "./\nd/\nd/lost+found/\nd/lost+found/x\n");
    assert!(listed(&["--lost-found", &root]).contains("\nlost+found/\n"));
    assert_eq!(listed(&["-C", &root, "lost+found"]), "lost+found/\n");
    fails(
        &["tar", "-cf", text(&archive), "-C", &root, "../x"],
        1,
        &["no name in the directory"],
    );
    fails(
        &["tar", "-cf", text(&archive), "-C", &root],
        1,
        &["no name to pack"],
    );
    fails(&["tar", "-cf", text(&archive), &root, "d"], 1, &["-C"]);
    fails(&["tar", "-f", text(&archive), &root], 1, &["--create"]);
}
