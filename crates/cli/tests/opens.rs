//! Tests of open files that StetFS does not know of: they behave as open files must, and opening
//! sends no request (decisions/0017). Each check also runs with handles, and on the kernel's ext4
//! to prove the test itself.

mod guarded;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::common::daemon::{Daemon, fails, json, ok};
use crate::common::{kernel, stetfs, stetfs_with};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RawDir, SeekFrom};
use rustix::mm::{MapFlags, ProtFlags};
use stetfs_testkit::{Image, Mkfs, Mounter, cmd, wait_until};

use guarded::*;

macro_rules! on_all {
    ($($(#[$doc:meta])* $name:ident)*) => {
        mod stateless { $(
            $(#[$doc])*
            #[test]
            fn $name() { super::on(&super::stetfs(), super::$name); }
        )* }
        mod handles { $(
            #[test]
            fn $name() { super::on(&super::stetfs_with("opens=handles"), super::$name); }
        )* }
        mod harness_kernel { $(
            #[test]
            fn $name() { super::on(&super::kernel(), super::$name); }
        )* }
    };
}

on_all! {
    /// Also before its first write, and when the kernel drops it from its cache.
    a_removed_file_stays_while_it_is_open
    what_is_appended_and_truncated_arrives
    /// EPERM from open(2), openat(2) and openat2(2)
    guarded_files_are_not_opened_for_writing
    append_only_files_are_not_forged
    what_is_stored_by_an_older_mapping_of_an_immutable_file_goes
    what_was_stored_before_a_file_is_guarded_stays
    /// access(2), acct(2)
    who_asks_is_told_of_guards
    owners_open_no_guarded_file_by_io_uring
    who_has_a_file_open_keeps_it_when_its_mode_changes
    a_file_that_is_written_is_not_executed
    locks_and_leases_hold
    what_is_mapped_and_written_arrives
    /// O_NOATIME
    access_times_stay_for_who_asks_for_that
    /// telldir(3), seekdir(3)
    a_directory_that_changes_is_listed_without_gaps
    what_is_deleted_while_it_is_listed_goes
    /// rmdir(2) of a working directory
    an_empty_directory_can_go_while_it_is_open
}

fn on(mounter: &Mounter, check: fn(&Path)) {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    fs::set_permissions(mounted.path(), PermissionsExt::from_mode(0o755)).unwrap();
    check(mounted.path());
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

fn read_write(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

fn a_removed_file_stays_while_it_is_open(root: &Path) {
    let path = root.join("f");
    let mut numbers = BTreeSet::new();
    let open: Vec<File> = (0..20)
        .map(|i| {
            fs::write(&path, "first").unwrap();
            let file = read_write(&path).unwrap();
            if i % 2 == 0 {
                file.write_all_at(b"FIRST", 0).unwrap();
            }
            fs::remove_file(&path).unwrap();
            assert!(
                numbers.insert(file.metadata().unwrap().ino()),
                "a number that is in use"
            );
            file
        })
        .collect();
    for (i, file) in open.iter().enumerate() {
        file.write_all_at(&[i as u8; 30_000], 5).unwrap();
        file.sync_all().unwrap();
        let mut content = vec![0; 30_006];
        assert_eq!(file.read_at(&mut content, 0).unwrap(), 30_005);
        assert_eq!(&content[..5], if i % 2 == 0 { b"FIRST" } else { b"first" });
        assert!(content[5..30_005].iter().all(|b| *b == i as u8));
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.set_len(10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10);
    }
    let free = || rustix::fs::statvfs(root).unwrap().f_ffree;
    let before = free();
    drop(open);
    wait_until("the end of the files", || free() == before + 20);
}

fn what_is_appended_and_truncated_arrives(root: &Path) {
    let path = root.join("log");
    let append = || {
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(&path).unwrap()
    };
    let (mut a, mut b) = (append(), append());
    for _ in 0..100 {
        a.write_all(b"aaa\n").unwrap();
        b.write_all(b"b\n").unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "aaa\nb\n".repeat(100));
    let emptied = OpenOptions::new().write(true).truncate(true).open(&path);
    assert_eq!(emptied.unwrap().metadata().unwrap().len(), 0);
    a.write_all(b"again\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "again\n");
}

/// Runs `work` while flags of chattr(1) are set.
fn with_flags(path: &Path, flags: &str, work: impl FnOnce()) {
    let chattr = |how: &str| cmd::run(Command::new("chattr").arg(how).arg(path)).unwrap();
    chattr(&format!("+{flags}"));
    work();
    chattr(&format!("-{flags}"));
}

fn guarded_files_are_not_opened_for_writing(root: &Path) {
    let path = root.join("f");
    fs::write(&path, "content").unwrap();
    // The page cache is filled before: it does not decide.
    assert_eq!(fs::read_to_string(&path).unwrap(), "content");
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags).open(&path)
    };
    let opened = |options: &mut OpenOptions| errno(options.open(&path));
    let how = OFlags::WRONLY;
    let openat2 = || {
        let resolve = rustix::fs::ResolveFlags::empty();
        rustix::fs::openat2(CWD, &path, how, Mode::empty(), resolve).err()
    };
    let eperm = Some(libc::EPERM);
    let before = read_write(&path).unwrap();
    with_flags(&path, "i", || {
        for _ in 0..3 {
            assert_eq!(opened(OpenOptions::new().write(true)), eperm);
            assert_eq!(opened(OpenOptions::new().read(true).write(true)), eperm);
            assert_eq!(opened(OpenOptions::new().append(true)), eperm);
            assert_eq!(opened(OpenOptions::new().write(true).create(true)), eperm);
            assert_eq!(opened(OpenOptions::new().write(true).truncate(true)), eperm);
            assert_eq!(openat2(), Some(rustix::io::Errno::PERM));
            assert_eq!(fs::read_to_string(&path).unwrap(), "content");
            assert_eq!(path.metadata().unwrap().len(), 7);
        }
        assert!(open(libc::O_NOATIME).is_ok());
        assert_eq!(errno(before.write_at(b"x", 0)), eperm);
        assert_eq!(errno(before.set_len(0)), eperm);
    });
    assert!(read_write(&path).is_ok());
    with_flags(&path, "a", || {
        assert_eq!(opened(OpenOptions::new().write(true)), eperm);
        assert_eq!(
            opened(OpenOptions::new().write(true).create(true).truncate(true)),
            eperm
        );
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        log.write_all(b", more").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "content, more");
    });
    read_write(&path).unwrap().set_len(3).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "con");
}

fn who_has_a_file_open_keeps_it_when_its_mode_changes(root: &Path) {
    let path = root.join("f");
    fs::write(&path, "secret").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let script =
        "exec 3<>f; chmod 0 f 2>&-; echo ready; read go; cat <&3 && echo more >&3 && ! cat f";
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    stranger.args(["sh", "-c", script]).current_dir(root);
    stranger.stdin(std::process::Stdio::piped());
    stranger.stdout(std::process::Stdio::piped());
    stranger.stderr(std::process::Stdio::null());
    let mut child = stranger.spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    from.read_exact(&mut [0; 6]).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o0)).unwrap();
    to.write_all(b"\n").unwrap();
    let mut said = String::new();
    from.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert_eq!(said, "secret");
    assert_eq!(fs::read_to_string(&path).unwrap(), "secretmore\n");
}

fn a_file_that_is_written_is_not_executed(root: &Path) {
    let path = root.join("true");
    fs::copy("/bin/true", &path).unwrap();
    let writer = read_write(&path).unwrap();
    let run = || errno(Command::new(&path).status());
    assert_eq!(run(), Some(libc::ETXTBSY));
    drop(writer);
    assert_eq!(run(), None);
    let sleep = root.join("sleep");
    fs::copy("/bin/sleep", &sleep).unwrap();
    let mut child = Command::new(&sleep).arg("60").spawn().unwrap();
    assert_eq!(errno(read_write(&sleep)), Some(libc::ETXTBSY));
    // It is not truncated either.
    let emptied = OpenOptions::new().write(true).truncate(true).open(&sleep);
    assert_eq!(errno(emptied), Some(libc::ETXTBSY));
    assert!(sleep.metadata().unwrap().len() > 0);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn locks_and_leases_hold(root: &Path) {
    let path = root.join("f");
    fs::write(&path, "").unwrap();
    let (a, b) = (read_write(&path).unwrap(), read_write(&path).unwrap());
    rustix::fs::flock(&a, FlockOperation::LockExclusive).unwrap();
    let other = || rustix::fs::flock(&b, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(other(), Err(rustix::io::Errno::WOULDBLOCK));
    drop(a);
    other().unwrap();
    drop(b);
    let lease = "import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
try:
    os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
except BlockingIOError:
    print('broken')";
    let said = cmd::run(Command::new("python3").args(["-c", lease]).arg(&path)).unwrap();
    assert_eq!(said.trim(), "broken", "by who opens for writing");
}

fn what_is_mapped_and_written_arrives(root: &Path) {
    const LEN: usize = 300_000;
    let path = root.join("f");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    file.set_len(LEN as u64).unwrap();
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, used here only.
    let place = unsafe { rustix::mm::mmap(std::ptr::null_mut(), LEN, prot, flags, &file, 0) };
    let place = place.unwrap().cast::<u8>();
    drop(file);
    // Its name is removed before its content is written.
    let kept = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    // SAFETY: the mapping is as long, and stands until munmap.
    unsafe { place.write_bytes(9, LEN) };
    // SAFETY: the mapping is not used from here on.
    unsafe { rustix::mm::munmap(place.cast(), LEN) }.unwrap();
    kept.sync_all().unwrap();
    rustix::fs::fadvise(&kept, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut content = vec![0; LEN];
    kept.read_exact_at(&mut content, 0).unwrap();
    assert!(content.iter().all(|b| *b == 9));
}

fn access_times_stay_for_who_asks_for_that(root: &Path) {
    let path = root.join("f");
    fs::write(&path, "x".repeat(10_000)).unwrap();
    // Older than its change: by the rules of relatime the next read counts.
    let old = rustix::fs::Timespec {
        tv_sec: 1_000_000,
        tv_nsec: 0,
    };
    let times = rustix::fs::Timestamps {
        last_access: old,
        last_modification: rustix::fs::Timespec {
            tv_sec: 2_000_000,
            tv_nsec: 0,
        },
    };
    rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    let read = |flags: i32| {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(flags).open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        file.read_exact_at(&mut [0; 9_000], 0).unwrap();
        file.metadata().unwrap().atime()
    };
    assert_eq!(read(libc::O_NOATIME), 1_000_000);
    assert!(read(0) > 2_000_000);
}

/// Some entries of a directory from its current position: their names, and the position after each.
fn some_entries(dir: &File, buffer: usize) -> Vec<(String, u64)> {
    let mut buffer = vec![MaybeUninit::uninit(); buffer];
    let mut raw = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = match entry {
            // The directory was removed.
            Err(rustix::io::Errno::NOENT) => break,
            entry => entry.unwrap(),
        };
        let name = entry.file_name().to_str().unwrap().to_owned();
        found.push((name, entry.next_entry_cookie()));
        if raw.is_buffer_empty() {
            break;
        }
    }
    found
}

fn rest_of(dir: &File, buffer: usize) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    loop {
        let some = some_entries(dir, buffer);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

fn a_directory_that_changes_is_listed_without_gaps(root: &Path) {
    const STAY: usize = 3_000;
    let path = root.join("d");
    fs::create_dir(&path).unwrap();
    let stays: BTreeSet<String> = (0..STAY).map(|i| format!("stays-{i}")).collect();
    for name in &stays {
        File::create(path.join(name)).unwrap();
    }
    for round in 0..4 {
        // The first listing finds no cache, later ones find everything cached.
        let dir = File::open(&path).unwrap();
        let mut listed = Vec::new();
        let mut step = 0;
        loop {
            let some = some_entries(&dir, 2_000);
            if some.is_empty() {
                break;
            }
            listed.extend(some);
            step += 1;
            // Enough to split leaves meanwhile.
            for i in 0..30 {
                let name = format!("comes-{round}-{step}-{i}");
                File::create(path.join(&name)).unwrap();
                if i % 2 == 0 {
                    fs::remove_file(path.join(&name)).unwrap();
                }
            }
            if step % 5 == 0 {
                // A listing from the beginning by another descriptor makes the kernel read it
                // again.
                assert!(fs::read_dir(&path).unwrap().count() >= STAY);
            }
        }
        let mut count = BTreeMap::<&str, u32>::new();
        for (name, _) in &listed {
            *count.entry(name).or_default() += 1;
        }
        for name in &stays {
            assert_eq!(count.get(name.as_str()), Some(&1), "{name}, round {round}");
        }
        // Back to known positions, some of them of files that are gone by now.
        for (name, _) in listed.iter().filter(|(name, _)| name.starts_with("comes")) {
            let _ = fs::remove_file(path.join(name));
        }
        for at in [0, 1, 7, listed.len() / 2, listed.len() - 2] {
            let place = listed[at].1;
            rustix::fs::seek(&dir, SeekFrom::Start(place)).unwrap();
            let again: BTreeSet<String> = rest_of(&dir, 5_000)
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            for (name, _) in listed[at + 1..].iter() {
                let is_there = stays.contains(name);
                assert!(!is_there || again.contains(name), "{name} behind {at}");
            }
            for (name, _) in &listed[..=at] {
                let was_there = stays.contains(name);
                assert!(!was_there || !again.contains(name), "{name} before {at}");
            }
        }
        rustix::fs::seek(&dir, SeekFrom::Start(0)).unwrap();
        let now: BTreeSet<String> = fs::read_dir(&path)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        let rewound = rest_of(&dir, 4_000).into_iter().map(|(name, _)| name);
        let rewound: BTreeSet<String> = rewound.filter(|n| !n.starts_with('.')).collect();
        assert_eq!(rewound, now);
    }
}

fn what_is_deleted_while_it_is_listed_goes(root: &Path) {
    let path = root.join("d");
    for round in 0..3 {
        fs::create_dir(&path).unwrap();
        for i in 0..2_000 {
            File::create(path.join(format!("name-{round}-{i}"))).unwrap();
        }
        if round > 0 {
            // After this the kernel has all of it cached.
            assert_eq!(fs::read_dir(&path).unwrap().count(), 2_000);
        }
        let watcher = File::open(&path).unwrap();
        assert!(!some_entries(&watcher, 1_000).is_empty());
        match round {
            2 => {
                cmd::run(Command::new("rm").arg("-rf").arg(&path)).unwrap();
            }
            _ => fs::remove_dir_all(&path).unwrap(),
        }
        rustix::fs::seek(&watcher, SeekFrom::Start(0)).unwrap();
        assert!(
            rest_of(&watcher, 1_000).len() <= 2,
            "what is gone is listed"
        );
    }
}

fn an_empty_directory_can_go_while_it_is_open(root: &Path) {
    let path = root.join("d");
    fs::create_dir(&path).unwrap();
    let dir = File::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    dir.sync_all().unwrap();
    assert!(rest_of(&dir, 1_000).len() <= 2);
    let inside = format!("/proc/self/fd/{}/new", dir.as_raw_fd());
    assert_eq!(errno(File::create(inside)), Some(libc::ENOENT));
    fs::create_dir(&path).unwrap();
    let (old, new) = (dir.metadata().unwrap(), path.metadata().unwrap());
    assert_ne!(old.ino(), new.ino(), "a number that is in use");
}

/// Requests since the mount.
fn requests(mount: &Daemon) -> BTreeMap<String, u64> {
    let stat = json(&["stat", mount.dir()]);
    let counts = stat["requests"].as_object().unwrap().iter();
    counts
        .map(|(kind, n)| (kind.clone(), n.as_u64().unwrap()))
        .collect()
}

/// The requests during `work`, by kind.
fn requests_of(mount: &Daemon, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = requests(mount);
    work();
    let mut now = requests(mount);
    for (kind, n) in before {
        *now.get_mut(&kind).unwrap() -= n;
    }
    // Any sync(2) on this machine sends a request to each mount.
    now.retain(|kind, n| *n > 0 && kind != "syncfs");
    now
}

/// Unmounts. A child that another test just forked holds all descriptors until it executes its
/// program.
fn unmount(mount: &Daemon) {
    wait_until("the unmount", || {
        crate::common::daemon::stetfs(&["umount", mount.dir()])
            .status
            .success()
    });
    mount.image.e2fsck_fn().unwrap();
}

#[test]
fn what_is_cached_is_opened_and_listed_without_a_request() {
    let given = std::env::var("STETFS_TEST_OPTIONS").unwrap_or_default();
    for (options, asks) in [("", false), ("opens=handles", true), ("direct_io", true)] {
        let options = [given.as_str(), options].join(",");
        let mount = Daemon::new(&options);
        let dir = mount.file("d");
        fs::create_dir(&dir).unwrap();
        for i in 0..300 {
            fs::write(dir.join(format!("f{i}")), "content").unwrap();
        }
        let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 300);
        let read = || {
            for i in 0..50 {
                // Not `fs::read`: it asks for the birth time, too, which Linux 6.18 does not cache.
                let mut content = [0; 8];
                let mut file = File::open(dir.join(format!("f{i}"))).unwrap();
                assert_eq!(file.read(&mut content).unwrap(), 7);
                assert_eq!(&content, b"content\0");
            }
        };
        // After a listing that was not cached the kernel asks for its access time once.
        list();
        list();
        read();
        let of_reading = requests_of(&mount, read);
        let of_listing = requests_of(&mount, list);
        let kinds = |of: &BTreeMap<String, u64>| of.keys().cloned().collect::<Vec<_>>();
        if asks {
            assert_eq!(of_reading["open"], 50, "{options}");
            assert!(of_listing["opendir"] > 0, "{options}");
        } else {
            assert_eq!(kinds(&of_reading), [""; 0], "{options}");
            assert_eq!(kinds(&of_listing), [""; 0], "{options}");
            let all = requests(&mount);
            // One each, whose answer says that no further ones are needed.
            assert_eq!(all.get("open"), Some(&1), "{options}");
            assert_eq!(all.get("opendir"), Some(&1), "{options}");
            assert_eq!(all.get("releasedir"), None, "{options}");
            // Also no release for files that were made by a request that opens them.
            assert_eq!(all.get("create"), Some(&1), "{options}");
            assert_eq!(all.get("release"), None, "{options}");
            let of_making = requests_of(&mount, || drop(File::create(dir.join("new"))));
            assert_eq!(of_making.get("mknod"), Some(&1), "{options}");
            assert_eq!(of_making.get("release"), None, "{options}");
            fs::remove_file(dir.join("new")).unwrap();
        }
        if options.ends_with("direct_io") {
            assert_eq!(of_reading["read"] % 50, 0, "{options}");
        } else {
            assert_eq!(of_listing.get("readdir"), None, "{options}");
            assert_eq!(of_listing.get("readdirplus"), None, "{options}");
        }
        // Changes are visible.
        fs::remove_file(dir.join("f7")).unwrap();
        fs::write(dir.join("f8"), "others").unwrap();
        let names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert!(!names.iter().any(|name| name == "f7"), "{options}");
        assert_eq!(fs::read(dir.join("f8")).unwrap(), b"others", "{options}");
        unmount(&mount);
    }
}

#[test]
fn a_remount_waits_for_no_name_and_keeps_what_is_open() {
    for options in ["", "opens=handles"] {
        let mount = Daemon::new(options);
        let remount = ["mount", "-o", "remount,commit=9", "none", mount.dir()];
        let (kept, gone) = (mount.file("kept"), mount.file("gone"));
        fs::write(&kept, "content").unwrap();
        fs::write(&gone, "content").unwrap();
        let (file, nameless) = (read_write(&kept).unwrap(), read_write(&gone).unwrap());
        let dir = File::open(&mount.dir).unwrap();
        fs::remove_file(&gone).unwrap();
        let number = nameless.metadata().unwrap().ino();
        fails(&remount, 4, &["still open"]);
        nameless.write_all_at(b"CONTENT", 0).unwrap();
        let mut text = [0; 7];
        nameless.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"CONTENT");
        let others: Vec<u64> = (0..20)
            .map(|i| {
                let path = mount.file(&format!("other{i}"));
                fs::write(&path, "").unwrap();
                path.metadata().unwrap().ino()
            })
            .collect();
        assert!(!others.contains(&number), "a number that is in use");
        // It was closed a moment ago, and the release may still be outstanding.
        drop(nameless);
        ok(&remount);
        file.write_all_at(b"CONTENT", 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"CONTENT");
        assert_eq!(rest_of(&dir, 1_000).len(), 2 + 1 + 1 + 20);
        drop((file, dir));
        unmount(&mount);
    }
}
