//! Tests of idmapped mounts: the owner of a file on the volume differs from the one that a mount
//! shows.
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::common::daemon::{Daemon, ok};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use stetfs_testkit::{Image, Mkfs, Scratch, cmd, mount, sys, wait_until};

/// A user namespace in which id N, below 1000, is N + 10000 outside, for users and groups.
struct Users {
    process: Child,
    namespace: File,
}

impl Users {
    fn new() -> Users {
        let process = Command::new("unshare")
            .args(["--user", "sleep", "60"])
            .spawn()
            .unwrap();
        let proc = PathBuf::from(format!("/proc/{}", process.id()));
        let ours = Path::new("/proc/self/ns/user").read_link().unwrap();
        wait_until("the name space", || {
            proc.join("ns/user").read_link().is_ok_and(|ns| ns != ours)
        });
        for map in ["uid_map", "gid_map"] {
            std::fs::write(proc.join(map), "0 10000 1000").unwrap();
        }
        let namespace = File::open(proc.join("ns/user")).unwrap();
        Users { process, namespace }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A detached copy of the mount at `from`.
fn copy_of(from: &Path) -> OwnedFd {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(rustix::fs::CWD, from, flags).unwrap()
}

/// A mount that is taken down when dropped.
struct Mapped(PathBuf);

impl Mapped {
    fn new(from: &Path, at: PathBuf, users: &Users) -> Mapped {
        let tree = copy_of(from);
        sys::map_ids(tree.as_fd(), users.namespace.as_fd()).unwrap();
        std::fs::create_dir(&at).unwrap();
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&tree, "", rustix::fs::CWD, &at, flags).unwrap();
        Mapped(at)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        mount::detach(&self.0);
    }
}

/// Runs a shell command as the user and group of this number.
fn sh_as(id: u32, dir: &Path, script: &str) -> Result<String, String> {
    let id = id.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command.args(["sh", "-ec", script]).current_dir(dir);
    cmd::run(&mut command).map_err(|e| e.to_string())
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = path.symlink_metadata().unwrap();
    (meta.uid(), meta.gid())
}

#[test]
fn a_mapped_mount_shows_and_makes_other_owners() {
    let mkfs = Mkfs::new().feature("quota");
    let d = Daemon::unmounted(Image::make(64 << 20, &mkfs).unwrap());
    d.mount("idmap");
    let work = d.file("work");
    std::fs::create_dir(&work).unwrap();
    chown(&work, Some(5), Some(5)).unwrap();
    std::fs::write(work.join("old"), "old").unwrap();
    chown(work.join("old"), Some(7), Some(8)).unwrap();
    // Without a map a new file belongs to its creator, as always.
    sh_as(5, &work, "echo plain >plain").unwrap();
    assert_eq!(owner(&work.join("plain")), (5, 5));

    let users = Users::new();
    let scratch = Scratch::new("idmap").unwrap();
    let mapped = Mapped::new(&d.dir, scratch.path().join("mapped"), &users);
    let there = mapped.0.join("work");
    assert_eq!(owner(&there), (10_005, 10_005));
    assert_eq!(owner(&there.join("old")), (10_007, 10_008));
    let all = r"
        echo made >made; mkdir dir; ln -s made link; mkfifo pipe; ln made hard
        dd if=/dev/zero of=big bs=64k count=16 2>&1; truncate -s 10 big; fallocate -l 1M room
        chmod 640 made; touch -d 2020-01-01 made; chattr +A made; mv dir moved; rm plain
    ";
    sh_as(10_005, &there, all).unwrap();
    for name in ["made", "moved", "link", "pipe", "hard", "big"] {
        assert_eq!(owner(&work.join(name)), (5, 5), "{name}");
        assert_eq!(owner(&there.join(name)), (10_005, 10_005), "{name}");
    }
    // Ids of the volume mean nothing in the mount, and the other way round; an id outside the map
    // can create nothing.
    for stranger in [5, 10_007, 20_000] {
        sh_as(stranger, &there, "echo x >>made").unwrap_err();
        sh_as(stranger, &there, "chattr -A made").unwrap_err();
        sh_as(stranger, &there, "rm made").unwrap_err();
    }
    sh_as(10_005, &work, "echo x >made").unwrap_err();
    sh_as(10_005, &there, "chattr +i made").unwrap_err();
    std::fs::set_permissions(&work, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let outside = sh_as(20_000, &there, "echo x >unmapped").unwrap_err();
    assert!(outside.contains("too large"), "{outside}");
    // chown takes the ids of the mount.
    chown(there.join("old"), Some(10_009), Some(10_009)).unwrap();
    assert_eq!(owner(&work.join("old")), (9, 9));
    let e = chown(there.join("old"), Some(9), None).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EOVERFLOW));
    // A file of root on the volume belongs to no privileged user in the mount.
    std::fs::write(work.join("roots"), "x").unwrap();
    sh_as(10_000, &there, "chattr +A roots; echo y >roots").unwrap();
    sh_as(10_000, &there, "chattr +j roots").unwrap_err();

    drop(mapped);
    ok(&["umount", d.dir()]);
    d.image.e2fsck_fn().unwrap();
}

#[test]
fn without_the_option_no_map_is_taken() {
    let d = Daemon::new("");
    let users = Users::new();
    let refused = sys::map_ids(copy_of(&d.dir).as_fd(), users.namespace.as_fd()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    ok(&["umount", d.dir()]);
}
