//! Tests of copies to the host: modes, owners and devices, compared with cp(1).

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;

use super::{USER, at, image, kernel, run_as, stetfs_as, text};
use stetfs_testkit::{Image, Scratch, cmd};

/// An image with everything that gives power on the host, readable by everybody.
fn image_of_power() -> Image {
    let image = image();
    let mounted = kernel(&image);
    let tree = mounted.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let files = [
        ("root-suid", 0o4755, 0),
        ("root-both", 0o6777, 0),
        ("other-suid", 0o4755, 1000),
        ("own-suid", 0o4755, USER),
        ("own-both", 0o6755, USER),
        ("sticky", 0o1755, 0),
        ("all", 0o666, 0),
        ("read-only", 0o444, 0),
    ];
    for (name, mode, owner) in files {
        fs::write(tree.join(name), name).unwrap();
        chown(tree.join(name), Some(owner), Some(owner)).unwrap();
        fs::set_permissions(tree.join(name), Permissions::from_mode(mode)).unwrap();
    }
    for (name, mode, owner) in [
        ("dir", 0o777, 0),
        ("dir-set-gid", 0o2775, 0),
        ("dir-sticky", 0o1777, 0),
        ("dir-own", 0o7755, USER),
        ("dir-read-only", 0o555, 1000),
    ] {
        let dir = tree.join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), name).unwrap();
        chown(&dir, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
    }
    symlink("root-suid", tree.join("link")).unwrap();
    let mut mkfifo = Command::new("mkfifo");
    cmd::run(mkfifo.args(["-m", "0666"]).arg(tree.join("pipe"))).unwrap();
    let mut mknod = Command::new("mknod");
    cmd::run(
        mknod
            .args(["-m", "0666"])
            .arg(tree.join("null"))
            .args(["c", "1", "3"]),
    )
    .unwrap();
    // cap_net_raw, permitted and effective.
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (name, value) in [
        ("security.capability", &capability[..]),
        ("trusted.note", b"t"),
        ("user.note", b"u"),
    ] {
        rustix::fs::setxattr(tree.join("all"), name, value, XattrFlags::empty()).unwrap();
    }
    mounted.umount().unwrap();
    image
}

/// The compared attributes of a copy: type, mode, owner and group, by name.
type Seen = BTreeMap<String, (char, u32, u32, u32)>;

fn seen(root: &Path) -> Seen {
    let mut all = Seen::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let m = fs::symlink_metadata(&path).unwrap();
            let kind = match m.file_type() {
                t if t.is_dir() => 'd',
                t if t.is_symlink() => 'l',
                t if t.is_fifo() => 'p',
                t if t.is_char_device() => 'c',
                _ => '-',
            };
            if kind == 'd' {
                dirs.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap().display().to_string();
            all.insert(name, (kind, m.mode() & 0o7777, m.uid(), m.gid()));
        }
    }
    all
}

fn xattrs(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let n = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let names = String::from_utf8(names[..n].to_vec()).unwrap();
    let mut names: Vec<String> = names.split_terminator('\0').map(Into::into).collect();
    names.sort_unstable();
    names
}

/// A directory that belongs to this user, outside of the scratch directory's access rights.
fn room(scratch: &Scratch, name: &str, uid: u32) -> std::path::PathBuf {
    let dir = scratch.path().join(name);
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(uid), Some(uid)).unwrap();
    dir
}

#[test]
fn modes_and_owners_of_copies_are_those_of_cp() {
    let image = image_of_power();
    fs::set_permissions(image.path(), Permissions::from_mode(0o644)).unwrap();
    let scratch = Scratch::new("as-cp").unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let mut n = 0;
    for uid in [0, USER] {
        for umask in [0o022, 0o027, 0o002, 0] {
            for how in ["-r", "-a"] {
                n += 1;
                let theirs = room(&scratch, &format!("cp{n}"), uid).join("tree");
                let ours = room(&scratch, &format!("stetfs{n}"), uid).join("tree");
                let mounted = kernel(&image);
                let source = mounted.path().join("tree");
                let said = run_as(uid, umask, "cp", &[how, text(&source), text(&theirs)]);
                mounted.umount().unwrap();
                // cp(1) cannot create the device as an ordinary user.
                assert_eq!(said.status.success(), uid == 0, "{}", cmd::said(&said));
                let done = stetfs_as(uid, umask, &["cp", how, &at(&image, "/tree"), text(&ours)]);
                assert!(done.status.success(), "{how} {uid}: {}", cmd::said(&done));
                let mut theirs = seen(&theirs);
                if how == "-r" {
                    // Only -a copies devices.
                    theirs.remove("null");
                }
                assert_eq!(seen(&ours), theirs, "{how} as {uid}, umask {umask:o}");
            }
        }
    }
}

/// No program from a stranger's image gets another user's power.
#[test]
fn what_has_power_is_left_out_and_counted() {
    let image = image_of_power();
    let scratch = Scratch::new("power").unwrap();
    let plain = scratch.path().join("plain");
    let done = stetfs_as(0, 0o022, &["cp", &at(&image, "/tree"), text(&plain)]);
    let said = cmd::said(&done);
    assert!(done.status.success(), "{said}");
    let expected = "bits of 8 files, 1 special file";
    assert!(said.contains(expected), "{said}");
    assert_eq!(said.matches("left out").count(), 1, "{said}");
    for (name, (_, mode, uid, gid)) in seen(&plain) {
        assert_eq!((mode & 0o6000, uid, gid), (0, 0, 0), "{name}");
    }
    assert!(!plain.join("null").exists());
    assert_eq!(xattrs(&plain.join("all")), [""; 0]);

    // Everything is asked for.
    let archive = scratch.path().join("archive");
    let args = ["--json", "cp", "-a", &at(&image, "/tree"), text(&archive)];
    let done = stetfs_as(0, 0o022, &args);
    let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let nothing = ["bits", "nodes", "owners", "attributes", "flags"].map(|what| (what, 0));
    assert_eq!(said["left_out"], serde_json::json!(BTreeMap::from(nothing)));
    assert_eq!(seen(&archive)["root-both"], ('-', 0o6777, 0, 0));
    assert_eq!(seen(&archive)["null"], ('c', 0o666, 0, 0));
    let all = ["security.capability", "trusted.note", "user.note"];
    assert_eq!(xattrs(&archive.join("all")), all);

    // Everything except attributes with power.
    let tame = scratch.path().join("tame");
    let args = [
        "cp",
        "-a",
        "--no-special",
        &at(&image, "/tree"),
        text(&tame),
    ];
    let done = stetfs_as(0, 0o022, &args);
    let said = cmd::said(&done);
    assert!(done.status.success(), "{said}");
    assert!(
        said.contains("1 special file, 2 extended attributes"),
        "{said}"
    );
    assert_eq!(seen(&tame)["own-both"], ('-', 0o755, USER, USER));
    assert_eq!(seen(&tame)["dir-own"], ('d', 0o1755, USER, USER));
    assert!(!tame.join("null").exists());
    assert_eq!(xattrs(&tame.join("all")), ["user.note"]);

    // Another user's file does not get the bits.
    let given = scratch.path().join("given");
    let args = [
        "cp",
        "-a",
        "--owner",
        "0:0",
        &at(&image, "/tree"),
        text(&given),
    ];
    assert!(stetfs_as(0, 0o022, &args).status.success());
    assert_eq!(seen(&given)["own-suid"], ('-', 0o755, 0, 0));
    assert_eq!(seen(&given)["root-suid"], ('-', 0o4755, 0, 0));
}

/// A copy into a volume keeps everything.
#[test]
fn volumes_get_what_was_there() {
    let (from, to) = (image_of_power(), image());
    crate::common::daemon::ok(&["cp", &at(&from, "/tree"), &at(&to, "/tree")]);
    let mounted = kernel(&to);
    let tree = seen(&mounted.path().join("tree"));
    assert_eq!(tree["other-suid"], ('-', 0o4755, 0, 0));
    assert_eq!(tree["null"].0, 'c');
    mounted.umount().unwrap();
}
