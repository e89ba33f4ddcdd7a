//! Tests of immutable and append-only files: data that the server refused is never read, however it
//! was stored.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use stetfs_testkit::wait_until;

use rustix::fs::{Access, AtFlags, CWD};
use rustix::mm::{MapFlags, ProtFlags};

use super::{errno, on, read_write, unmount, with_flags};
use crate::common::daemon::{Daemon, ok};
use crate::common::{kernel, stetfs_with};

/// Size of the files here, bytes.
const LEN: usize = 3 * 4096;
const FORGED: &[u8] = b"forged";

fn original() -> Vec<u8> {
    b"what was written\n"
        .iter()
        .copied()
        .cycle()
        .take(LEN)
        .collect()
}

/// A file that is cached completely.
fn make(path: &Path) {
    fs::write(path, original()).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(fs::read(path).unwrap(), original());
}

fn map(file: &File, prot: ProtFlags) -> rustix::io::Result<*mut u8> {
    // SAFETY: a new mapping, used here only.
    let place =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), LEN, prot, MapFlags::SHARED, file, 0) };
    place.map(<*mut std::ffi::c_void>::cast)
}

fn unmap(place: *mut u8) {
    // SAFETY: the mapping is not used from here on.
    unsafe { rustix::mm::munmap(place.cast(), LEN) }.unwrap();
}

/// Appending works, and so do reading and mapping for reading; existing content cannot be mapped
/// for writing.
pub(super) fn append_only_files_are_not_forged(root: &Path) {
    let path = root.join("log");
    make(&path);
    with_flags(&path, "a", || {
        let mut options = OpenOptions::new();
        match options.read(true).append(true).open(&path) {
            Ok(log) => {
                let both = ProtFlags::READ | ProtFlags::WRITE;
                map(&log, both).expect_err("mapped to be written");
                let mut part = [0; 4];
                log.read_exact_at(&mut part, 9).unwrap();
                assert_eq!(part, original()[9..13]);
                // A descriptor that loses O_APPEND cannot overwrite.
                let flags = rustix::fs::fcntl_getfl(&log).unwrap();
                if rustix::fs::fcntl_setfl(&log, flags - rustix::fs::OFlags::APPEND).is_ok() {
                    assert_eq!(errno(log.write_at(FORGED, 0)), Some(libc::EPERM));
                    wait_until("the end of what was refused", || {
                        fs::read(&path).unwrap() == original()
                    });
                }
            }
            // Such a mapping was refused.
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EPERM)),
        }
        assert_eq!(fs::read(&path).unwrap(), original());
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        let place = map(&reader, ProtFlags::READ).unwrap();
        for _ in 0..3 {
            log.write_all(b"more\n").unwrap();
        }
        let all = [original(), b"more\nmore\nmore\n".to_vec()].concat();
        assert_eq!(fs::read(&path).unwrap(), all);
        // SAFETY: the mapping is as long, and is not written to.
        let mapped = unsafe { std::slice::from_raw_parts(place, LEN) };
        assert_eq!(mapped, original());
        unmap(place);
    });
}

/// A process that has a file mapped, and stores to it on request; the store may kill it (SIGBUS).
struct Mapper {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Mapper {
    fn of(path: &Path) -> Mapper {
        let script = "import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0)
os.close(f)
m[4096]
print('mapped', flush=True)
for line in sys.stdin:
    at, text, sync = line.split()
    m[int(at):int(at) + len(text)] = text.encode()
    try:
        if sync == 'sync':
            m.flush()
        print('stored', flush=True)
    except OSError as e:
        print('refused', e.errno, flush=True)";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(path);
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut this = Mapper { child, said };
        assert_eq!(this.next(), "mapped");
        this
    }

    /// The next line of its output; empty if it has ended.
    fn next(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn store(&mut self, at: usize, sync: &str) -> String {
        let text = std::str::from_utf8(FORGED).unwrap();
        // The process may be gone.
        let _ = writeln!(self.child.stdin.as_ref().unwrap(), "{at} {text} {sync}");
        self.next()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.said.read_to_end(&mut Vec::new()).unwrap();
        self.child.wait().unwrap();
    }
}

fn stored_at(mut content: Vec<u8>, at: usize) -> Vec<u8> {
    content[at..at + FORGED.len()].copy_from_slice(FORGED);
    content
}

/// Stores through a mapping that is older than the flag, and syncs that.
fn store_by_an_older_mapping(root: &Path, flag: &str) {
    let path = root.join(format!("f-{flag}"));
    make(&path);
    let mut mapper = Mapper::of(&path);
    with_flags(&path, flag, || {
        // Linux kills the process, or the server refuses the stored data.
        let said = mapper.store(4096, "sync");
        assert!(["", "refused 1"].contains(&said.as_str()), "{said}");
        wait_until("the end of what was refused", || {
            fs::read(&path).is_ok_and(|content| content == original())
        });
        mapper.end();
        let reader = File::open(&path).unwrap();
        let place = map(&reader, ProtFlags::READ).unwrap();
        // SAFETY: the mapping is as long, and cannot be written to.
        let mapped = unsafe { std::slice::from_raw_parts(place, LEN) };
        assert_eq!(mapped, original());
        unmap(place);
    });
    assert_eq!(fs::read(&path).unwrap(), original());
}

pub(super) fn what_is_stored_by_an_older_mapping_of_an_immutable_file_goes(root: &Path) {
    store_by_an_older_mapping(root, "i");
}

/// The kernel's ext4 accepts these stores.
#[test]
fn what_is_stored_by_an_older_mapping_of_an_append_only_file_goes() {
    for options in ["", "opens=handles"] {
        let check = |root: &Path| store_by_an_older_mapping(root, "a");
        on(&stetfs_with(options), check);
    }
}

/// A store before the server had anything to refuse.
fn what_an_older_mapping_has_is_not_seen_by_who_opens_later(root: &Path) {
    let path = root.join("f");
    make(&path);
    let mut mapper = Mapper::of(&path);
    with_flags(&path, "i", || {
        // Linux kills the process.
        let said = mapper.store(4096, "later");
        assert!(["", "stored"].contains(&said.as_str()), "{said}");
        // A reader may get an error while the store is being refused, and never other data.
        wait_until("an answer", || match fs::read(&path) {
            Ok(content) => {
                assert_eq!(content, original());
                true
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::EIO));
                false
            }
        });
        mapper.end();
        assert_eq!(fs::read(&path).unwrap(), original());
    });
}

#[test]
fn with_handles_what_an_older_mapping_has_is_not_seen_by_who_opens_later() {
    for mounter in [kernel(), stetfs_with("opens=handles")] {
        on(
            &mounter,
            what_an_older_mapping_has_is_not_seen_by_who_opens_later,
        );
    }
}

#[test]
fn mounts_with_maps_past_the_cache_are_not_forged() {
    for options in ["direct_io", "writeback_cache"] {
        for check in [
            append_only_files_are_not_forged,
            what_is_stored_by_an_older_mapping_of_an_immutable_file_goes,
            what_was_stored_before_a_file_is_guarded_stays,
            who_asks_is_told_of_guards,
        ] {
            on(&stetfs_with(options), check);
        }
    }
}

pub(super) fn what_was_stored_before_a_file_is_guarded_stays(root: &Path) {
    for flag in ["i", "a"] {
        let path = root.join(format!("f-{flag}"));
        make(&path);
        let mut mapper = Mapper::of(&path);
        assert_eq!(mapper.store(5000, "later"), "stored");
        with_flags(&path, flag, || {
            assert_eq!(fs::read(&path).unwrap(), stored_at(original(), 5000));
            mapper.end();
        });
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(fs::read(&path).unwrap(), stored_at(original(), 5000));
    }
}

/// A remount keeps open files usable, also those open for writing.
#[test]
fn a_remount_goes_on_with_what_was_opened_before_it_was_guarded() {
    for options in ["", "opens=handles"] {
        let mount = Daemon::new(options);
        let path = mount.file("f");
        make(&path);
        let before = read_write(&path).unwrap();
        with_flags(&path, "i", || {
            ok(&["mount", "-o", "remount,commit=9", "none", mount.dir()]);
            let mut part = [0; 4];
            before.read_exact_at(&mut part, 9).unwrap();
            assert_eq!(part, original()[9..13]);
            assert_eq!(errno(before.write_at(FORGED, 0)), Some(libc::EPERM));
        });
        before.write_all_at(FORGED, 0).unwrap();
        before.sync_all().unwrap();
        drop(before);
        unmount(&mount);
    }
}

/// Queries of permissions answer correctly.
pub(super) fn who_asks_is_told_of_guards(root: &Path) {
    let path = root.join("f");
    make(&path);
    let may = |access: Access| rustix::fs::accessat(CWD, &path, access, AtFlags::empty());
    let eperm = Err(rustix::io::Errno::PERM);
    with_flags(&path, "i", || {
        for _ in 0..2 {
            assert_eq!(may(Access::WRITE_OK), eperm);
            assert_eq!(may(Access::READ_OK | Access::WRITE_OK), eperm);
            assert_eq!(may(Access::READ_OK), Ok(()));
        }
        assert_eq!(acct(&path), Some(libc::EPERM));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    });
    assert_eq!(may(Access::WRITE_OK), Ok(()));
    with_flags(&path, "a", || assert_eq!(may(Access::WRITE_OK), Ok(())));
}

/// The reason why acct(2) refuses a file; a file that it accepts is released at once.
fn acct(path: &Path) -> Option<i32> {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string that ends with NUL, and none.
    let (taken, why) = unsafe {
        let taken = libc::acct(path.as_ptr());
        let why = std::io::Error::last_os_error();
        if taken == 0 {
            libc::acct(std::ptr::null());
        }
        (taken, why)
    };
    (taken != 0).then(|| why.raw_os_error().unwrap())
}

/// openat(2) as an io_uring request, by a thread that runs as this user.
fn open_by_uring(path: &Path, flags: i32, user: u32) -> std::io::Result<RawFd> {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let open = move || {
        if user != 0 {
            // SAFETY: the call affects this thread only, which ends soon.
            unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        }
        let mut ring = io_uring::IoUring::new(2)?;
        let at = io_uring::types::Fd(libc::AT_FDCWD);
        let open = io_uring::opcode::OpenAt::new(at, name.as_ptr()).flags(flags);
        // SAFETY: the name lives until the answer is there.
        unsafe { ring.submission().push(&open.build()) }.unwrap();
        ring.submit_and_wait(1)?;
        let result = ring.completion().next().unwrap().result();
        match result < 0 {
            true => Err(std::io::Error::from_raw_os_error(-result)),
            false => Ok(result),
        }
    };
    std::thread::spawn(open).join().unwrap()
}

fn close(fd: RawFd) {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: the descriptor was opened for the caller, and is owned here only.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// The owner opens the file by io_uring.
pub(super) fn owners_open_no_guarded_file_by_io_uring(root: &Path) {
    const OWNER: u32 = 65534;
    let path = root.join("f");
    make(&path);
    std::os::unix::fs::chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let open = |flags| open_by_uring(&path, flags, OWNER).map(close);
    open(libc::O_RDWR).unwrap();
    with_flags(&path, "i", || {
        for _ in 0..3 {
            let refused = open(libc::O_RDWR).unwrap_err().raw_os_error();
            assert!([Some(libc::EPERM), Some(libc::EACCES)].contains(&refused));
            open(libc::O_WRONLY).unwrap_err();
            open(libc::O_RDONLY).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        }
    });
    with_flags(&path, "a", || {
        open(libc::O_RDWR).unwrap_err();
        open(libc::O_RDONLY).unwrap();
        // Appending is allowed.
        let log = OpenOptions::new().append(true).open(&path);
        log.unwrap().write_all(b"more\n").unwrap();
    });
    open(libc::O_RDWR).unwrap();
    read_write(&path).unwrap();
}
