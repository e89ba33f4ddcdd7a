//! POSIX conformance: pjdfstest on a real mount.
//!
//! The configuration is `pjdfstest.toml` beside this file. There are two runs, because pjdfstest's
//! tests of read-only file systems (EROFS) remount the file system, which is busy while a
//! descriptor that another test leaked is open for writing. Every one of the 398 tests must pass in
//! one of the two.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::{kernel, stetfs};
use stetfs_testkit::{Image, Mkfs, Mounter, cmd, tools};

/// Tests of version 0.2.2 on Linux.
const TESTS: usize = 398;

/// Tests that do not pass on StetFS, with the reason. A listed test that passes must be removed.
const EXPECTED_FAILURES: &[(&str, &str)] = &[(
    "link::link_count_max",
    "skipped on any FUSE mount: glibc derives LINK_MAX from the type of the file system and does not know FUSE's",
)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// Reads `name   verdict` lines; indented text after a verdict line is its message.
fn parse(output: &str) -> BTreeMap<String, (Verdict, String)> {
    let mut results: BTreeMap<String, (Verdict, String)> = BTreeMap::new();
    let mut last = None;
    for line in output.lines() {
        let mut words = line.split_whitespace();
        let verdict = match (
            line.starts_with(char::is_whitespace),
            words.next(),
            words.next(),
        ) {
            (false, Some(name), Some(word)) if name.contains("::") => match word {
                "ok" | "success" => Some((name, Verdict::Passed)),
                "FAILED" => Some((name, Verdict::Failed)),
                "skipped" => Some((name, Verdict::Skipped)),
                _ => None,
            },
            _ => None,
        };
        if let Some((name, verdict)) = verdict {
            results.insert(name.to_owned(), (verdict, String::new()));
            last = Some(name.to_owned());
        } else if let Some((_, message)) = last.as_ref().and_then(|name| results.get_mut(name)) {
            message.push_str(line);
            message.push('\n');
        }
    }
    results
}

/// A directory with a `mount` program that remounts through `stetfs`, for the tests that call
/// `mount -o remount,ro DIR`: mount(8) would need the helper `/sbin/mount.fuse.stetfs`, which a
/// test must not install.
fn remount_helper(mounter: &Mounter, dir: &Path) {
    let Mounter::Stetfs { binary, .. } = mounter else {
        return;
    };
    let script = format!(
        "#!/bin/sh\n\
         case \"$2\" in remount,*) exec '{}' mount \"$1\" \"$2\" none \"$3\" ;; esac\n\
         exec {} \"$@\"\n",
        binary.display(),
        tools::system_tool("mount", "mount").unwrap().display()
    );
    let path = dir.join("mount");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

fn run(
    mounter: &Mounter,
    dir: &Path,
    second: &Path,
    remount: bool,
    filter: &[&str],
) -> BTreeMap<String, (Verdict, String)> {
    let program = tools::cargo_tool("pjdfstest", "0.2.2").unwrap();
    let config = include_str!("pjdfstest.toml");
    let config = config.replace(
        "allow_remount = false",
        &format!("allow_remount = {remount}"),
    );
    let scratch = stetfs_testkit::Scratch::new("pjdfstest").unwrap();
    let path = scratch.path().join("pjdfstest.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(&path)
        .arg("-p")
        .arg(dir)
        .arg("-s")
        .arg(second)
        .args(filter);
    remount_helper(mounter, scratch.path());
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", scratch.path().display()));
    let out = cmd::output(command.env("RUST_BACKTRACE", "0")).unwrap();
    let said = cmd::said(&out);
    assert!(
        said.contains("Summary:"),
        "pjdfstest did not finish:\n{said}"
    );
    parse(&said)
}

/// Runs all tests on `mounter` and compares the failures with the expected ones.
fn conforms(mounter: &Mounter, expected: &[(&str, &str)]) {
    let image = Image::make(512 << 20, &Mkfs::new()).unwrap();
    // Another file system, for renames and links between file systems.
    let other_image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    let other = kernel().mount(other_image.path()).unwrap();
    // Other users must have access. The root itself is used: paths of sockets may have 107 bytes,
    // so each byte counts.
    std::fs::set_permissions(
        mounted.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();

    let mut results = run(mounter, mounted.path(), other.path(), false, &[]);
    for (name, result) in run(mounter, mounted.path(), other.path(), true, &["erofs"]) {
        results.insert(name, result);
    }
    other.umount().unwrap();
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();

    let mut wrong = Vec::new();
    for (name, (verdict, message)) in &results {
        let reason = expected.iter().find(|(n, _)| n == name);
        match (verdict, reason) {
            (Verdict::Passed, None) => {}
            (Verdict::Passed, Some((_, reason))) => {
                wrong.push(format!("{name} passes, but was expected to fail: {reason}"))
            }
            (Verdict::Failed | Verdict::Skipped, Some(_)) => {}
            (Verdict::Failed, None) => wrong.push(format!("{name} FAILED\n{message}")),
            (Verdict::Skipped, None) => wrong.push(format!("{name} was skipped\n{message}")),
        }
    }
    for (name, _) in expected.iter().filter(|(n, _)| !results.contains_key(*n)) {
        wrong.push(format!(
            "{name} is expected to fail but there is no such test"
        ));
    }
    let passed = results
        .values()
        .filter(|(v, _)| *v == Verdict::Passed)
        .count();
    println!(
        "pjdfstest on {}: {passed} of {} pass, {} expected failures",
        mounter.name(),
        results.len(),
        expected.len()
    );
    assert!(
        wrong.is_empty(),
        "{} on {}:\n{}",
        wrong.len(),
        mounter.name(),
        wrong.join("\n")
    );
    assert_eq!(results.len(), TESTS);
}

#[test]
fn stetfs_conforms() {
    conforms(&stetfs(), EXPECTED_FAILURES);
}

/// Proves the test itself: the kernel's ext4 passes everything.
#[test]
fn harness_kernel_conforms() {
    conforms(&kernel(), &[]);
}

#[test]
fn results_are_read_right() {
    let results = parse(
        "a::b        ok\nc::d   FAILED\n\tbecause of this\ne::f::g   skipped\n\trequires features: x\n\nSummary: 1 failed, 398 total\n",
    );
    assert_eq!(results["a::b"].0, Verdict::Passed);
    assert_eq!(
        results["c::d"],
        (Verdict::Failed, "\tbecause of this\n".to_owned())
    );
    assert_eq!(results["e::f::g"].0, Verdict::Skipped);
    assert_eq!(results.len(), 3);
}
