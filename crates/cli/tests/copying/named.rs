//! Tests of named sources and of existing directories, compared with cp(1).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{at, image, kernel, text};
use crate::common::daemon::{BINARY, fails, ok};
use stetfs_testkit::{Scratch, cmd};

/// Files whose size is meaningless, links and pipes are read if they are named.
#[test]
fn what_is_named_is_read_as_cp_reads_it() {
    let image = image();
    let scratch = Scratch::new("named").unwrap();
    let place = |name: &str| scratch.path().join(name);
    fs::create_dir(place("dir")).unwrap();
    fs::write(place("dir/file"), "file").unwrap();
    symlink("dir/file", place("link")).unwrap();
    symlink("dir", place("link-to-dir")).unwrap();
    symlink("nowhere", place("dangling")).unwrap();
    for (from, to) in [
        ("/proc/cpuinfo", "/cpuinfo"),
        ("/proc/version", "/version"),
        ("/sys/kernel/notes", "/notes"),
        (text(&place("link")), "/link"),
    ] {
        ok(&["cp", from, &at(&image, to)]);
        let copied = Command::new(BINARY)
            .args(["cat", &at(&image, to)])
            .output()
            .unwrap();
        // The clock rates of processors change.
        match from {
            "/proc/cpuinfo" => assert!(copied.stdout.starts_with(b"processor")),
            _ => assert_eq!(copied.stdout, fs::read(from).unwrap(), "{from}"),
        }
    }
    ok(&["cp", "-a", "/proc/version", &at(&image, "/again")]);
    assert_eq!(
        ok(&["cat", &at(&image, "/again")]),
        ok(&["cat", &at(&image, "/version")])
    );
    // As with cp(1), links stay links with -r and -a.
    for (how, name) in [("-r", "/recursive"), ("-a", "/archive")] {
        ok(&["cp", how, text(&place("link")), &at(&image, name)]);
        let entry = crate::common::daemon::json(&["ls", &at(&image, name)]);
        assert_eq!(entry["entries"][0]["target"], "dir/file", "{how}");
    }
    ok(&["cp", text(&place("link-to-dir")), &at(&image, "/from-link")]);
    assert_eq!(ok(&["ls", &at(&image, "/from-link")]), "file\n");
    fails(
        &["cp", text(&place("dangling")), &at(&image, "/x")],
        3,
        &["dangling"],
    );

    // A pipe, by name and by the shell.
    let mut child = Command::new(BINARY)
        .args(["cp", "/dev/stdin", &at(&image, "/stdin")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let big = vec![b'x'; 3 << 20];
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &big).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(ok(&["cat", &at(&image, "/stdin")]).into_bytes(), big);
    let script = format!("{BINARY} cp <(echo shell) {}", at(&image, "/shell"));
    cmd::run(Command::new("bash").args(["-c", &script])).unwrap();
    assert_eq!(ok(&["cat", &at(&image, "/shell")]), "shell\n");
    ok(&["cp", "/dev/null", &at(&image, "/null")]);
    assert_eq!(ok(&["cat", &at(&image, "/null")]), "");

    // Out of a volume, links are followed inside the volume.
    let mounted = kernel(&image);
    symlink("/shell", mounted.path().join("absolute")).unwrap();
    symlink("from-link", mounted.path().join("dir-link")).unwrap();
    mounted.umount().unwrap();
    ok(&[
        "cp",
        &at(&image, "/absolute"),
        &at(&image, "/dir-link"),
        text(&place("dir")),
    ]);
    assert_eq!(fs::read(place("dir/absolute")).unwrap(), b"shell\n");
    assert_eq!(fs::read(place("dir/dir-link/file")).unwrap(), b"file");
    image.e2fsck_fn().unwrap();
}

/// Mode, owner and group of all files below a directory, by path.
fn seen(dir: &Path) -> Vec<(String, u32, u32, u32)> {
    let mut find = Command::new("find");
    find.arg(dir)
        .args(["-not", "-name", "lost+found", "-printf", "%P\\n"]);
    let mut all: Vec<_> = cmd::run(&mut find)
        .unwrap()
        .lines()
        .map(|path| {
            let m = fs::symlink_metadata(dir.join(path)).unwrap();
            (path.to_owned(), m.mode(), m.uid(), m.gid())
        })
        .collect();
    all.sort();
    all
}

/// Existing directories keep their attributes, and new files in them inherit as they do on the
/// host.
#[test]
fn directories_that_are_there_stay_as_cp_leaves_them() {
    let scratch = Scratch::new("there").unwrap();
    let tree = scratch.path().join("tree");
    for (dir, mode) in [
        ("tree", 0o700),
        ("tree/tmp", 0o755),
        ("tree/shared", 0o750),
        ("tree/shared/sub", 0o755),
    ] {
        let dir = scratch.path().join(dir);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
    }
    for file in ["tmp/file", "shared/file", "shared/sub/file"] {
        fs::write(tree.join(file), file).unwrap();
        fs::set_permissions(tree.join(file), Permissions::from_mode(0o644)).unwrap();
    }
    // The target: a root that others may read, /tmp and a directory of a group.
    let there = || {
        let image = image();
        let mounted = kernel(&image);
        for (dir, mode) in [("tmp", 0o1777), ("shared", 0o2775)] {
            let dir = mounted.path().join(dir);
            fs::create_dir(&dir).unwrap();
            chown(&dir, Some(0), Some(50)).unwrap();
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        }
        (image, mounted)
    };
    let all = format!("{}/.", tree.display());
    let copied = |how| {
        let (image, mounted) = there();
        mounted.umount().unwrap();
        ok(&["cp", how, &all, &at(&image, "/")]);
        image.e2fsck_fn().unwrap();
        let mounted = kernel(&image);
        let seen = seen(mounted.path());
        mounted.umount().unwrap();
        seen
    };
    let (_image, mounted) = there();
    let mut cp = Command::new("sh");
    let script = "umask 022; exec cp -r \"$@\"";
    cmd::run(cp.args(["-c", script, "sh", &all]).arg(mounted.path())).unwrap();
    assert_eq!(copied("-r"), seen(mounted.path()));
    mounted.umount().unwrap();
    // With -a everything is as in the source. (GNU cp keeps such bits of existing directories,
    // because it sets permissions as an ACL, which lacks them. rsync and tar do not.)
    assert_eq!(copied("-a"), seen(&tree));
}
