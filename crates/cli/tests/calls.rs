//! Tests of single calls that the trees of `interop` do not cover: each has the effect that it has
//! on the kernel's ext4.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{kernel, stetfs};
use rustix::fs::{FallocateFlags, fallocate};
use stetfs_testkit::sys::{file_handle, file_ioctl, open_by_handle};
use stetfs_testkit::{Image, Mkfs, Mounted, Mounter, cmd, wait_until};

/// Runs each test on StetFS, and on the kernel's ext4 to prove the test itself.
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
    /// O_TMPFILE
    files_without_a_name_vanish_or_get_one
    /// RENAME_WHITEOUT
    a_whiteout_takes_the_old_names_place
    copies_between_files_arrive
    /// FITRIM
    free_space_is_given_back
    /// FS_IOC_GETFSLABEL, FS_IOC_SETFSLABEL
    the_volume_can_be_named
    /// FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR
    flags_can_be_set_in_terms_of_xfs
    birth_times_are_told
    /// FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
    flags_can_be_set_and_mean_something
    /// EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_DEFAULT
    a_shutdown_keeps_what_was_written
    /// EXT4_GOING_FLAGS_LOGFLUSH
    a_shutdown_with_a_commit_keeps_names
    /// EXT4_GOING_FLAGS_NOLOGFLUSH
    a_shutdown_at_once_keeps_what_was_synced
    shutdowns_are_the_administrators
    /// name_to_handle_at(2), open_by_handle_at(2), as NFS servers use them
    handles_lead_to_files_the_kernel_forgot
    /// fallocate(2)
    allocating_takes_privileges_away
    /// The kernel tells a FUSE server of closed and forgotten files some time later.
    deleted_files_make_room_at_once
    /// io_uring with O_DIRECT, beside reads through the page cache
    direct_writes_are_seen_by_cached_reads
}

/// A fresh volume, mounted.
struct Site<'a> {
    root: &'a Path,
    image: &'a Path,
    /// The volume was shut down, and its journal needs to be replayed.
    down: Cell<bool>,
    by_kernel: bool,
}

impl<'a> Site<'a> {
    fn new(mounted: &'a Mounted, image: &'a Image) -> Site<'a> {
        Site {
            root: mounted.path(),
            image: image.path(),
            down: Cell::new(false),
            by_kernel: matches!(mounted, Mounted::Kernel(_)),
        }
    }
}

impl Site<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn open_root(&self) -> File {
        File::open(self.root).unwrap()
    }
}

/// Runs the check; then, after a remount, the second check that it returned.
fn on<Again: FnOnce(&Site<'_>)>(mounter: &Mounter, check: fn(&Site<'_>) -> Again) {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    // Other users may enter.
    std::fs::set_permissions(mounted.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let site = Site::new(&mounted, &image);
    let again = check(&site);
    let down = site.down.get();
    mounted.umount().unwrap();
    if down {
        mounter.recover(image.path()).unwrap();
    }
    image.e2fsck_fn().unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    again(&Site::new(&mounted, &image));
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

fn trusted_attributes_are_listed_for_administrators_only(
    site: &Site<'_>,
) -> impl FnOnce(&Site<'_>) + use<> {
    let root = site.root;
    let file = root.join("f");
    std::fs::write(&file, "").unwrap();
    for name in ["trusted.a", "user.b", "trusted.c"] {
        rustix::fs::setxattr(&file, name, b"x", rustix::fs::XattrFlags::empty()).unwrap();
    }
    // In a directory of its own: the path to the mount may be closed to other users.
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
    // Root without the capability has no privileges here.
    let no_admin = [
        "setpriv",
        "--bounding-set",
        "-sys_admin",
        "--inh-caps",
        "-sys_admin",
    ];
    assert_eq!(list(&no_admin), ["user.b"]);
    |_| {}
}

fn errno<T>(result: rustix::io::Result<T>) -> Option<i32> {
    result.err().map(rustix::io::Errno::raw_os_error)
}

fn files_without_a_name_vanish_or_get_one(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    use rustix::fs::{AtFlags, CWD};
    let inodes = || rustix::fs::statvfs(site.root).unwrap().f_ffree;
    let make = |flags: i32| {
        let mut options = File::options();
        options.read(true).write(true).mode(0o640);
        options
            .custom_flags(libc::O_TMPFILE | flags)
            .open(site.root)
            .unwrap()
    };
    let link = |file: &File, name: &str| {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, from, CWD, site.path(name), AtFlags::SYMLINK_FOLLOW)
    };
    let before = inodes();
    let mut kept = make(0);
    kept.write_all(b"written before it had a name").unwrap();
    let meta = kept.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.mode() & 0o7777), (0, 0o640));
    link(&kept, "kept").unwrap();
    link(&kept, "again").unwrap();
    assert_eq!(kept.metadata().unwrap().nlink(), 2);
    std::fs::remove_file(site.path("again")).unwrap();
    kept.sync_all().unwrap();

    let exclusive = make(libc::O_EXCL);
    assert_eq!(errno(link(&exclusive, "never")), Some(libc::ENOENT));
    // A file that lost its last name cannot get another.
    let lost = make(0);
    link(&lost, "lost").unwrap();
    std::fs::remove_file(site.path("lost")).unwrap();
    assert_eq!(errno(link(&lost, "lost")), Some(libc::ENOENT));
    let mut large = make(0);
    large.write_all(&vec![1; 3 << 20]).unwrap();
    drop((kept, exclusive, lost, large));
    let names = std::fs::read_dir(site.root).unwrap().count();
    assert_eq!(names, 2, "lost+found and one file");
    // Releases arrive some time after close(2) returned.
    for _ in 0..100 {
        if inodes() == before - 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(inodes(), before - 1);
    |site| {
        let text = std::fs::read_to_string(site.path("kept")).unwrap();
        assert_eq!(text, "written before it had a name");
        assert_eq!(site.path("kept").metadata().unwrap().nlink(), 1);
    }
}

fn a_whiteout_takes_the_old_names_place(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    std::fs::write(site.path("old"), "moved").unwrap();
    std::fs::write(site.path("target"), "overwritten").unwrap();
    let flags = RenameFlags::WHITEOUT;
    renameat_with(CWD, site.path("old"), CWD, site.path("target"), flags).unwrap();
    let check = |site: &Site<'_>| {
        let white = site.path("old").symlink_metadata().unwrap();
        assert!(white.file_type().is_char_device());
        assert_eq!((white.rdev(), white.mode() & 0o7777), (0, 0));
        let text = std::fs::read_to_string(site.path("target")).unwrap();
        assert_eq!(text, "moved");
    };
    check(site);
    check
}

fn copies_between_files_arrive(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    const LEN: usize = 20 << 20;
    let data: Vec<u8> = (0..LEN).map(|i| (i / 7 % 251) as u8).collect();
    std::fs::write(site.path("from"), &data).unwrap();
    std::fs::write(site.path("to"), vec![0xee; 5000]).unwrap();
    std::fs::set_permissions(site.path("to"), PermissionsExt::from_mode(0o644)).unwrap();
    let from = File::open(site.path("from")).unwrap();
    let to = File::options()
        .read(true)
        .write(true)
        .open(site.path("to"))
        .unwrap();
    // The page cache holds it, and must drop it.
    to.read_exact_at(&mut [0; 5000], 0).unwrap();
    let (mut at, mut out) = (13u64, 4000u64);
    loop {
        let n = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut out), LEN);
        if n.unwrap() == 0 {
            break;
        }
    }
    let check = move |site: &Site<'_>| {
        let mut got = Vec::new();
        File::open(site.path("to"))
            .unwrap()
            .read_to_end(&mut got)
            .unwrap();
        assert_eq!(got.len(), 4000 + LEN - 13);
        assert!(got[..4000].iter().all(|b| *b == 0xee));
        assert!(got[4000..] == data[13..]);
    };
    check(site);
    check
}

fn free_space_is_given_back(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    let used = |site: &Site<'_>| site.image.metadata().unwrap().blocks() * 512;
    let path = site.path("large");
    // Several times the size of the journal, because with data journaling some of it may still be
    // there; random, so that it cannot be compressed.
    let mut data = vec![0; 20 << 20];
    fastrand::Rng::with_seed(7).fill(&mut data);
    std::fs::write(&path, data).unwrap();
    std::fs::write(site.path("stays"), vec![9; 1 << 20]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(site.open_root()).unwrap();
    let full = used(site);
    let free = || rustix::fs::statvfs(site.root).unwrap().f_bfree * 4096;
    let before = free();
    std::fs::remove_file(&path).unwrap();
    // The kernel sends FORGET at its own time, also after a sync, and does not wait for an answer.
    wait_until("the file's space is free", || free() >= before + (20 << 20));
    rustix::fs::syncfs(site.open_root()).unwrap();
    let mut fstrim = Command::new("fstrim");
    let said = cmd::run(fstrim.arg("-v").arg(site.root)).unwrap();
    assert!(said.contains("bytes) trimmed"), "{said}");
    assert!(
        used(site) + (15 << 20) < full,
        "{full} bytes before, {} after",
        used(site)
    );
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", "fstrim", "."]);
    let refused = cmd::output(command.current_dir(site.root)).unwrap();
    assert!(!refused.status.success());
    |site| assert!(std::fs::read(site.path("stays")).unwrap() == vec![9; 1 << 20])
}

const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;

/// An ioctl of the root directory that a child without CAP_SYS_ADMIN is refused.
fn refused_without_admin(site: &Site<'_>, number: u32, len: usize) {
    let code = format!("import fcntl,os;fcntl.ioctl(os.open('.',0),{number},b'\\0'*{len})");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    command.args(["python3", "-c", &code]);
    let refused = cmd::output(command.current_dir(site.root)).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("Operation not permitted"), "{said}");
}

fn the_volume_can_be_named(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    let set = |name: &[u8]| {
        let mut argument = [0; 256];
        argument[..name.len()].copy_from_slice(name);
        file_ioctl(site.open_root().as_fd(), SETFSLABEL, &mut argument)
    };
    set(b"first").unwrap();
    refused_without_admin(site, SETFSLABEL, 256);
    set(b"sixteen bytes ok").unwrap();
    let long = set(b"seventeen is more").unwrap_err();
    assert_eq!(long.raw_os_error(), Some(libc::EINVAL));
    let check = |site: &Site<'_>| {
        let mut label = [0; 256];
        file_ioctl(site.open_root().as_fd(), GETFSLABEL, &mut label).unwrap();
        assert_eq!(&label[..17], b"sixteen bytes ok\0");
    };
    check(site);
    check
}

const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const XFLAG_APPEND: u8 = 0x10;

fn flags_can_be_set_in_terms_of_xfs(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    std::fs::write(site.path("f"), "").unwrap();
    let file = File::open(site.path("f")).unwrap();
    let mut argument = [0; 28];
    file_ioctl(file.as_fd(), FSGETXATTR, &mut argument).unwrap();
    assert_eq!(argument[0] & XFLAG_APPEND, 0);
    argument[0] |= XFLAG_APPEND;
    file_ioctl(file.as_fd(), FSSETXATTR, &mut argument).unwrap();
    |site| {
        let file = File::open(site.path("f")).unwrap();
        let mut argument = [0; 28];
        file_ioctl(file.as_fd(), FSGETXATTR, &mut argument).unwrap();
        assert_eq!(argument[0] & XFLAG_APPEND, XFLAG_APPEND);
        assert!(File::options().write(true).open(site.path("f")).is_err());
        argument[0] &= !XFLAG_APPEND;
        file_ioctl(file.as_fd(), FSSETXATTR, &mut argument).unwrap();
        assert!(File::options().write(true).open(site.path("f")).is_ok());
    }
}

fn birth_times_are_told(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    let before = std::time::SystemTime::now() - std::time::Duration::from_millis(50);
    std::fs::write(site.path("f"), "").unwrap();
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    File::options()
        .write(true)
        .open(site.path("f"))
        .unwrap()
        .set_modified(past)
        .unwrap();
    let born = site.path("f").metadata().unwrap().created().unwrap();
    assert!(born >= before && born <= std::time::SystemTime::now());
    move |site| {
        let again = site.path("f").metadata().unwrap();
        assert_eq!(again.created().unwrap(), born);
        assert_eq!(again.modified().unwrap(), past);
    }
}

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const NODUMP: u8 = 0x40;
const IMMUTABLE: u8 = 0x10;

fn flags_can_be_set_and_mean_something(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    let get = |site: &Site<'_>| {
        let mut argument = [0; 8];
        let file = File::open(site.path("f")).unwrap();
        file_ioctl(file.as_fd(), GETFLAGS, &mut argument).unwrap();
        argument[0]
    };
    let set = |site: &Site<'_>, flags: u8| {
        let file = File::open(site.path("f")).unwrap();
        let mut argument = [0; 8];
        file_ioctl(file.as_fd(), GETFLAGS, &mut argument).unwrap();
        argument[0] = flags;
        file_ioctl(file.as_fd(), SETFLAGS, &mut argument)
    };
    std::fs::write(site.path("f"), "kept").unwrap();
    assert_eq!(get(site) & (NODUMP | IMMUTABLE), 0);
    set(site, NODUMP | IMMUTABLE).unwrap();
    assert_eq!(get(site), NODUMP | IMMUTABLE);
    let refused = |e: std::io::Error| assert_eq!(e.raw_os_error(), Some(libc::EPERM));
    refused(std::fs::write(site.path("f"), "changed").unwrap_err());
    refused(std::fs::remove_file(site.path("f")).unwrap_err());
    refused(std::fs::hard_link(site.path("f"), site.path("g")).unwrap_err());
    move |site| {
        assert_eq!(get(site), NODUMP | IMMUTABLE);
        assert_eq!(std::fs::read(site.path("f")).unwrap(), b"kept");
        set(site, 0).unwrap();
        std::fs::write(site.path("f"), "changed").unwrap();
    }
}

const SHUTDOWN: u32 = 0x8004_587d;

fn shut_down(site: &Site<'_>, how: u32) -> std::io::Result<()> {
    file_ioctl(site.open_root().as_fd(), SHUTDOWN, &mut how.to_ne_bytes())
}

/// Writes and syncs one file, writes another, shuts down; every later call fails, and unmounting
/// does not.
fn write_and_shut_down(site: &Site<'_>, how: u32) {
    std::fs::write(site.path("synced"), vec![1; 100_000]).unwrap();
    File::open(site.path("synced")).unwrap().sync_all().unwrap();
    let mut open = File::create(site.path("late")).unwrap();
    open.write_all(&vec![2; 100_000]).unwrap();
    shut_down(site, how).unwrap();
    site.down.set(true);
    // A second shutdown is no error.
    shut_down(site, how).unwrap();
    let eio = |what: &str, result: std::io::Result<()>| {
        let errno = result.err().and_then(|e| e.raw_os_error());
        assert_eq!(errno, Some(libc::EIO), "{what} after the shutdown");
    };
    eio("write", open.write_all(&[3; 10]));
    eio("fsync", open.sync_all());
    eio("create", File::create(site.path("new")).map(drop));
    eio("open", File::open(site.path("synced")).map(drop));
    eio("mkdir", std::fs::create_dir(site.path("dir")));
    eio("unlink", std::fs::remove_file(site.path("synced")));
    eio(
        "rename",
        std::fs::rename(site.path("synced"), site.path("x")),
    );
    eio(
        "link",
        std::fs::hard_link(site.path("synced"), site.path("x")),
    );
}

fn synced(site: &Site<'_>) {
    assert!(std::fs::read(site.path("synced")).unwrap() == vec![1; 100_000]);
    assert!(!site.path("new").exists() && !site.path("dir").exists());
}

fn a_shutdown_keeps_what_was_written(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    write_and_shut_down(site, 0);
    |site| {
        synced(site);
        assert!(std::fs::read(site.path("late")).unwrap() == vec![2; 100_000]);
    }
}

fn a_shutdown_with_a_commit_keeps_names(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    write_and_shut_down(site, 1);
    |site| {
        synced(site);
        assert!(site.path("late").exists());
    }
}

fn a_shutdown_at_once_keeps_what_was_synced(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    write_and_shut_down(site, 2);
    |site| synced(site)
}

fn shutdowns_are_the_administrators(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    let wrong = shut_down(site, 3).unwrap_err();
    assert_eq!(wrong.raw_os_error(), Some(libc::EINVAL));
    refused_without_admin(site, SHUTDOWN, 4);
    std::fs::write(site.path("f"), "still up").unwrap();
    |site| assert_eq!(std::fs::read(site.path("f")).unwrap(), b"still up")
}

fn handles_lead_to_files_the_kernel_forgot(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    std::fs::create_dir(site.path("d")).unwrap();
    for name in ["d/f", "d/gone"] {
        std::fs::write(site.path(name), name).unwrap();
    }
    let handles = ["d/f", "d/gone", "d", "."].map(|name| file_handle(&site.path(name)).unwrap());
    std::fs::remove_file(site.path("d/gone")).unwrap();
    std::fs::rename(site.path("d"), site.path("moved")).unwrap();
    // After the remount the kernel knows none of the files.
    move |site| {
        let root = site.open_root();
        let open = |i: usize| open_by_handle(root.as_fd(), &handles[i]);
        let mut text = String::new();
        open(0).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "d/f");
        assert_eq!(open(1).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        // A new file may get the number.
        std::fs::write(site.path("new"), "new").unwrap();
        assert_eq!(open(1).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        for (i, name) in [(2, "moved"), (3, ".")] {
            let (by_handle, by_name) = (open(i).unwrap(), site.path(name));
            assert_eq!(
                by_handle.metadata().unwrap().ino(),
                by_name.metadata().unwrap().ino()
            );
        }
    }
}

/// A page that is read into the cache during a direct write does not serve later reads.
fn direct_writes_are_seen_by_cached_reads(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    use io_uring::{IoUring, opcode, types};
    const LEN: usize = 64 << 10;
    const PAGE: usize = 4096;
    let path = site.path("f");
    std::fs::write(&path, vec![0; LEN]).unwrap();
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_DIRECT);
    let direct = options.open(&path).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let file = File::open(&path).unwrap();
                let mut bytes = vec![0; LEN];
                while !stop.load(Ordering::Relaxed) {
                    file.read_exact_at(&mut bytes, 0).unwrap();
                }
            });
        }
        let cached = File::open(&path).unwrap();
        let mut ring = IoUring::new(4).unwrap();
        // O_DIRECT needs whole pages.
        let mut room = vec![0; LEN + PAGE];
        let skip = room.as_ptr().align_offset(PAGE);
        let mut stale = 0;
        for round in 0..2000u32 {
            let value = (round % 251) as u8 + 1;
            room[skip..skip + LEN].fill(value);
            let buf = &room[skip..skip + LEN];
            let fd = types::Fd(direct.as_raw_fd());
            let write = opcode::Write::new(fd, buf.as_ptr(), LEN as u32).build();
            // SAFETY: buffer and descriptor live, unchanged, until the completion is awaited below.
            unsafe { ring.submission().push(&write) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            assert_eq!(ring.completion().next().unwrap().result(), LEN as i32);
            let mut got = vec![0; LEN];
            cached.read_exact_at(&mut got, 0).unwrap();
            stale += u32::from(got != buf);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(stale, 0, "reads of what was before the write");
    });
    |_| {}
}

/// Preallocation by a user other than root clears set-user-id of a program, even without a write.
fn allocating_takes_privileges_away(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    let mode = |name: &str| site.path(name).metadata().unwrap().mode() & 0o7777;
    for (name, how) in [("a", "-l"), ("p", "-pl"), ("z", "-zl")] {
        // Without execution by the group, set-group-id means mandatory locking, and a member of the
        // group may keep it.
        for (user, group, before, left) in [
            ("65534", "65534", 0o6777, 0o777),
            ("65534", "0", 0o6777, 0o777),
            ("65534", "65534", 0o6666, 0o666),
            ("65534", "0", 0o6666, 0o2666),
            ("0", "0", 0o6777, 0o6777),
        ] {
            std::fs::write(site.path(name), vec![1; 10_000]).unwrap();
            std::fs::set_permissions(site.path(name), PermissionsExt::from_mode(before)).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", user, "--regid", group, "--clear-groups"]);
            command.args(["fallocate", "-o", "4096", how, "4096", name]);
            cmd::run(command.current_dir(site.root)).unwrap();
            let what = format!("fallocate {how} by {user}:{group} of {before:o}");
            assert_eq!(mode(name), left, "{what}");
        }
    }
    |_| {}
}

fn deleted_files_make_room_at_once(site: &Site<'_>) -> impl FnOnce(&Site<'_>) + use<> {
    // More than half of the volume.
    const LARGE: u64 = 40 << 20;
    let (one, other) = (site.path("one"), site.path("other"));
    let data = vec![7; LARGE as usize];
    for round in 0..40 {
        let file = File::create(&one).unwrap();
        let fill = || match round % 8 {
            0 => file.write_all_at(&data, 0),
            _ => fallocate(&file, FallocateFlags::empty(), 0, LARGE).map_err(Into::into),
        };
        let mut filled = fill();
        for _ in 0..50 {
            if !site.by_kernel || filled.is_ok() {
                break;
            }
            // The kernel's ext4 gets freed blocks back some time after their commit. An allocation
            // waits for that, but under load not long enough.
            rustix::fs::syncfs(&file).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            filled = fill();
        }
        filled.unwrap_or_else(|e| panic!("round {round}: {e}"));
        // The space comes back with the last name, the last handle, or the rename.
        match round % 3 {
            0 => {
                drop(file);
                std::fs::remove_file(&one).unwrap();
            }
            1 => {
                std::fs::remove_file(&one).unwrap();
                drop(file);
            }
            _ => {
                drop(file);
                std::fs::write(&other, "small").unwrap();
                std::fs::rename(&other, &one).unwrap();
            }
        }
    }
    |_| {}
}
