//! The columns of the matrix: operations on a cell.
//!
//! A cell is a directory with `f` and `g` (20000 bytes each), the directories `d` (with `x`, `sub`
//! and, of group 77, nothing else) and `e` (with `y`), a link `l`, and a pipe `p`. A row defines
//! the flags and the like of `f` or `d`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    UTIME_NOW, XattrFlags,
};
use stetfs_testkit::sys::file_ioctl;

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
/// Offset of `fsx_projid` in `struct fsxattr`.
const PROJECT: usize = 12;
/// A time that is neither now nor the time of any file.
const LONG_AGO: i64 = 1_000_000_000;

/// The part of a cell that an operation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// `f` and its names.
    File,
    /// `f`, through a descriptor that was opened before its flags were set.
    Held,
    /// `d` and the names in it.
    Dir,
    /// Access times.
    Access,
    /// Each flag, on each type of file.
    Flags,
}

/// The attributes compared besides names, types, owners, modes, links, sizes, content, extended
/// attributes and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sees {
    Plain,
    Times,
    Blocks,
}

/// An operation.
pub(crate) struct Op {
    pub(crate) name: String,
    pub(crate) group: Group,
    pub(crate) sees: Sees,
    run: Run,
}

type Run = Box<dyn Fn(&Cell) -> io::Result<()> + Send + Sync>;

impl Op {
    pub(crate) fn run(&self, cell: &Cell) -> io::Result<()> {
        (self.run)(cell)
    }

    /// Whether its changes may be promised to be durable when it returns.
    pub(crate) fn can_be_durable(&self) -> bool {
        matches!(self.group, Group::File | Group::Dir)
    }
}

/// The directory that an operation works in.
pub(crate) struct Cell(pub(crate) PathBuf);

impl Cell {
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn open(&self, name: &str, flags: i32) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(self.at(name))
    }

    /// `f`, opened when it had no flags.
    fn held(&self) -> io::Result<File> {
        let path = self.at("f");
        let flags = flags(&path)?;
        set_flags(&path, flags & KEPT)?;
        let file = self.open("f", 0)?;
        set_flags(&path, flags)?;
        Ok(file)
    }
}

/// `EXT4_EXTENTS_FL` and `EXT4_INLINE_DATA_FL`, which cannot be cleared, and
/// `EXT4_JOURNAL_DATA_FL`, for which root needs a privilege that it does not always have
/// (CAP_SYS_RESOURCE).
const KEPT: u32 = 0x1008_0000 | JOURNAL_DATA;
pub(crate) const JOURNAL_DATA: u32 = 0x4000;

fn ioctl(path: &Path, number: u32, argument: &mut [u8]) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)?;
    file_ioctl(file.as_fd(), number, argument)
}

pub(crate) fn flags(path: &Path) -> io::Result<u32> {
    let mut word = [0; 8];
    ioctl(path, GETFLAGS, &mut word)?;
    Ok(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
}

pub(crate) fn set_flags(path: &Path, flags: u32) -> io::Result<()> {
    let mut word = [0; 8];
    word[..4].copy_from_slice(&flags.to_ne_bytes());
    ioctl(path, SETFLAGS, &mut word)
}

fn fsxattr(path: &Path) -> io::Result<[u8; 28]> {
    let mut all = [0; 28];
    ioctl(path, FSGETXATTR, &mut all)?;
    Ok(all)
}

pub(crate) fn project(path: &Path) -> io::Result<u32> {
    let all = fsxattr(path)?;
    Ok(u32::from_ne_bytes(
        all[PROJECT..PROJECT + 4].try_into().unwrap(),
    ))
}

pub(crate) fn set_project(path: &Path, project: u32) -> io::Result<()> {
    let mut all = fsxattr(path)?;
    all[PROJECT..PROJECT + 4].copy_from_slice(&project.to_ne_bytes());
    ioctl(path, FSSETXATTR, &mut all)
}

fn set_xflag(path: &Path, flag: u32) -> io::Result<()> {
    let mut all = fsxattr(path)?;
    let old = u32::from_ne_bytes(all[..4].try_into().unwrap());
    all[..4].copy_from_slice(&(old | flag).to_ne_bytes());
    ioctl(path, FSSETXATTR, &mut all)
}

fn set_times(path: &Path, sec: i64, nsec: i64) -> io::Result<()> {
    let time = Timespec {
        tv_sec: sec,
        tv_nsec: nsec as _,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(
        path,
        name,
        value,
        XattrFlags::empty(),
    )?)
}

/// An ACL with an entry for user 5, in the form of `linux/posix_acl_xattr.h`.
fn acl() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (1, 6, NOBODY),
        (2, 4, 5),
        (4, 4, NOBODY),
        (16, 6, NOBODY),
        (32, 0, NOBODY),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

fn rename(cell: &Cell, from: &str, to: &str, flags: RenameFlags) -> io::Result<()> {
    let (from, to) = (cell.at(from), cell.at(to));
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, flags)?)
}

fn fallocate(cell: &Cell, open: i32, mode: FallocateFlags, at: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(cell.open("f", open)?, mode, at, len)?)
}

/// Copies 10000 bytes.
fn copy(cell: &Cell, from: &str, to: &str, flags: i32) -> io::Result<()> {
    let from = File::open(cell.at(from))?;
    let to = OpenOptions::new()
        .write(true)
        .custom_flags(flags)
        .open(cell.at(to))?;
    let mut left = 10_000;
    let (mut here, mut there) = (0, 15_000);
    while left > 0 {
        match rustix::fs::copy_file_range(&from, Some(&mut here), &to, Some(&mut there), left)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => left -= n,
        }
    }
    Ok(())
}

fn tmpfile(cell: &Cell) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(cell.at("d"), flags, Mode::from_raw_mode(0o640))?.into())
}

fn name_tmpfile(cell: &Cell) -> io::Result<()> {
    let file = tmpfile(cell)?;
    let this = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = cell.at("d/new");
    Ok(rustix::fs::linkat(
        CWD,
        this,
        CWD,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

/// Reads directly, because the page cache would answer without a request.
fn read(cell: &Cell, flags: i32) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(cell.at("f"))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    file.read_at(&mut [0], 0).map(drop)
}

fn list(cell: &Cell) -> io::Result<()> {
    fs::read_dir(cell.at("d"))?.try_for_each(|entry| entry.map(drop))
}

/// Gives `name` an access time, and a later change time if `later`.
fn accessed(cell: &Cell, name: &str, later: bool) -> io::Result<()> {
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs() as i64;
    set_times(&cell.at(name), if later { now + 3600 } else { LONG_AGO }, 0)
}

macro_rules! ops {
    ($all:ident: $group:ident $sees:ident { $($name:literal => |$c:ident| $run:expr;)* }) => {
        $($all.push(Op {
            name: $name.into(),
            group: Group::$group,
            sees: Sees::$sees,
            run: Box::new(move |$c: &Cell| $run),
        });)*
    };
}

/// All operations.
pub(crate) fn all() -> Vec<Op> {
    let mut all = Vec::new();
    content(&mut all);
    attributes(&mut all);
    names_of_files(&mut all);
    names_in_directories(&mut all);
    access(&mut all);
    each_flag(&mut all);
    all
}

fn content(all: &mut Vec<Op>) {
    let keep = FallocateFlags::KEEP_SIZE;
    let punch = FallocateFlags::PUNCH_HOLE | keep;
    let zero = FallocateFlags::ZERO_RANGE;
    let write = |file: File, at: u64| file.write_all_at(&[b'n'; 6000], at);
    ops!(all: File Plain {
        "open-read" => |c| File::open(c.at("f")).map(drop);
        "open-write" => |c| c.open("f", 0).map(drop);
        "open-append" => |c| c.open("f", libc::O_APPEND).map(drop);
        "open-trunc" => |c| c.open("f", libc::O_TRUNC).map(drop);
        "open-trunc-append" => |c| c.open("f", libc::O_TRUNC | libc::O_APPEND).map(drop);
        "write-over" => |c| write(c.open("f", 0)?, 3000);
        "write-end" => |c| write(c.open("f", 0)?, 20_000);
        "write-append" => |c| write(c.open("f", libc::O_APPEND)?, 0);
        "write-behind" => |c| write(c.open("f", 0)?, 90_000);
        "write-dsync" => |c| write(c.open("f", libc::O_DSYNC)?, 18_000);
        "write-sync" => |c| write(c.open("f", libc::O_SYNC)?, 18_000);
        "write-direct" => |c| {
            let bytes = vec![b'n'; 12_288];
            let odd = bytes.as_ptr().align_offset(4096);
            c.open("f", libc::O_DIRECT)?.write_all_at(&bytes[odd..odd + 4096], 4096)
        };
        "truncate-less" => |c| c.open("f", 0)?.set_len(5000);
        "truncate-more" => |c| c.open("f", 0)?.set_len(50_000);
        "truncate-same" => |c| c.open("f", 0)?.set_len(20_000);
        "truncate-zero" => |c| c.open("f", 0)?.set_len(0);
        "truncate-osync" => |c| c.open("f", libc::O_SYNC)?.set_len(5000);
        "write-and-sync-other" => |c| {
            write(c.open("f", 0)?, 3000)?;
            let other = c.open("g", 0)?;
            other.set_permissions(Permissions::from_mode(0o600))?;
            other.sync_all()
        };
        "copy-to" => |c| copy(c, "g", "f", 0);
        "copy-to-dsync" => |c| copy(c, "g", "f", libc::O_DSYNC);
        "copy-from" => |c| copy(c, "f", "g", 0);
    });
    ops!(all: File Blocks {
        "fallocate" => |c| fallocate(c, 0, FallocateFlags::empty(), 10_000, 50_000);
        "fallocate-keep" => |c| fallocate(c, 0, keep, 30_000, 50_000);
        "fallocate-osync" => |c| fallocate(c, libc::O_SYNC, FallocateFlags::empty(), 10_000, 50_000);
        "punch" => |c| fallocate(c, 0, punch, 2000, 10_000);
        "punch-osync" => |c| fallocate(c, libc::O_SYNC, punch, 2000, 10_000);
        "zero" => |c| fallocate(c, 0, zero, 2000, 30_000);
        "zero-keep" => |c| fallocate(c, 0, zero | keep, 2000, 30_000);
        "zero-osync" => |c| fallocate(c, libc::O_SYNC, zero, 2000, 30_000);
        "collapse" => |c| fallocate(c, 0, FallocateFlags::COLLAPSE_RANGE, 4096, 4096);
        "insert" => |c| fallocate(c, 0, FallocateFlags::INSERT_RANGE, 4096, 4096);
    });
    ops!(all: Held Plain {
        "held-write-over" => |c| write(c.held()?, 3000);
        "held-write-end" => |c| write(c.held()?, 20_000);
        "held-truncate-less" => |c| c.held()?.set_len(5000);
        "held-truncate-more" => |c| c.held()?.set_len(50_000);
        "held-fallocate" => |c| Ok(rustix::fs::fallocate(c.held()?, FallocateFlags::empty(), 0, 50_000)?);
        "held-fallocate-keep" => |c| Ok(rustix::fs::fallocate(c.held()?, keep, 0, 50_000)?);
        "held-punch" => |c| Ok(rustix::fs::fallocate(c.held()?, punch, 2000, 10_000)?);
        "held-zero" => |c| Ok(rustix::fs::fallocate(c.held()?, zero, 2000, 10_000)?);
        "held-fchmod" => |c| c.held()?.set_permissions(Permissions::from_mode(0o600));
        "held-fsync" => |c| c.held()?.sync_all();
    });
}

fn attributes(all: &mut Vec<Op>) {
    for (group, it) in [(Group::File, "f"), (Group::Dir, "d")] {
        let mut add = |name: &str, sees: Sees, run: fn(&Path) -> io::Result<()>| {
            all.push(Op {
                name: format!("{name}-{it}"),
                group,
                sees,
                run: Box::new(move |c| run(&c.at(it))),
            });
        };
        add("chmod", Sees::Plain, |p| {
            fs::set_permissions(p, Permissions::from_mode(0o700))
        });
        add("chown", Sees::Plain, |p| chown(p, Some(7), Some(8)));
        add("utimes-set", Sees::Times, |p| set_times(p, LONG_AGO, 0));
        add("utimes-now", Sees::Plain, |p| set_times(p, 0, UTIME_NOW));
        add("setxattr-user", Sees::Plain, |p| {
            set_attribute(p, "user.new", b"value")
        });
        add("setxattr-trusted", Sees::Plain, |p| {
            set_attribute(p, "trusted.new", b"value")
        });
        add("setxattr-security", Sees::Plain, |p| {
            set_attribute(p, "security.new", b"value")
        });
        add("setxattr-replace", Sees::Plain, |p| {
            set_attribute(p, "user.old", b"other")
        });
        add("setxattr-large", Sees::Plain, |p| {
            set_attribute(p, "user.large", &[b'v'; 3000])
        });
        add("removexattr", Sees::Plain, |p| {
            Ok(rustix::fs::removexattr(p, "user.old")?)
        });
        add("setacl", Sees::Plain, |p| {
            set_attribute(p, "system.posix_acl_access", &acl())
        });
        add("chattr", Sees::Plain, |p| set_flags(p, flags(p)? ^ 0x40));
        add("chattr-same", Sees::Plain, |p| set_flags(p, flags(p)?));
        add("chattr-none", Sees::Plain, |p| {
            set_flags(p, flags(p)? & KEPT)
        });
        add("fssetxattr", Sees::Plain, |p| set_xflag(p, 0x80));
        add("project", Sees::Plain, |p| set_project(p, 9));
    }
    ops!(all: Dir Plain {
        "setacl-default" => |c| set_attribute(&c.at("d"), "system.posix_acl_default", &acl());
    });
}

fn names_of_files(all: &mut Vec<Op>) {
    ops!(all: File Plain {
        "link" => |c| fs::hard_link(c.at("f"), c.at("e/f"));
        "unlink" => |c| fs::remove_file(c.at("f"));
        "rename" => |c| rename(c, "f", "h", RenameFlags::empty());
        "rename-away" => |c| rename(c, "f", "e/f", RenameFlags::empty());
        "rename-over-other" => |c| rename(c, "f", "g", RenameFlags::empty());
        "rename-over-it" => |c| rename(c, "g", "f", RenameFlags::empty());
        "exchange" => |c| rename(c, "f", "g", RenameFlags::EXCHANGE);
        "whiteout" => |c| rename(c, "f", "h", RenameFlags::WHITEOUT);
        "noreplace" => |c| rename(c, "f", "g", RenameFlags::NOREPLACE);
    });
}

fn names_in_directories(all: &mut Vec<Op>) {
    let nothing = RenameFlags::empty();
    ops!(all: Dir Plain {
        "create" => |c| OpenOptions::new().write(true).create_new(true).mode(0o640).open(c.at("d/new")).map(drop);
        "mkdir" => |c| fs::create_dir(c.at("d/new"));
        "mkfifo" => |c| Ok(rustix::fs::mknodat(CWD, c.at("d/new"), FileType::Fifo, Mode::from_raw_mode(0o640), 0)?);
        "mknod" => |c| Ok(rustix::fs::mknodat(CWD, c.at("d/new"), FileType::CharacterDevice, Mode::from_raw_mode(0o640), rustix::fs::makedev(1, 3))?);
        "symlink" => |c| symlink("target", c.at("d/new"));
        "symlink-long" => |c| symlink("t".repeat(300), c.at("d/new"));
        "link-into" => |c| fs::hard_link(c.at("g"), c.at("d/new"));
        "tmpfile" => |c| tmpfile(c).map(drop);
        "tmpfile-name" => |c| name_tmpfile(c);
        "unlink-in" => |c| fs::remove_file(c.at("d/x"));
        "rmdir-in" => |c| fs::remove_dir(c.at("d/sub"));
        "rename-in" => |c| rename(c, "d/x", "d/z", nothing);
        "rename-out" => |c| rename(c, "d/x", "e/z", nothing);
        "rename-into" => |c| rename(c, "e/y", "d/z", nothing);
        "rename-over-in" => |c| rename(c, "e/y", "d/x", nothing);
        "rename-over-out" => |c| rename(c, "d/x", "e/y", nothing);
        "exchange-in" => |c| rename(c, "d/x", "e/y", RenameFlags::EXCHANGE);
        "whiteout-in" => |c| rename(c, "d/x", "d/z", RenameFlags::WHITEOUT);
        "whiteout-out" => |c| rename(c, "d/x", "e/z", RenameFlags::WHITEOUT);
        "move-dir-out" => |c| rename(c, "d/sub", "e/sub", nothing);
        "move-dir-into" => |c| rename(c, "e/under", "d/under", nothing);
        "write-in" => |c| c.open("d/x", 0)?.write_all_at(b"new", 0);
        "write-new" => |c| fs::write(c.at("d/new"), [b'n'; 6000]);
        "chmod-in" => |c| fs::set_permissions(c.at("d/x"), Permissions::from_mode(0o600));
        "rename-dir" => |c| rename(c, "d", "h", nothing);
        "move-dir" => |c| rename(c, "d", "e/d", nothing);
        "rmdir" => |c| {
            fs::remove_dir(c.at("d/sub"))?;
            fs::remove_file(c.at("d/x"))?;
            fs::remove_dir(c.at("d"))
        };
    });
}

fn access(all: &mut Vec<Op>) {
    ops!(all: Access Times {
        "read-old" => |c| accessed(c, "f", false).and_then(|()| read(c, 0));
        "read-later" => |c| accessed(c, "f", true).and_then(|()| read(c, 0));
        "read-noatime" => |c| accessed(c, "f", false).and_then(|()| read(c, libc::O_NOATIME));
        "list-old" => |c| accessed(c, "d", false).and_then(|()| list(c));
        "list-later" => |c| accessed(c, "d", true).and_then(|()| list(c));
    });
}

/// Each flag set on a regular file, a directory and a pipe, by ext4's ioctl and by `struct
/// fsxattr`.
fn each_flag(all: &mut Vec<Op>) {
    for it in ["f", "d", "p"] {
        for flag in (0..32)
            .map(|bit| 1u32 << bit)
            .filter(|f| *f != JOURNAL_DATA)
        {
            let mut add = |name: &str, run: Run| {
                all.push(Op {
                    name: format!("{name}-{flag:#x}-{it}"),
                    group: Group::Flags,
                    sees: Sees::Plain,
                    run,
                });
            };
            add(
                "flag",
                Box::new(move |c| set_flags(&c.at(it), flags(&c.at(it))? | flag)),
            );
            add("xflag", Box::new(move |c| set_xflag(&c.at(it), flag)));
        }
        all.push(Op {
            name: format!("flag-extents-off-{it}"),
            group: Group::Flags,
            sees: Sees::Plain,
            run: Box::new(move |c| set_flags(&c.at(it), flags(&c.at(it))? & !0x8_0000)),
        });
    }
}
