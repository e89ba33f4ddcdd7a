//! Atomic writes by the ioctls of F2FS, and groups of files.

use std::time::Duration;

use stetfs::low::{FsOptions, preset};
use stetfs_fuse::VolumeFsOptions;
use stetfs_testkit::Image;

use crate::bytes::{body, op, word};
use crate::kernel::{ALL_FLAGS, FATTR_FH, Kernel, ROOT, Set, USER, handles, image, init, open};

const GET_FEATURES: u32 = 0x8004_f50c;
const START: u32 = 0xf501;
const COMMIT: u32 = 0xf502;
const ABORT: u32 = 0xf505;
const GET_GROUP: u32 = 0x8008_f540;
const JOIN: u32 = 0x4008_f541;
const BREAK: u32 = 0xf542;
/// FusionIO's `DFS_IOCTL_ATOMIC_WRITE_SET`.
const WRITES_WHOLE: u32 = 0x4004_9502;

fn options() -> VolumeFsOptions {
    VolumeFsOptions {
        atomic: true,
        ..VolumeFsOptions::default()
    }
}

/// Begins a session whose files go through the journal whole.
fn begin(image: &Image, options: VolumeFsOptions) -> Kernel {
    let fs = FsOptions {
        journal: preset::DATA.into(),
        ..FsOptions::default()
    };
    Kernel::with(open(image, fs), options, &init(7, 45, ALL_FLAGS)).unwrap()
}

/// A file with content; returns its node and a handle.
fn file(kernel: &Kernel, name: &str) -> (u64, u64) {
    let (made, fh) = kernel.create(ROOT, name, libc::O_RDWR).unwrap();
    kernel.write(made.node, fh, 0, b"old content").unwrap();
    (made.node, fh)
}

fn verb(kernel: &Kernel, file: (u64, u64), verb: u32) -> Result<(), i32> {
    kernel
        .ioctl(file, verb, &[], 0)
        .map(|out| assert_eq!(out, []))
}

fn content(kernel: &Kernel, file: (u64, u64)) -> Vec<u8> {
    kernel.read(file.0, file.1, 0, 100).unwrap()
}

fn flush(kernel: &Kernel, (node, fh): (u64, u64)) -> Result<(), i32> {
    kernel.ask_empty(op::FLUSH, node, body().u64(fh).u64(0).u64(0))
}

#[test]
fn a_group_of_one_file_commits_or_aborts() {
    let image = image();
    let kernel = begin(&image, options());
    let file = file(&kernel, "file");
    let other = (file.0, kernel.open(file.0, libc::O_RDWR).unwrap().0);
    let features = kernel.ioctl(file, GET_FEATURES, &[], 4).unwrap();
    assert_eq!(word(&features, 0), 4, "F2FS_FEATURE_ATOMIC_WRITE");
    assert_eq!(
        verb(&kernel, file, COMMIT),
        Err(libc::EINVAL),
        "none has begun"
    );
    verb(&kernel, file, START).unwrap();
    verb(&kernel, file, START).unwrap();
    assert_eq!(verb(&kernel, other, START), Err(libc::EBUSY));
    kernel.write(file.0, file.1, 0, b"new").unwrap();
    assert_eq!(kernel.write(other.0, other.1, 0, b"x"), Err(libc::EBUSY));
    assert_eq!(content(&kernel, other), b"new content", "all see it");
    let holder = kernel.volume().atomic_holders();
    assert_eq!(
        (holder.len(), &holder[0].files[..]),
        (1, &[file.0 as u32][..])
    );
    assert_eq!(holder[0].bytes, Some(4096), "a block");
    kernel.write(file.0, file.1, 11, b"and more").unwrap();
    assert_eq!(kernel.getattr(file.0).unwrap().size, 19);
    assert_eq!(kernel.lookup(ROOT, "file").unwrap().attr.size, 19);
    let zero = libc::FALLOC_FL_ZERO_RANGE;
    kernel.fallocate(file, zero, 4, 1).unwrap();
    let sized = Set {
        size: Some(5),
        more: FATTR_FH,
        fh: file.1,
        ..Set::default()
    };
    assert_eq!(kernel.setattr(file.0, sized).unwrap().size, 5);
    assert_eq!(kernel.lseek(file, 0, libc::SEEK_HOLE), Ok(5));
    verb(&kernel, file, COMMIT).unwrap();
    kernel.notes(|notes| notes.contains(&(file.0, -1, 0)));
    assert_eq!(content(&kernel, other), b"new \0");
    verb(&kernel, file, START).unwrap();
    kernel.write(file.0, file.1, 0, b"abort").unwrap();
    verb(&kernel, file, ABORT).unwrap();
    kernel.notes(|notes| notes.contains(&(file.0, 0, 0)));
    assert_eq!(content(&kernel, file), b"new \0");
    assert_eq!(kernel.volume().atomic_holders().len(), 0);
    kernel.end(&image);
}

#[test]
fn files_join_a_group_by_its_token() {
    let image = image();
    let kernel = begin(&image, options());
    let files = ["one", "two", "source"].map(|name| file(&kernel, name));
    let [one, two, source] = files;
    verb(&kernel, one, START).unwrap();
    let token = kernel.ioctl(one, GET_GROUP, &[], 8).unwrap();
    assert_eq!(kernel.ioctl(two, GET_GROUP, &[], 8), Err(libc::EINVAL));
    let wrong = [0x55; 8];
    assert!(kernel.ioctl(two, JOIN, &wrong, 0).is_err());
    kernel.ioctl(two, JOIN, &token, 0).unwrap();
    kernel.write(one.0, one.1, 0, b"1").unwrap();
    let copied = kernel.copy((source.0, source.1, 4), (two.0, two.1, 0), 7);
    assert_eq!(copied, Ok(7));
    assert_eq!(content(&kernel, two), b"contenttent");
    verb(&kernel, two, COMMIT).unwrap();
    assert_eq!(content(&kernel, one), b"1ld content");
    assert_eq!(
        verb(&kernel, one, COMMIT),
        Err(libc::EINVAL),
        "it ended for both"
    );
    kernel.end(&image);
}

/// A close aborts before the kernel lets go of locks; a handle that others still use is told.
#[test]
fn a_close_by_the_program_that_began_aborts() {
    let image = image();
    let mut kernel = begin(&image, options());
    let file = file(&kernel, "file");
    flush(&kernel, file).unwrap();
    verb(&kernel, file, START).unwrap();
    kernel.write(file.0, file.1, 0, b"new").unwrap();
    kernel.who.pid = 1;
    flush(&kernel, file).unwrap();
    let held = kernel.volume().atomic_holders().len();
    kernel.who.pid = 0;
    flush(&kernel, file).unwrap();
    // Process 0 cannot be seen, so each caller may be the one that began.
    assert!(held <= 1);
    assert_eq!(content(&kernel, file), b"old content");
    assert_eq!(kernel.write(file.0, file.1, 0, b"x"), Err(libc::EIO));
    verb(&kernel, file, ABORT).unwrap();
    kernel.write(file.0, file.1, 0, b"x").unwrap();
    verb(&kernel, file, START).unwrap();
    kernel.write(file.0, file.1, 0, b"new").unwrap();
    let reader = (file.0, kernel.open(file.0, libc::O_RDONLY).unwrap().0);
    kernel.release(file.0, file.1);
    assert_eq!(content(&kernel, reader), b"xld content");
    kernel.end(&image);
}

#[test]
fn others_may_break_a_group_only_as_its_owner_or_root() {
    let image = image();
    let mut kernel = begin(&image, options());
    let file = file(&kernel, "file");
    assert_eq!(
        verb(&kernel, file, BREAK),
        Err(libc::EINVAL),
        "there is none"
    );
    verb(&kernel, file, START).unwrap();
    kernel.write(file.0, file.1, 0, b"new").unwrap();
    let reader = (file.0, kernel.open(file.0, libc::O_RDONLY).unwrap().0);
    kernel.who = USER;
    assert_eq!(verb(&kernel, reader, BREAK), Err(libc::EPERM));
    kernel.who = crate::kernel::ROOT_USER;
    verb(&kernel, reader, BREAK).unwrap();
    assert_eq!(content(&kernel, reader), b"old content");
    assert_eq!(
        verb(&kernel, file, START),
        Err(libc::EIO),
        "it is told once"
    );
    verb(&kernel, file, START).unwrap();
    verb(&kernel, file, ABORT).unwrap();
    kernel.end(&image);
}

#[test]
fn a_group_that_rests_too_long_is_aborted() {
    let image = image();
    let options = VolumeFsOptions {
        atomic_timeout: Some(Duration::from_millis(50)),
        ..options()
    };
    let kernel = begin(&image, options);
    let file = file(&kernel, "file");
    verb(&kernel, file, START).unwrap();
    kernel.write(file.0, file.1, 0, b"new").unwrap();
    kernel.notes(|notes| {
        notes
            .iter()
            .any(|(node, offset, _)| (*node, *offset) == (file.0, 0))
    });
    assert_eq!(content(&kernel, file), b"old content");
    assert_eq!(verb(&kernel, file, COMMIT), Err(libc::EINVAL), "too late");
    kernel.end(&image);
}

#[test]
fn without_the_option_nothing_is_atomic() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let file = file(&kernel, "file");
    let features = kernel.ioctl(file, GET_FEATURES, &[], 4).unwrap();
    assert_eq!(word(&features, 0), 0);
    for command in [START, COMMIT, ABORT, BREAK] {
        assert_eq!(verb(&kernel, file, command), Err(libc::EOPNOTSUPP));
    }
    let whole = kernel.ioctl(file, WRITES_WHOLE, &1u32.to_ne_bytes(), 0);
    assert_eq!(whole, Err(libc::ENOTTY));
    kernel.end(&image);
}

/// MariaDB's question: whether a page is whole after a crash.
#[test]
fn whole_writes_are_promised_where_nothing_splits_them() {
    let image = image();
    let options = VolumeFsOptions {
        direct_io: true,
        ..VolumeFsOptions::default()
    };
    let kernel = begin(&image, options);
    let file = file(&kernel, "file");
    let whole = kernel.ioctl(file, WRITES_WHOLE, &1u32.to_ne_bytes(), 0);
    assert_eq!(whole, Ok(Vec::new()));
    assert_eq!(kernel.volume().whole_write(), 64 << 10);
    kernel.end(&image);
}
