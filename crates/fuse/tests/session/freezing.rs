//! A frozen volume: changes wait for the thaw, reads go on. A volume that is opened again.

use stetfs::low::{FsOptions, VolumeOptions};
use stetfs_fuse::VolumeFsOptions;

use crate::bytes::{body, op};
use crate::kernel::{Kernel, ROOT, handles, image};

#[test]
fn changes_wait_for_the_thaw_and_reads_go_on() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let fs = kernel.volume();
    let errno = |e: stetfs::low::FsError| e.errno();
    let (made, fh) = kernel.create(ROOT, "file", libc::O_RDWR).unwrap();
    kernel.write(made.node, fh, 0, b"before").unwrap();
    assert_eq!(fs.thaw().map_err(errno), Err(libc::EINVAL));
    fs.freeze().unwrap();
    assert_eq!(fs.freeze().map_err(errno), Err(libc::EBUSY));
    // The volume on the device is as after an unmount.
    let frozen = image.copy().unwrap();
    frozen.e2fsck_fn().unwrap();
    fs.thaw().unwrap();
    let gone = kernel.file(ROOT, "gone");
    kernel.unlink(ROOT, "gone").unwrap();
    let (inodes, _) = kernel.free();
    fs.freeze().unwrap();
    let write = body().u64(fh).u64(0).u32(5).u32(0).u64(0).u32(2).u32(0);
    let waiting = [
        kernel.send(op::WRITE, made.node, &write.clone().bytes(b"after")),
        kernel.send(op::WRITE, made.node, &write.bytes(b"AFTER")),
        kernel.send(op::MKDIR, ROOT, &body().u32(0o755).u32(0).name("dir")),
    ];
    let flags = kernel.ioctl((made.node, fh), 0x8008_6601, &[], 4);
    assert!(flags.is_ok(), "it only looks");
    let set_flags = body().u64(fh).u32(0).u32(0x4008_6602).u64(0).u32(4).u32(0);
    let set_flags = kernel.send(op::IOCTL, made.node, &set_flags.u32(0x0008_0040));
    kernel.forget(gone, 1);
    kernel.release(made.node, fh);
    assert_eq!(kernel.read(made.node, fh, 0, 9).unwrap(), b"before");
    assert_eq!(kernel.lookup(ROOT, "dir").unwrap().node, 0);
    assert_eq!(kernel.free().0, inodes);
    assert_eq!(fs.frozen().unwrap().waiting, 4);
    for unique in waiting {
        assert!(!kernel.has_answer(unique));
    }
    fs.thaw().unwrap();
    assert!(fs.frozen().is_none());
    // The handle was released first, as the kernel sends a release when nobody waits any more.
    assert_eq!(kernel.answer(waiting[0]), Err(libc::EBADF));
    assert_eq!(kernel.answer(waiting[1]), Err(libc::EBADF));
    kernel.answer(waiting[2]).unwrap();
    kernel.answer(set_flags).unwrap();
    assert_ne!(kernel.lookup(ROOT, "dir").unwrap().node, 0);
    assert_eq!(kernel.free().0, inodes, "one is deleted, and one made");
    kernel.end(&image);
}

#[test]
fn a_frozen_volume_thaws_when_the_session_ends() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    kernel.volume().freeze().unwrap();
    let mkdir = kernel.send(op::MKDIR, ROOT, &body().u32(0o755).u32(0).name("dir"));
    kernel.ask_empty(op::DESTROY, 0, body()).unwrap();
    let made = kernel.answer(mkdir);
    assert!(made.is_ok() || made == Err(libc::ESHUTDOWN), "{made:?}");
    kernel.end(&image);
}

#[test]
fn open_files_go_on_when_the_volume_is_opened_again() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let fs = kernel.volume();
    let options = |read_only| VolumeOptions {
        fs: FsOptions {
            cache_bytes: 4 << 20,
            read_only,
            ..FsOptions::default()
        },
        ..VolumeOptions::default()
    };
    let (made, fh) = kernel.create(ROOT, "file", libc::O_RDONLY).unwrap();
    let dir = kernel.mkdir(ROOT, "dir", 0o755, 0).unwrap().node;
    fs.reopen(&options(true)).unwrap();
    assert_eq!(kernel.read(made.node, fh, 0, 9).unwrap(), []);
    assert_eq!(kernel.mkdir(dir, "x", 0o755, 0), Err(libc::EROFS));
    assert_eq!(kernel.unlink(ROOT, "file"), Err(libc::EROFS));
    fs.reopen(&options(false)).unwrap();
    kernel.mkdir(dir, "x", 0o755, 0).unwrap();
    // A file without a name would be deleted.
    kernel.unlink(ROOT, "file").unwrap();
    let errno = |e: stetfs::low::FsError| e.errno();
    assert_eq!(fs.reopen(&options(false)).map_err(errno), Err(libc::EBUSY));
    kernel.release(made.node, fh);
    kernel.forget(made.node, 1);
    fs.freeze().unwrap();
    assert_eq!(fs.reopen(&options(false)).map_err(errno), Err(libc::EBUSY));
    fs.thaw().unwrap();
    fs.reopen(&options(false)).unwrap();
    kernel.end(&image);
}
