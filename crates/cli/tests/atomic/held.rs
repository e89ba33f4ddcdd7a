//! Tests of atomic writes in progress: how they are shown, who may abort them, and when they time
//! out.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use stetfs_testkit::wait_until;

use super::groups::start_all;
use super::{ABORT, COMMIT, START, becomes, copy, ioctl, mount, open, refusal};
use crate::common::daemon::{answer, json, ok};
use crate::common::stetfs_with;

const OWNER: u32 = 1002;
const STRANGER: u32 = 1003;

/// The result of a user's abort of the atomic write of a file: an errno, or 0.
fn broken_by(uid: u32, file: &Path, capability: Option<&str>) -> i32 {
    const SCRIPT: &str = "
import fcntl, os, sys
try:
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0xf542)
except OSError as e:
    sys.exit(e.errno)
";
    let mut command = Command::new("setpriv");
    let id = uid.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    if let Some(capability) = capability {
        for set in ["--inh-caps", "--ambient-caps"] {
            command.args([set, &format!("+{capability}")]);
        }
    }
    command.args(["/usr/bin/python3", "-c", SCRIPT]);
    // Directories above may be closed to other users.
    let (dir, name) = (file.parent().unwrap(), file.file_name().unwrap());
    let status = command.arg(name).current_dir(dir).status();
    status.unwrap().code().unwrap()
}

/// Files of `OWNER` and of root that everybody may write.
fn files(dir: &Path) -> Vec<File> {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    let made = ["db", "other"].map(|name| {
        let path = dir.join(name);
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let file = open(&path);
        file.sync_all().unwrap();
        file
    });
    chown(dir.join("db"), Some(OWNER), None).unwrap();
    made.into()
}

/// A user who may write a file can begin an atomic write, which excludes all others. The file's
/// owner, root and a process with CAP_FOWNER can abort it, for all files of the group. The next
/// operation of the holder fails, whatever it is.
#[test]
fn owners_end_the_atomic_writes_of_others() {
    for options in ["journal=data,atomic", "journal=stet,atomic,direct_io"] {
        let (image, mounted) = mount(options);
        let (db, other) = (mounted.path().join("db"), mounted.path().join("other"));
        let held = files(mounted.path());
        assert_eq!(broken_by(OWNER, &db, None), libc::EINVAL, "nobody has it");
        for (uid, capability) in [(OWNER, None), (0, None), (STRANGER, Some("fowner"))] {
            start_all(&held).unwrap();
            held[0].write_all_at(b"new", 0).unwrap();
            held[1].write_all_at(b"newer", 0).unwrap();
            let another = open(&db);
            assert_eq!(refusal(another.write_all_at(b"x", 0)), libc::EBUSY);
            assert_eq!(broken_by(STRANGER, &db, None), libc::EPERM);
            assert_eq!(broken_by(OWNER, &other, None), libc::EPERM, "it is root's");
            assert_eq!(refusal(another.write_all_at(b"x", 0)), libc::EBUSY);
            assert_eq!(broken_by(uid, &db, capability), 0, "{uid}");
            becomes(&db, b"old");
            becomes(&other, b"old");
            another.write_all_at(b"ANY", 0).unwrap();
            for file in &held {
                assert_eq!(refusal(file.write_all_at(b"w", 1)), libc::EIO);
                assert_eq!(refusal(file.set_len(1)), libc::EIO);
            }
            match uid {
                OWNER => assert_eq!(refusal(ioctl(&held[1], COMMIT)), libc::EINVAL),
                // Beginning again is not an operation of the aborted write.
                0 => assert_eq!(refusal(ioctl(&held[1], START)), libc::EIO),
                _ => drop(ioctl(&held[1], ABORT).unwrap()),
            }
            let after = copy(image.path());
            let crashed = stetfs_with("").mount(&after.1).unwrap();
            let left = std::fs::read(crashed.path().join("other")).unwrap();
            assert_eq!(left, b"old");
            crashed.umount().unwrap();
            // Each descriptor gets the error for itself.
            assert_eq!(refusal(ioctl(&held[0], COMMIT)), libc::EINVAL);
            held[0].write_all_at(b"old", 0).unwrap();
            another.set_len(3).unwrap();
        }
        drop(held);
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

#[test]
fn where_there_is_no_option_nothing_is_ended() {
    let (_image, mounted) = mount("journal=data");
    let held = files(mounted.path());
    let db = mounted.path().join("db");
    assert_eq!(broken_by(0, &db, None), libc::EOPNOTSUPP);
    let (code, said) = answer(&["atomic", "abort", db.to_str().unwrap()]);
    assert!(
        code == 1 && said.to_string().contains("option atomic"),
        "{said}"
    );
    drop(held);
    mounted.umount().unwrap();
}

/// `stat` shows the holders of atomic writes, a remount is refused, and the command aborts them.
#[test]
fn holders_are_shown_and_in_the_way_until_they_are_ended() {
    let (_image, mounted) = mount("journal=data,atomic");
    let dir = mounted.path().to_str().unwrap();
    let shown = || json(&["stat", dir])["atomic_writes"].clone();
    assert_eq!(shown().as_array().unwrap().len(), 0);
    let held = files(mounted.path());
    start_all(&held).unwrap();
    held[0].write_all_at(&[1; 5000], 0).unwrap();
    let mut inodes: Vec<u64> = held.iter().map(|f| f.metadata().unwrap().ino()).collect();
    inodes.sort_unstable();
    let holders = shown();
    assert_eq!(holders.as_array().unwrap().len(), 1);
    let holder = &holders[0];
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    assert_eq!((&holder["pid"], &holder["uid"]), (&me.into(), &0.into()));
    assert_eq!(holder["inodes"], serde_json::json!(inodes));
    assert_eq!(holder["bytes"], 8192);
    assert!(holder["since"].as_u64().unwrap() > 1_700_000_000);
    let text = ok(&["stat", dir]);
    let line = format!(
        "inode {}, {}: by process {me} (uid 0)",
        inodes[0], inodes[1]
    );
    assert!(text.contains(&line), "{text}");
    let remount = ["mount", "-o", "remount,commit=7", "none", dir];
    let (code, said) = answer(&remount);
    assert!(
        code == 4 && said.to_string().contains(&format!("by process {me}")),
        "{code} {said}"
    );
    let db = mounted.path().join("db");
    let abort = ["atomic", "abort", db.to_str().unwrap()];
    ok(&abort);
    // A holder that has not got its error does not block a remount, and gets it afterwards.
    ok(&remount);
    assert_eq!(shown().as_array().unwrap().len(), 0);
    assert_eq!(refusal(held[0].write_all_at(b"w", 0)), libc::EIO);
    let (code, said) = answer(&abort);
    assert!(
        code == 3 && said.to_string().contains("no process writes"),
        "{code} {said}"
    );
    drop(held);
    mounted.umount().unwrap();
}

/// An atomic write without changes for a while is aborted; its holder gets an error, and other
/// programs can write the file.
#[test]
fn time_ends_an_atomic_write_without_changes() {
    for options in ["journal=data,atomic", "journal=stet,atomic,direct_io"] {
        let (image, mounted) = mount(&format!("{options},atomic_timeout=1"));
        let held = files(mounted.path());
        start_all(&held).unwrap();
        held[0].write_all_at(b"new", 0).unwrap();
        let (db, other) = (mounted.path().join("db"), mounted.path().join("other"));
        let another = open(&db);
        wait_until("that time ends it", || {
            another.write_all_at(b"ANY", 0).is_ok()
        });
        becomes(&db, b"ANY");
        becomes(&other, b"old");
        assert_eq!(refusal(held[0].write_all_at(b"w", 1)), libc::EIO);
        assert_eq!(refusal(ioctl(&held[0], COMMIT)), libc::EINVAL);
        assert_eq!(std::fs::read(&db).unwrap(), b"ANY");
        ioctl(&held[0], START).unwrap();
        held[0].write_all_at(b"new", 0).unwrap();
        ioctl(&held[0], COMMIT).unwrap();
        drop((held, another));
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}
