//! ACLs: the same steps on StetFS and on the kernel's ext4 must have the same results.

use std::path::Path;

use rustix::fs::{Mode, XattrFlags};
use stetfs_ext4::{Ctx, Ino, ROOT_INO, SetAttr, XattrSet};
use stetfs_testkit::{Image, Mkfs};

use crate::names::support::{Vol, kernel};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The attribute form of a list; tags as in the header: 1 owner, 2 user, 4 group …
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

const NONE: u32 = u32::MAX;

fn named_user() -> Vec<u8> {
    acl(&[
        (1, 7, NONE),
        (2, 6, 1234),
        (4, 5, NONE),
        (8, 7, 99),
        (0x10, 7, NONE),
        (0x20, 4, NONE),
    ])
}

fn minimal() -> Vec<u8> {
    acl(&[(1, 6, NONE), (4, 2, NONE), (0x20, 1, NONE)])
}

/// Mode and both lists.
type Seen = (u32, Option<Vec<u8>>, Option<Vec<u8>>);

/// The operations on both sides.
trait Side {
    fn set(&self, path: &str, name: &str, value: &[u8]) -> Result<(), i32>;
    fn remove(&self, path: &str, name: &str) -> Result<(), i32>;
    fn chmod(&self, path: &str, mode: u32);
    fn mkdir(&self, path: &str, mode: u32, umask: u32);
    fn file(&self, path: &str, mode: u32, umask: u32);
    fn see(&self, path: &str) -> Seen;
}

struct Kernel<'a>(&'a Path);

impl Kernel<'_> {
    fn with_umask(umask: u32, make: impl FnOnce()) {
        // The umask belongs to the process; other tests do not depend on it.
        let old = rustix::process::umask(Mode::from_raw_mode(umask));
        make();
        rustix::process::umask(old);
    }

    fn xattr(&self, path: &str, name: &str) -> Option<Vec<u8>> {
        let mut buf = [0u8; 4096];
        let n = rustix::fs::getxattr(self.0.join(path), name, &mut buf[..]).ok()?;
        Some(buf[..n].to_vec())
    }
}

impl Side for Kernel<'_> {
    fn set(&self, path: &str, name: &str, value: &[u8]) -> Result<(), i32> {
        let done = rustix::fs::setxattr(self.0.join(path), name, value, XattrFlags::empty());
        done.map_err(|e| e.raw_os_error())
    }

    fn remove(&self, path: &str, name: &str) -> Result<(), i32> {
        rustix::fs::removexattr(self.0.join(path), name).map_err(|e| e.raw_os_error())
    }

    fn chmod(&self, path: &str, mode: u32) {
        rustix::fs::chmod(self.0.join(path), Mode::from_raw_mode(mode)).unwrap();
    }

    fn mkdir(&self, path: &str, mode: u32, umask: u32) {
        let path = self.0.join(path);
        Self::with_umask(umask, || {
            rustix::fs::mkdir(&path, Mode::from_raw_mode(mode)).unwrap()
        });
    }

    fn file(&self, path: &str, mode: u32, umask: u32) {
        let path = self.0.join(path);
        let kind = rustix::fs::FileType::RegularFile;
        let cwd = rustix::fs::CWD;
        Self::with_umask(umask, || {
            rustix::fs::mknodat(cwd, &path, kind, Mode::from_raw_mode(mode), 0).unwrap();
        });
    }

    fn see(&self, path: &str) -> Seen {
        let stat = rustix::fs::stat(self.0.join(path)).unwrap();
        (
            stat.st_mode,
            self.xattr(path, ACCESS),
            self.xattr(path, DEFAULT),
        )
    }
}

impl Vol {
    fn parent<'a>(&self, path: &'a str) -> (Ino, &'a [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.ino(dir), name.as_bytes())
    }
}

impl Side for Vol {
    fn set(&self, path: &str, name: &str, value: &[u8]) -> Result<(), i32> {
        let set = self.fs.setxattr(
            &Ctx::ROOT,
            self.ino(path),
            name.as_bytes(),
            value,
            XattrSet::Any,
        );
        set.map_err(|e| e.errno())
    }

    fn remove(&self, path: &str, name: &str) -> Result<(), i32> {
        self.fs
            .removexattr(&Ctx::ROOT, self.ino(path), name.as_bytes())
            .map_err(|e| e.errno())
    }

    fn chmod(&self, path: &str, mode: u32) {
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        self.fs.setattr(&Ctx::ROOT, self.ino(path), &set).unwrap();
    }

    fn mkdir(&self, path: &str, mode: u32, umask: u32) {
        let (dir, name) = self.parent(path);
        let made = self.fs.mkdir(&Ctx::ROOT, dir, name, mode, umask).unwrap();
        self.fs.forget(made.ino, 1);
    }

    fn file(&self, path: &str, mode: u32, umask: u32) {
        let (dir, name) = self.parent(path);
        let made = self
            .fs
            .mknod(&Ctx::ROOT, dir, name, libc::S_IFREG | mode, umask, 0)
            .unwrap();
        self.fs.forget(made.ino, 1);
    }

    fn see(&self, path: &str) -> Seen {
        let ino = self.ino(path);
        let xattr = |name: &str| self.fs.getxattr(ino, name.as_bytes()).ok();
        (
            self.fs.getattr(ino).unwrap().mode,
            xattr(ACCESS),
            xattr(DEFAULT),
        )
    }
}

/// Runs the steps; returns the state after each.
fn steps(side: &dyn Side) -> Vec<(String, Seen)> {
    let mut seen = Vec::new();
    let mut look = |what: &str, path: &str| seen.push((format!("{what}: {path}"), side.see(path)));
    side.mkdir("d", 0o777, 0o022);
    look("umask applies", "d");
    side.file("f", 0o666, 0o027);
    look("umask applies", "f");
    side.set("f", ACCESS, &named_user()).unwrap();
    look("access list", "f");
    side.chmod("f", 0o640);
    look("chmod changes the mask", "f");
    side.chmod("f", 0o4755);
    look("chmod again", "f");
    side.set("f", ACCESS, &minimal()).unwrap();
    look("a minimal list is the mode", "f");
    side.set("f", ACCESS, &named_user()).unwrap();
    side.remove("f", ACCESS).unwrap();
    look("removed", "f");
    side.set("d", DEFAULT, &named_user()).unwrap();
    look("default list", "d");
    side.file("d/f", 0o666, 0o077);
    look("inherits, umask does not count", "d/f");
    side.file("d/x", 0o1510, 0o077);
    look("inherits with less", "d/x");
    side.mkdir("d/e", 0o750, 0o077);
    look("a directory inherits both", "d/e");
    side.mkdir("d/e/g", 0o2777, 0);
    look("and passes on", "d/e/g");
    side.set("d/e", DEFAULT, &minimal()).unwrap();
    side.file("d/e/h", 0o777, 0o077);
    look("a minimal default list", "d/e/h");
    side.mkdir("d/e/i", 0o777, 0o077);
    look("a minimal default list", "d/e/i");
    side.remove("d/e", DEFAULT).unwrap();
    look("no default list any more", "d/e");
    side.set("d/e", DEFAULT, &named_user()).unwrap();
    // Setting a list without entries removes the list.
    side.set("d/e", DEFAULT, &acl(&[])).unwrap();
    look("an empty list", "d/e");
    // Too large for the inode.
    let many: Vec<(u16, u16, u32)> = (0..60).map(|i| (2, (i % 8) as u16, 5000 + i)).collect();
    let large = [
        vec![(1, 7, NONE)],
        many,
        vec![(4, 5, NONE), (0x10, 5, NONE), (0x20, 0, NONE)],
    ]
    .concat();
    side.set("d", DEFAULT, &acl(&large)).unwrap();
    side.mkdir("d/large", 0o777, 0);
    look("lists in a block", "d/large");
    side.chmod("d/large", 0o700);
    look("chmod of a list in a block", "d/large");
    seen
}

fn errors(side: &dyn Side) -> Vec<Result<(), i32>> {
    let owner_only = acl(&[(1, 7, NONE)]);
    let no_mask = acl(&[(1, 7, NONE), (2, 7, 5), (4, 7, NONE), (0x20, 7, NONE)]);
    let unordered = acl(&[(4, 7, NONE), (1, 7, NONE), (0x20, 7, NONE)]);
    vec![
        side.set("f", DEFAULT, &named_user()),
        side.set("f", ACCESS, &owner_only),
        side.set("f", ACCESS, &no_mask),
        side.set("f", ACCESS, &unordered),
        side.set("f", ACCESS, &[9, 0, 0, 0]),
        side.set("f", ACCESS, &[2, 0, 0]),
        side.set("d", DEFAULT, &no_mask),
        side.remove("f", ACCESS),
    ]
}

#[test]
fn acls_are_the_kernels() {
    let mkfs = Mkfs::blocks(4096).journal_mib(4);
    let theirs = Image::make(32 << 20, &mkfs).unwrap();
    let mount = kernel(&theirs);
    let expected = steps(&Kernel(mount.path()));
    let refused = errors(&Kernel(mount.path()));
    mount.umount().unwrap();

    let vol = Vol::new(32, &mkfs);
    for (got, expected) in steps(&vol).into_iter().zip(&expected) {
        assert_eq!(&got, expected);
    }
    assert_eq!(errors(&vol), refused);
    // The kernel reads the lists that StetFS stored, and StetFS those that the kernel stored.
    let paths = [
        "d", "f", "d/f", "d/x", "d/e", "d/e/g", "d/e/h", "d/e/i", "d/large",
    ];
    let seen: Vec<Seen> = paths.iter().map(|p| vol.see(p)).collect();
    let ours = vol.close();
    let mount = kernel(&ours);
    let by_kernel: Vec<Seen> = paths.iter().map(|p| Kernel(mount.path()).see(p)).collect();
    mount.umount().unwrap();
    assert_eq!(by_kernel, seen);
    let vol = Vol::on(theirs);
    let of_kernel: Vec<Seen> = paths.iter().map(|p| vol.see(p)).collect();
    assert_eq!(of_kernel, seen);
    vol.close();
}

#[test]
fn setgid_is_inherited() {
    let vol = Vol::new(16, &Mkfs::blocks(1024).journal_mib(2));
    Side::mkdir(&vol, "d", 0o2775, 0);
    let set = SetAttr {
        gid: Some(77),
        ..SetAttr::default()
    };
    vol.fs.setattr(&Ctx::ROOT, vol.ino("d"), &set).unwrap();
    vol.chmod("d", 0o2775);
    Side::file(&vol, "d/f", 0o644, 0);
    Side::mkdir(&vol, "d/sub", 0o755, 0);
    assert_eq!(
        (vol.attr("d/f").gid, vol.attr("d/f").mode & 0o7777),
        (77, 0o644)
    );
    assert_eq!(
        (vol.attr("d/sub").gid, vol.attr("d/sub").mode & 0o7777),
        (77, 0o2755)
    );
    let user = stetfs_ext4::Ctx {
        uid: 5,
        gid: 6,
        pid: 1,
    };
    let own = vol.fs.mkdir(&user, ROOT_INO, b"own", 0o700, 0).unwrap();
    vol.fs.forget(own.ino, 1);
    assert_eq!((own.uid, own.gid, own.mode & 0o7777), (5, 6, 0o700));
    vol.close();
}
