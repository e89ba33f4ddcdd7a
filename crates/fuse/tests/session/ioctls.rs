//! Ioctls of ext4 and of Linux file systems.

use std::sync::atomic::{AtomicBool, Ordering};

use stetfs_fuse::VolumeFsOptions;

use crate::attributes::is_admin;
use crate::bytes::{Bytes, Who, body, long, op, word};
use crate::kernel::{Kernel, ROOT, ROOT_USER, USER, handles, image};

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const GETVERSION: u32 = 0x8008_7601;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;
const FITRIM: u32 = 0xc018_5879;
const SHUTDOWN: u32 = 0x8004_587d;

/// `FS_*_FL`.
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const NODUMP: u32 = 0x40;
const EXTENTS: u32 = 0x0008_0000;

fn bytes(word: u32) -> [u8; 4] {
    word.to_ne_bytes()
}

#[test]
fn flags_versions_and_projects() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let made = kernel
        .mknod(ROOT, "file", libc::S_IFREG | 0o644, 0)
        .unwrap();
    let file = (made.node, 0);
    assert_eq!(
        word(&kernel.ioctl(file, GETFLAGS, &[], 4).unwrap(), 0),
        EXTENTS
    );
    assert_eq!(kernel.ioctl(file, GETFLAGS, &[], 8).unwrap().len(), 8);
    kernel
        .ioctl(file, SETFLAGS, &bytes(EXTENTS | NODUMP), 0)
        .unwrap();
    assert_eq!(kernel.ioctl(file, SETFLAGS, &[1, 2], 0), Err(libc::EINVAL));
    let version = kernel.ioctl(file, GETVERSION, &[], 4).unwrap();
    assert_eq!(u64::from(word(&version, 0)), made.generation);
    let xattr = kernel.ioctl(file, FSGETXATTR, &[], 28).unwrap();
    assert_eq!(
        (xattr.len(), word(&xattr, 0), word(&xattr, 12)),
        (28, 0x80, 0)
    );
    let fsxattr = |flags: u32, project: u32| {
        let words = [flags, 0, 0, project, 0, 0, 0];
        words.iter().fold(Bytes::default(), |all, w| all.u32(*w)).0
    };
    // SYNC and PROJINHERIT are set, NODUMP goes, and REALTIME means nothing here.
    kernel
        .ioctl(file, FSSETXATTR, &fsxattr(0x21, 77), 0)
        .unwrap();
    let xattr = kernel.ioctl(file, FSGETXATTR, &[], 28).unwrap();
    assert_eq!((word(&xattr, 0), word(&xattr, 12)), (0x20, 77));
    let unknown = kernel.ioctl(file, FSSETXATTR, &fsxattr(0x4, 0), 0);
    assert_eq!(unknown, Err(libc::EOPNOTSUPP));
    let short = kernel.ioctl(file, FSSETXATTR, &bytes(0), 0);
    assert_eq!(short, Err(libc::EINVAL));
    assert_eq!(kernel.ioctl(file, 0x5401, &[], 60), Err(libc::ENOTTY));
    let unrestricted = body().u64(0).u32(1 << 1).u32(GETFLAGS).u64(0).u64(0);
    assert_eq!(
        kernel.ask(op::IOCTL, made.node, unrestricted),
        Err(libc::ENOSYS)
    );
    kernel.end(&image);
}

#[test]
fn an_immutable_file_is_changed_by_nobody() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let (made, fh) = kernel.create(ROOT, "file", libc::O_RDWR).unwrap();
    let node = made.node;
    kernel.write(node, fh, 0, b"before").unwrap();
    kernel
        .ioctl((node, fh), SETFLAGS, &bytes(EXTENTS | IMMUTABLE), 0)
        .unwrap();
    // The kernel drops its pages before and after.
    let notes = kernel.notes(|notes| notes.iter().filter(|n| **n == (node, 0, 0)).count() == 2);
    assert!(notes.contains(&(node, -1, 0)), "and its attributes");
    let entry = kernel.lookup(ROOT, "file").unwrap();
    assert_eq!(entry.attr_valid, 0, "the kernel asks before each open");
    assert_eq!(kernel.open(node, libc::O_WRONLY), Err(libc::EPERM));
    assert_eq!(kernel.write(node, fh, 0, b"after"), Err(libc::EPERM));
    kernel.notes(|notes| notes.contains(&(node, 0, 5)));
    assert_eq!(kernel.unlink(ROOT, "file"), Err(libc::EPERM));
    assert_eq!(kernel.link(node, ROOT, "other"), Err(libc::EPERM));
    assert_eq!(kernel.fallocate((node, fh), 0, 0, 8192), Err(libc::EPERM));
    assert_eq!(kernel.setxattr(node, "user.x", b"x", 0), Err(libc::EPERM));
    let (reader, _) = kernel.open(node, libc::O_RDONLY).unwrap();
    assert_eq!(kernel.read(node, reader, 0, 9).unwrap(), b"before");
    kernel
        .ioctl((node, fh), SETFLAGS, &bytes(EXTENTS), 0)
        .unwrap();
    kernel.write(node, fh, 0, b"after").unwrap();
    kernel.end(&image);
}

#[test]
fn an_append_only_file_grows_past_the_pages() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let file = kernel.file(ROOT, "log");
    kernel
        .write(file, kernel.open(file, libc::O_RDWR).unwrap().0, 0, b"old")
        .unwrap();
    kernel
        .ioctl((file, 0), SETFLAGS, &bytes(EXTENTS | APPEND), 0)
        .unwrap();
    assert_eq!(kernel.open(file, libc::O_RDWR), Err(libc::EPERM));
    let append = libc::O_RDWR | libc::O_APPEND;
    let (fh, flags) = kernel.open(file, append).unwrap();
    assert_eq!(
        flags & 1,
        1,
        "FOPEN_DIRECT_IO: it must not be mapped shared"
    );
    let written = kernel.write_as((file, fh), 3, b" new", (0, append));
    assert_eq!(written, Ok(4));
    kernel.notes(|notes| notes.contains(&(file, 3, 4)));
    assert_eq!(kernel.read(file, fh, 0, 9).unwrap(), b"old new");
    assert_eq!(kernel.unlink(ROOT, "log"), Err(libc::EPERM));
    kernel.end(&image);
}

/// Without a request to open, the kernel asks for the mode of a guarded file, and the caller's
/// system call tells why. A thread of this test waits in open(2) of a pipe.
#[test]
fn without_handles_an_open_is_refused_by_the_callers_system_call() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "log");
    kernel
        .ioctl((file, 0), SETFLAGS, &bytes(EXTENTS | APPEND), 0)
        .unwrap();
    let fifo = image.dir().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let judged = |kernel: &mut Kernel, flags: i32| {
        let (tell, told) = std::sync::mpsc::channel();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let open = || {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get())
                    .unwrap();
                let opened = rustix::fs::openat(
                    rustix::fs::CWD,
                    &fifo,
                    rustix::fs::OFlags::from_bits_retain(flags as u32),
                    rustix::fs::Mode::empty(),
                );
                drop(opened.unwrap());
                done.store(true, Ordering::SeqCst);
            };
            let thread = scope.spawn(open);
            let tid = told.recv().unwrap();
            let call = format!("/proc/self/task/{tid}/syscall");
            let opens = format!("{} ", libc::SYS_openat);
            while !std::fs::read_to_string(&call).unwrap().starts_with(&opens) {
                std::thread::yield_now();
            }
            kernel.who.pid = tid as u32;
            let attr = kernel.getattr(file);
            let waited = !done.load(Ordering::SeqCst);
            drop(std::fs::File::open(&fifo).unwrap());
            thread.join().unwrap();
            assert!(waited, "until the answer");
            attr
        })
    };
    let refused = judged(&mut kernel, libc::O_WRONLY);
    assert_eq!(refused, Err(libc::EPERM));
    let allowed = judged(&mut kernel, libc::O_WRONLY | libc::O_APPEND);
    assert_eq!(allowed.unwrap().mode & 0o777, 0o644);
    // A caller that cannot be seen gets a mode that forbids writing.
    kernel.who = ROOT_USER;
    assert_eq!(kernel.getattr(file).unwrap().mode & 0o777, 0o444);
    // Through an open file nothing is opened.
    let by_handle = body().u32(1).u32(0).u64(0);
    let attr = kernel.ask(op::GETATTR, file, by_handle).unwrap();
    assert_eq!(word(&attr[16..], 60) & 0o777, 0o644);
    kernel.end(&image);
}

#[test]
fn the_label_is_for_administrators_to_change() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    let label = |kernel: &Kernel| kernel.ioctl((ROOT, 0), GETFSLABEL, &[], 256).unwrap();
    assert_eq!(label(&kernel), [0; 256]);
    let mut new = b"new name".to_vec();
    new.resize(256, 0);
    let refused = kernel.ioctl((ROOT, 0), SETFSLABEL, &new, 0);
    assert_eq!(refused, Err(libc::EPERM), "no process that is visible");
    kernel.who.pid = std::process::id();
    let set = kernel.ioctl((ROOT, 0), SETFSLABEL, &new, 0);
    match is_admin() {
        true => assert_eq!((set, label(&kernel)), (Ok(Vec::new()), new)),
        false => assert_eq!((set, label(&kernel)), (Err(libc::EPERM), vec![0; 256])),
    }
    let range = Bytes::default().u64(0).u64(u64::MAX).u64(0).0;
    let trimmed = kernel.ioctl((ROOT, 0), FITRIM, &range, 24);
    match is_admin() {
        true => assert!(long(&trimmed.unwrap(), 8) > 1 << 20),
        false => assert_eq!(trimmed, Err(libc::EPERM)),
    }
    kernel.who = USER;
    assert_eq!(
        kernel.ioctl((ROOT, 0), FITRIM, &range, 24),
        Err(libc::EPERM)
    );
    kernel.end(&image);
}

/// The flags of SHUTDOWN are read from the caller's memory: here, of this test.
#[test]
fn a_shut_down_volume_refuses_everything() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    let flags: [u32; 2] = [9, 1];
    let at = |i: usize| std::ptr::from_ref(&flags[i]).addr() as u64;
    let refused = kernel.ioctl_at((ROOT, 0), (SHUTDOWN, at(1)), &[], 4);
    assert_eq!(refused, Err(libc::EPERM));
    kernel.who = Who {
        pid: std::process::id(),
        ..ROOT_USER
    };
    let ask = |at| kernel.ioctl_at((ROOT, 0), (SHUTDOWN, at), &[], 4);
    let answers = [ask(at(0)), ask(8), ask(at(1))];
    match is_admin() {
        true => {
            assert_eq!(
                answers,
                [Err(libc::EINVAL), Err(libc::EFAULT), Ok(Vec::new())]
            );
            // The kernel asks for all attributes again.
            kernel.notes(|notes| notes.contains(&(file, -1, 0)));
            assert_eq!(kernel.write(file, 0, 0, b"x"), Err(libc::EIO));
            assert_eq!(kernel.mkdir(ROOT, "dir", 0o755, 0), Err(libc::EIO));
        }
        false => assert_eq!(
            answers,
            [Err(libc::EPERM), Err(libc::EPERM), Err(libc::EPERM)]
        ),
    }
}
