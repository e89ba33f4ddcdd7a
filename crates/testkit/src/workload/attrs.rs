//! Sections with attributes: extended attributes, ACLs, times, inode flags.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, CWD, IFlags, Timespec, Timestamps, XattrFlags, ioctl_setflags, lsetxattr, utimensat,
};

use super::site::Site;

fn set(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    lsetxattr(path, name, value, XattrFlags::empty()).with_context(|| {
        format!(
            "setxattr {name} ({} bytes) on {}",
            value.len(),
            path.display()
        )
    })
}

pub(super) fn xattrs(site: &Site<'_>) -> Result<()> {
    let file = |name: &str| -> Result<std::path::PathBuf> {
        let path = site.path(name);
        fs::write(&path, name)?;
        Ok(path)
    };
    let f = file("in-inode")?;
    set(&f, "user.short", b"value")?;
    set(&f, "user.empty", b"")?;

    // The space of the attribute block beside its header and the entry.
    let large = usize::try_from(site.block)?.min(4096) - 256;
    let f = file("in-block")?;
    set(&f, "user.large", &site.bytes.get(1, large))?;

    let f = file("both")?;
    set(&f, "user.small", b"in the inode")?;
    set(&f, "user.large", &site.bytes.get(2, large))?;

    let f = file("name-spaces")?;
    set(&f, "trusted.for-root", b"\x00\x01\x02")?;
    set(&f, "security.anything", b"label")?;
    set(&f, "user.a", b"1")?;
    set(&f, "user.the-longest-name", b"2")?;
    set(&f, &format!("user.{}", "n".repeat(250)), b"3")?;

    let f = file("many")?;
    for i in 0..20 {
        set(&f, &format!("user.k{i}"), format!("v{i}").as_bytes())?;
    }
    for i in (0..20).step_by(3) {
        rustix::fs::lremovexattr(&f, format!("user.k{i}")).context("removexattr")?;
    }
    set(&f, "user.k1", b"replaced by a longer value than it had")?;

    // Files with equal attribute blocks share one block.
    for i in 0..5 {
        let f = file(&format!("shared-{i}"))?;
        set(&f, "user.same", &site.bytes.get(3, large / 2))?;
    }
    let dir = site.path("directory");
    fs::create_dir(&dir)?;
    set(&dir, "user.on-a-directory", b"yes")?;
    symlink("target", site.path("symlink"))?;
    set(&site.path("symlink"), "trusted.on-a-symlink", b"yes")?;
    Ok(())
}

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// The xattr form of an ACL in the kernel: version 2, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

pub(super) fn acls(site: &Site<'_>) -> Result<()> {
    let access = acl(&[
        (USER_OBJ, 6, NO_ID),
        (USER, 7, 1000),
        (USER, 4, 70_000),
        (GROUP_OBJ, 4, NO_ID),
        (GROUP, 5, 2000),
        (MASK, 7, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    let file = site.path("file");
    fs::write(&file, "x")?;
    set(&file, "system.posix_acl_access", &access)?;

    // An ACL that is equivalent to the mode becomes the mode.
    let plain = site.path("same-as-mode");
    fs::write(&plain, "x")?;
    set(
        &plain,
        "system.posix_acl_access",
        &acl(&[
            (USER_OBJ, 6, NO_ID),
            (GROUP_OBJ, 4, NO_ID),
            (OTHER, 4, NO_ID),
        ]),
    )?;

    let dir = site.path("with-default");
    fs::create_dir(&dir)?;
    set(&dir, "system.posix_acl_default", &access)?;
    fs::write(dir.join("inherits"), "x")?;
    fs::create_dir(dir.join("inherits-too"))?;
    fs::write(dir.join("inherits-too/further"), "x")?;

    // chmod changes the mask of the ACL.
    let masked = site.path("chmod-after");
    fs::write(&masked, "x")?;
    set(&masked, "system.posix_acl_access", &access)?;
    fs::set_permissions(&masked, fs::Permissions::from_mode(0o640))?;
    Ok(())
}

pub(super) fn times(site: &Site<'_>) -> Result<()> {
    // 34 bits of seconds cover 1901 to 2446. An inode without the extra bits ends in 2038, and the
    // kernel clamps its times.
    let seconds: [(&str, i64); 9] = [
        ("epoch", 0),
        ("before-1970", -1),
        ("1901", -(1 << 31)),
        ("2038", (1 << 31) - 1),
        ("after-2038", 1 << 31),
        ("2106", (1 << 32) - 1),
        ("after-2106", 1 << 32),
        ("2446", (1 << 34) - (1 << 31) - 1),
        ("now-like", 1_700_000_000),
    ];
    let stamp = |sec: i64, nsec: i64| Timespec {
        tv_sec: sec,
        tv_nsec: nsec,
    };
    for (i, (name, sec)) in seconds.into_iter().enumerate() {
        let path = site.path(name);
        match i % 3 {
            0 => fs::write(&path, name)?,
            1 => fs::create_dir(&path)?,
            _ => symlink(name, &path)?,
        }
        // At the first and the last second the kernel drops the nanoseconds.
        let limit = matches!(name, "1901" | "2446");
        let nsec = if limit {
            0
        } else {
            [0, 1, 999_999_999, 123_456_789][i % 4]
        };
        let times = Timestamps {
            last_access: stamp(sec, if limit { 0 } else { 999_999_999 - nsec }),
            last_modification: stamp(sec, nsec),
        };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)
            .with_context(|| format!("times of {name}"))?;
    }
    // Owners of 16 and 32 bits, and mode bits beyond 0777.
    for (name, uid, gid, mode) in [
        ("owner-16", 65_535, 1, 0o4755),
        ("owner-32", 1 << 30, 70_000, 0o2711),
        ("sticky", 12, 34, 0o1666),
    ] {
        let path = site.path(name);
        fs::write(&path, name)?;
        chown(&path, Some(uid), Some(gid))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

pub(super) fn flags(site: &Site<'_>) -> Result<()> {
    let cases = [
        ("immutable", IFlags::IMMUTABLE),
        ("append-only", IFlags::APPEND),
        ("no-dump", IFlags::NODUMP),
        ("no-atime", IFlags::NOATIME),
        ("two", IFlags::NODUMP | IFlags::NOATIME),
    ];
    for (name, flags) in cases {
        let path = site.path(name);
        fs::write(&path, name)?;
        let file = File::open(&path)?;
        let old = rustix::fs::ioctl_getflags(&file).context("FS_IOC_GETFLAGS")?;
        ioctl_setflags(&file, old | flags).with_context(|| format!("FS_IOC_SETFLAGS {name}"))?;
    }
    // The flags must be enforced, not only stored.
    anyhow::ensure!(
        fs::write(site.path("immutable"), "x").is_err(),
        "an immutable file was written to"
    );
    anyhow::ensure!(
        fs::remove_file(site.path("immutable")).is_err(),
        "an immutable file was removed"
    );
    anyhow::ensure!(
        fs::write(site.path("append-only"), "x").is_err(),
        "an append-only file was truncated"
    );
    let dir = site.path("inherited");
    fs::create_dir(&dir)?;
    let handle = File::open(&dir)?;
    let old = rustix::fs::ioctl_getflags(&handle).context("FS_IOC_GETFLAGS of a directory")?;
    ioctl_setflags(&handle, old | IFlags::NODUMP | IFlags::NOATIME)
        .context("FS_IOC_SETFLAGS of a directory")?;
    fs::write(dir.join("file"), "takes the flags of its directory")?;
    Ok(())
}
