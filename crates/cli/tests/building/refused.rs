//! Builds that fail, are refused or are interrupted: they leave nothing, and old images stay.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Bench;
use crate::common::daemon::{BINARY, fails};
use crate::files::text;
use stetfs_testkit::Mounter;

fn bench() -> Bench {
    let bench = Bench::new("refused");
    bench.shell("mkdir tree; head -c 3000000 /dev/urandom > tree/file; echo old > old.img");
    bench
}

#[test]
fn a_build_that_fails_leaves_nothing_and_says_what_to_do() {
    let bench = bench();
    bench.shell(
        "echo text > text; tar -cf tree.tar tree; gzip tree.tar; mkfifo pipe
        head -c 1000000 tree.tar.gz > cut.tar.gz",
    );
    let before = bench.names();
    let path = |name: &str| text(&bench.path(name)).to_owned();
    let new = path("new.img");
    let old = path("old.img");
    let build = |image: &str, rest: &[&str], code, words: &[&str]| {
        fails(&[&["image", "build", image], rest].concat(), code, words);
    };
    let tree = path("tree");
    build(
        &new,
        &["--from", &tree, "--size", "2M"],
        6,
        &["--size auto"],
    );
    bench.shell("mkdir tree/few; touch tree/few/{1..99}");
    let few = ["--from", &tree, "--size", "16M", "-N", "32"];
    build(&new, &few, 6, &["too few inodes"]);
    build(
        &new,
        &["--from", &path("none")],
        3,
        &["cannot open the source"],
    );
    build(
        &new,
        &["--from", &path("text")],
        1,
        &["must be a tar archive"],
    );
    build(&new, &["--from", &path("cut.tar.gz")], 6, &["gzip failed"]);
    build(
        &new,
        &["--from", &path("pipe")],
        1,
        &["save the output of a program"],
    );
    build(&new, &[], 1, &["--from"]);
    build(
        &path("tree/in.img"),
        &["--from", &tree],
        1,
        &["part of its source", "directory"],
    );
    build(
        &path("no/new.img"),
        &["--from", &tree],
        3,
        &["cannot find the directory"],
    );
    build(&old, &["--from", &tree], 1, &["exists", "--force"]);
    build(
        &old,
        &["--from", &path("text"), "--force"],
        1,
        &["must be a tar archive"],
    );
    assert_eq!(fs::read(bench.path("old.img")).unwrap(), b"old\n");
    assert_eq!(bench.names(), before);
}

#[test]
fn an_image_in_use_is_not_replaced() {
    let bench = bench();
    bench.build(&["--from", "@tree"]);
    let image = bench.path("disk.img");
    let mounted = Mounter::ext4("").mount(&image).unwrap();
    let tree = bench.path("tree");
    let args = [
        "image",
        "build",
        text(&image),
        "--force",
        "--from",
        text(&tree),
    ];
    fails(&args, 4, &["unmount it first"]);
    mounted.umount().unwrap();
    bench.seen();
}

#[test]
fn an_interrupted_build_leaves_nothing() {
    let bench = bench();
    bench.shell(
        "for n in $(seq 30); do mkdir tree/$n; for m in $(seq 300); do
        echo $m > tree/$n/$m; done; done",
    );
    let before = bench.names();
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = Command::new(BINARY)
            .args(["image", "build"])
            .args([
                bench.path("old.img"),
                "--force".into(),
                "--from".into(),
                bench.path("tree"),
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while bench.names() == before {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal:?}");
        assert_eq!(bench.names(), before);
        assert_eq!(fs::read(bench.path("old.img")).unwrap(), b"old\n");
    }
}
