//! Attributes: changes of owners, modes and times, statx, extended attributes and ACLs.

use stetfs_fuse::VolumeFsOptions;

use crate::bytes::{Who, body, long, op, word};
use crate::kernel::{FATTR_ATIME_NOW, FATTR_MTIME_NOW, Kernel, ROOT, Set, USER, handles, image};

const ACL: &str = "system.posix_acl_access";

#[test]
fn what_is_set_is_shown_and_the_rest_stays() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    let before = kernel.getattr(file).unwrap();
    let set = Set {
        atime: Some((1_000_000_000, 5)),
        mtime: Some((4_000_000_000, 999_999_999)),
        ..Set::default()
    };
    let times = kernel.setattr(file, set).unwrap();
    assert_eq!(times.atime, (1_000_000_000, 5));
    assert_eq!(times.mtime, (4_000_000_000, 999_999_999));
    assert!(times.ctime >= before.ctime);
    assert_eq!((times.mode, times.uid), (before.mode, before.uid));
    let set = Set {
        more: FATTR_ATIME_NOW | FATTR_MTIME_NOW,
        atime: Some((1, 1)),
        ..Set::default()
    };
    let now = kernel.setattr(file, set).unwrap();
    assert!(now.atime > (1_700_000_000, 0) && now.mtime < times.mtime);
    let set = Set {
        mode: Some(libc::S_IFREG | 0o4711),
        ..Set::default()
    };
    assert_eq!(
        kernel.setattr(file, set).unwrap().mode,
        libc::S_IFREG | 0o4711
    );
    let set = Set {
        uid: Some(1000),
        gid: Some(70_000),
        ..Set::default()
    };
    let owned = kernel.setattr(file, set).unwrap();
    assert_eq!((owned.uid, owned.gid), (1000, 70_000));
    assert_eq!(
        owned.mode,
        libc::S_IFREG | 0o711,
        "a new owner clears the bit"
    );
    let set = Set {
        ctime: Some((1_600_000_000, 0)),
        ..Set::default()
    };
    kernel.setattr(file, set).unwrap();
    let shown = kernel.getattr(file).unwrap();
    assert_eq!((shown.uid, shown.mode), (1000, owned.mode));
    assert_eq!(kernel.getattr(file + 1), Err(libc::ESTALE));
    assert_eq!(
        kernel.setattr(
            ROOT,
            Set {
                size: Some(0),
                ..Set::default()
            }
        ),
        Err(libc::EISDIR)
    );
    kernel.end(&image);
}

#[test]
fn statx_has_the_birth_time() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let made = kernel
        .mknod(ROOT, "char", libc::S_IFCHR | 0o600, 0x0503)
        .unwrap();
    let born = made.attr.ctime;
    let set = Set {
        mtime: Some((5, 6)),
        ..Set::default()
    };
    kernel.setattr(made.node, set).unwrap();
    let request = body().u64(0).u64(0).u32(0).u32(0xfff);
    let x = kernel.ask(op::STATX, made.node, request).unwrap();
    assert_eq!(x.len(), 288);
    let x = &x[32..];
    assert_eq!(word(x, 0), 0xfff);
    assert_eq!((word(x, 16), word(x, 20), word(x, 24)), (1, 0, 0));
    assert_eq!(word(x, 28) & 0xffff, libc::S_IFCHR | 0o600);
    assert_eq!(long(x, 32), made.node);
    let time = |at| (long(x, at), word(x, at + 8));
    assert_eq!(time(80), born, "btime");
    assert_eq!(time(112), (5, 6), "mtime");
    assert_eq!((word(x, 128), word(x, 132)), (5, 3));
    kernel.end(&image);
}

#[test]
fn extended_attributes() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    assert_eq!(kernel.listxattr(file, 0).unwrap(), [0; 8]);
    assert_eq!(kernel.getxattr(file, "user.a", 0), Err(libc::ENODATA));
    let large = vec![7; 3000];
    kernel
        .setxattr(file, "user.a", b"value", libc::XATTR_CREATE)
        .unwrap();
    kernel.setxattr(file, "user.large", &large, 0).unwrap();
    let again = kernel.setxattr(file, "user.a", b"x", libc::XATTR_CREATE);
    assert_eq!(again, Err(libc::EEXIST));
    let replaced = kernel.setxattr(file, "user.b", b"x", libc::XATTR_REPLACE);
    assert_eq!(replaced, Err(libc::ENODATA));
    assert_eq!(kernel.setxattr(file, "user.b", b"x", 9), Err(libc::EINVAL));
    assert_eq!(
        kernel.setxattr(file, "nonsense", b"x", 0),
        Err(libc::EOPNOTSUPP)
    );
    kernel
        .setxattr(file, "user.a", b"new", libc::XATTR_REPLACE)
        .unwrap();
    assert_eq!(kernel.getxattr(file, "user.a", 100).unwrap(), b"new");
    assert_eq!(word(&kernel.getxattr(file, "user.a", 0).unwrap(), 0), 3);
    assert_eq!(kernel.getxattr(file, "user.a", 2), Err(libc::ERANGE));
    assert_eq!(kernel.getxattr(file, "user.large", 4096).unwrap(), large);
    let names = kernel.listxattr(file, 100).unwrap();
    let mut names: Vec<&[u8]> = names.split_inclusive(|b| *b == 0).collect();
    names.sort();
    assert_eq!(names, [&b"user.a\0"[..], b"user.large\0"]);
    assert_eq!(kernel.listxattr(file, 5), Err(libc::ERANGE));
    let remove = |name| kernel.ask_empty(op::REMOVEXATTR, file, body().name(name));
    remove("user.large").unwrap();
    assert_eq!(remove("user.large"), Err(libc::ENODATA));
    kernel.end(&image);
}

/// Names of `trusted.` are shown to administrators: callers with CAP_SYS_ADMIN.
#[test]
fn trusted_names_are_for_administrators() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    kernel.setxattr(file, "trusted.x", b"secret", 0).unwrap();
    kernel.setxattr(file, "user.x", b"open", 0).unwrap();
    assert_eq!(kernel.listxattr(file, 100).unwrap(), b"user.x\0");
    kernel.who = Who {
        pid: std::process::id(),
        ..USER
    };
    let seen = kernel.listxattr(file, 100).unwrap();
    assert_eq!(
        seen.starts_with(b"trusted.") || seen.ends_with(b"trusted.x\0"),
        is_admin()
    );
    kernel.end(&image);
}

/// Whether this process has CAP_SYS_ADMIN.
pub(crate) fn is_admin() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    u64::from_str_radix(effective.unwrap().trim(), 16).unwrap() >> 21 & 1 == 1
}

/// An ACL as `setfacl` makes it: the owner, user 1000, the group, a mask and others.
fn acl(owner: u16, group: u16) -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (1, owner, u32::MAX),
        (2, 6, 1000),
        (4, group, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn an_acl_changes_the_mode() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    let set = Set {
        mode: Some(0o2755),
        ..Set::default()
    };
    kernel.setattr(file, set).unwrap();
    kernel.setxattr(file, ACL, &acl(6, 4), 0).unwrap();
    let bits = || kernel.getattr(file).unwrap().mode & 0o7777;
    assert_eq!(bits(), 0o2670, "the group's bits are the mask");
    kernel.notes(|notes| notes.contains(&(file, -1, 0)));
    // `SETXATTR_ACL_KILL_SGID`.
    let value = acl(6, 4);
    let request = body().u32(value.len() as u32).u32(0).u32(1).u32(0);
    kernel
        .ask_empty(op::SETXATTR, file, request.name(ACL).bytes(&value))
        .unwrap();
    assert_eq!(bits(), 0o670);
    assert_eq!(kernel.getxattr(file, ACL, 100).unwrap(), acl(6, 4));
    kernel.end(&image);
}

#[test]
fn noxattr_answers_none_and_still_drops_capabilities() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "program");
    let capability = [
        1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    kernel
        .setxattr(file, "security.capability", &capability, 0)
        .unwrap();
    kernel.end(&image);
    let options = VolumeFsOptions {
        noxattr: true,
        ..handles()
    };
    let kernel = Kernel::on(&image, options);
    let file = kernel.lookup(ROOT, "program").unwrap().node;
    assert_eq!(kernel.setxattr(file, "user.a", b"x", 0), Err(libc::ENOSYS));
    assert_eq!(kernel.getxattr(file, "user.a", 0), Err(libc::ENOSYS));
    assert_eq!(kernel.listxattr(file, 0), Err(libc::ENOSYS));
    let remove = kernel.ask(op::REMOVEXATTR, file, body().name("user.a"));
    assert_eq!(remove, Err(libc::ENOSYS));
    let (fh, _) = kernel.open(file, libc::O_RDWR).unwrap();
    kernel.write(file, fh, 0, b"other code").unwrap();
    kernel.end(&image);
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.lookup(ROOT, "program").unwrap().node;
    let left = kernel.getxattr(file, "security.capability", 0);
    assert_eq!(left, Err(libc::ENODATA));
    kernel.end(&image);
}
