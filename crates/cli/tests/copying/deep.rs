//! Tests of trees with thousands of nested directories: the time of a command depends on the files
//! it visits, not on their depth.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::{at, image};
use crate::common::daemon::{BINARY, ok};
use stetfs_testkit::{Image, Scratch, cmd};

/// A chain of so many directories, with a file in each.
pub(super) fn chain(depth: usize) -> Image {
    let image = image();
    let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new()).unwrap();
    let mut dir = volume.within("/").unwrap();
    for _ in 0..depth {
        dir.create_dir("d").unwrap();
        dir.write("f", "x").unwrap();
        dir = dir.within("d").unwrap();
    }
    drop(dir);
    volume.close().unwrap();
    image
}

/// The processor time of a command, which is independent of other load on the machine.
fn time(args: &[&str]) -> Duration {
    let script = "TIMEFORMAT='%U %S'; time \"$@\" > /dev/null";
    let mut bash = Command::new("bash");
    let done = bash
        .args(["-c", script, "bash", BINARY])
        .args(args)
        .output()
        .unwrap();
    let said = cmd::said(&done);
    assert!(done.status.success(), "{said}");
    let last = String::from_utf8_lossy(&done.stderr).into_owned();
    let seconds = last.lines().last().unwrap().split(' ');
    Duration::from_secs_f64(seconds.map(|n| n.parse::<f64>().unwrap()).sum())
}

/// The time of each command at this depth.
fn times(depth: usize) -> Vec<(&'static str, Duration)> {
    let (from, to, again) = (chain(depth), image(), image());
    let scratch = Scratch::new("deep").unwrap();
    let archive = scratch.path().join("archive.tar");
    let archive = archive.to_str().unwrap();
    let out = scratch.path().join("out");
    fs::create_dir(&out).unwrap();
    let all = vec![
        ("ls", time(&["ls", "-R", &at(&from, "/")])),
        (
            "tar -c",
            time(&["tar", "-c", "-f", archive, &at(&from, "/d")]),
        ),
        ("tar -x", time(&["tar", "-x", "-f", archive, &at(&to, "/")])),
        (
            "across",
            time(&["cp", "-a", &at(&from, "/."), &at(&again, "/")]),
        ),
        (
            "out",
            time(&["cp", "-a", &at(&from, "/d"), out.to_str().unwrap()]),
        ),
        (
            "in",
            time(&["cp", "-a", out.to_str().unwrap(), &at(&again, "/in")]),
        ),
    ];
    for image in [&to, &again] {
        image.e2fsck_fn().unwrap();
    }
    let deep = "d/".repeat(depth.min(1500) - 1);
    assert_eq!(ok(&["cat", &at(&again, &format!("/in/{deep}f"))]), "x");
    cmd::run(Command::new("rm").arg("-rf").arg(&out)).unwrap();
    all
}

#[test]
fn time_grows_with_the_depth_and_not_with_its_square() {
    let (short, long) = (times(2000), times(6000));
    for ((what, short), (_, long)) in short.into_iter().zip(long) {
        println!("{what}: {short:?}, {long:?}");
        // The time triples, plus the cost of names with a whole path; quadratic growth would be
        // ninefold.
        let most = short.max(Duration::from_millis(400)) * 6;
        assert!(long < most, "{what}: {short:?} for 2000, {long:?} for 6000");
    }
}
