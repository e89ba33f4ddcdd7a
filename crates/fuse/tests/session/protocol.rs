//! The protocol: negotiation, requests that are not served, malformed bytes, the end.

use stetfs::low::FsOptions;
use stetfs_fuse::{Opens, VolumeFsOptions};

use crate::bytes::{HEAD, body, long, op, request, word};
use crate::kernel::{ALL_FLAGS, Kernel, ROOT, ROOT_USER, handles, image, init, open};

/// Flags of INIT.
const BIG_WRITES: u64 = 1 << 5;
const WRITEBACK_CACHE: u64 = 1 << 16;
const NO_OPEN_SUPPORT: u64 = 1 << 17;
const POSIX_ACL: u64 = 1 << 20;
const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
const INIT_EXT: u64 = 1 << 30;
const ALLOW_IDMAP: u64 = 1 << 40;
const OVER_IO_URING: u64 = 1 << 41;

/// The flags of an answer to INIT.
fn flags(agreed: &[u8]) -> u64 {
    u64::from(word(agreed, 12)) | u64::from(word(agreed, 32)) << 32
}

#[test]
fn what_both_sides_have_is_agreed() {
    let image = image();
    let negotiated = |options: VolumeFsOptions, minor, offered| {
        let volume = open(&image, FsOptions::default());
        let kernel = Kernel::with(volume, options, &init(7, minor, offered)).unwrap();
        let agreed = kernel.agreed.clone();
        kernel.end(&image);
        agreed
    };
    let agreed = negotiated(VolumeFsOptions::default(), 45, ALL_FLAGS);
    assert_eq!(agreed.len(), 64);
    assert_eq!((word(&agreed, 0), word(&agreed, 4)), (7, 39));
    assert_eq!((word(&agreed, 8), word(&agreed, 20)), (1 << 17, 1 << 20));
    let all = flags(&agreed);
    assert_eq!(all & OVER_IO_URING, 0, "no ring brings its requests");
    let stateless = NO_OPEN_SUPPORT | NO_OPENDIR_SUPPORT;
    assert_eq!(all & stateless, stateless);
    assert_eq!(all & POSIX_ACL, POSIX_ACL);
    let few = negotiated(VolumeFsOptions::default(), 31, BIG_WRITES | NO_OPEN_SUPPORT);
    assert_eq!(word(&few, 4), 31);
    assert_eq!(flags(&few), BIG_WRITES | NO_OPEN_SUPPORT);
    let lower = negotiated(VolumeFsOptions::default(), 39, ALL_FLAGS & !INIT_EXT);
    assert_eq!(flags(&lower) >> 32, 0);
    let with = |options| flags(&negotiated(options, 45, ALL_FLAGS));
    let delayed = with(VolumeFsOptions {
        writeback_cache: true,
        idmap: true,
        ..VolumeFsOptions::default()
    });
    assert_eq!(delayed & WRITEBACK_CACHE, WRITEBACK_CACHE);
    assert_eq!(delayed & ALLOW_IDMAP, ALLOW_IDMAP);
    assert_eq!(delayed & stateless, 0, "its opens need an answer");
    assert_eq!(with(handles()) & stateless, 0);
    let plain = with(VolumeFsOptions {
        noxattr: true,
        opens: Opens::Stateless,
        ..VolumeFsOptions::default()
    });
    assert_eq!(plain & POSIX_ACL, 0);
}

#[test]
fn kernels_that_are_too_old_are_refused() {
    let image = image();
    for (major, minor, offered, idmap) in [
        (7, 30, ALL_FLAGS, false),
        (8, 45, ALL_FLAGS, false),
        (7, 45, ALL_FLAGS & !ALLOW_IDMAP, true),
    ] {
        let options = VolumeFsOptions {
            idmap,
            ..VolumeFsOptions::default()
        };
        let volume = open(&image, FsOptions::default());
        let begun = Kernel::with(volume.clone(), options, &init(major, minor, offered));
        assert!(begun.is_err(), "7.{minor}");
        volume.close().unwrap();
    }
}

/// Locks are the kernel's business, as nothing of POSIX_LOCKS is agreed; it does not send again
/// what is answered ENOSYS.
#[test]
fn requests_that_are_not_served_are_unknown() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    assert_eq!(flags(&kernel.agreed) & (1 << 1 | 1 << 10), 0, "no locks");
    for opcode in [op::GETLK, op::SETLK, op::ACCESS, 4711] {
        let answer = kernel.ask(opcode, ROOT, body().u64(0).u64(0));
        assert_eq!(answer, Err(libc::ENOSYS), "request {opcode}");
    }
    let interrupt = kernel.ask(op::INTERRUPT, 0, body().u64(4711));
    assert_eq!(interrupt, Err(libc::ENOSYS));
    let statfs = kernel.ask(op::STATFS, ROOT, body()).unwrap();
    assert_eq!(
        (word(&statfs, 40), word(&statfs, 44), word(&statfs, 48)),
        (4096, 255, 4096)
    );
    let [blocks, free, available] = [0, 8, 16].map(|at| long(&statfs, at));
    assert!(blocks > free && free >= available && available > 0);
    kernel.end(&image);
}

#[test]
fn bytes_that_are_no_request() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    // No header, no answer.
    kernel.send_raw(&[]);
    kernel.send_raw(&[7; HEAD - 1]);
    let mut wrong = request(op::GETATTR, 1000, ROOT, ROOT_USER, &body().u64(0).u64(0));
    wrong.push(0);
    kernel.send_raw(&wrong);
    assert_eq!(
        kernel.answer(1000),
        Err(libc::EINVAL),
        "its length is another"
    );
    let mut forget = request(op::FORGET, 1001, ROOT, ROOT_USER, &body().u64(1));
    forget.push(0);
    kernel.send_raw(&forget);
    let short = kernel.ask(op::SETATTR, ROOT, body().u64(0));
    assert!(
        short == Err(libc::EINVAL) || short.is_ok(),
        "a ring has zeroes behind it"
    );
    kernel.getattr(ROOT).unwrap();
    assert!(!kernel.has_answer(1001) && !kernel.has_answer(0));
    kernel.end(&image);
}

/// The kernel waits for the answer to DESTROY: the volume is closed then.
#[test]
fn destroy_closes_the_volume_before_it_is_answered() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let (made, fh) = kernel.create(ROOT, "file", libc::O_RDWR).unwrap();
    kernel.write(made.node, fh, 0, b"content").unwrap();
    kernel.ask_empty(op::DESTROY, 0, body()).unwrap();
    image.e2fsck_fn().unwrap();
    assert_eq!(kernel.getattr(ROOT), Err(libc::ESHUTDOWN));
    assert_eq!(kernel.read(made.node, fh, 0, 9), Err(libc::ESHUTDOWN));
    assert_eq!(kernel.write(made.node, fh, 0, b"x"), Err(libc::ESHUTDOWN));
    kernel.forget(made.node, 1);
    kernel.release(made.node, fh);
    assert_eq!(kernel.volume().whole_write(), 0);
    kernel.end(&image);
}
