//! Single calls that the trees of `interop` do not show: each does what it does on the kernel's ext4.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{kernel, stetfs};
use stetfs_testkit::{Image, Mkfs, Mounter, cmd};

/// Each test on StetFS, and on the kernel's ext4 as proof of itself.
macro_rules! on_both {
    ($($(#[$doc:meta])* $name:ident)*) => {
        mod on_stetfs { $(
            $(#[$doc])*
            #[test]
            fn $name() { super::on(&super::stetfs(), super::$name); }
        )* }
        mod harness_kernel { $(
            #[test]
            fn $name() { super::on(&super::kernel(), super::$name); }
        )* }
    };
}

on_both! {
    trusted_attributes_are_listed_for_administrators_only
}

fn on(mounter: &Mounter, check: fn(&Path)) {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    // Others get in.
    std::fs::set_permissions(mounted.path(), PermissionsExt::from_mode(0o755)).unwrap();
    check(mounted.path());
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

fn trusted_attributes_are_listed_for_administrators_only(root: &Path) {
    let file = root.join("f");
    std::fs::write(&file, "").unwrap();
    for name in ["trusted.a", "user.b", "trusted.c"] {
        rustix::fs::setxattr(&file, name, b"x", rustix::fs::XattrFlags::empty()).unwrap();
    }
    // From a directory of its own: the way to the mount may be closed to others.
    let list = |program: &[&str]| {
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .args(["getfattr", "-d", "-m", "-", "f"]);
        let out = cmd::run(command.current_dir(root)).unwrap();
        let mut names: Vec<String> = out
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
            .collect();
        names.sort();
        names
    };
    assert_eq!(list(&["env"]), ["trusted.a", "trusted.c", "user.b"]);
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    assert_eq!(list(&nobody), ["user.b"]);
    // Root without the capability is nobody here.
    let no_admin = [
        "setpriv",
        "--bounding-set",
        "-sys_admin",
        "--inh-caps",
        "-sys_admin",
    ];
    assert_eq!(list(&no_admin), ["user.b"]);
}
