//! Content: opening, reading, writing, allocating, seeking, copying, syncing.

use std::sync::Arc;

use stetfs::low::FsOptions;
use stetfs_fuse::{VolumeFs, VolumeFsOptions};

use crate::bytes::{body, long, op};
use crate::kernel::{FATTR_FH, FATTR_KILL_SUIDGID, Kernel, ROOT, Set, USER, handles, image, open};

/// `FOPEN_*`.
const DIRECT_IO: u32 = 1 << 0;
const KEEP_CACHE: u32 = 1 << 1;
const NOFLUSH: u32 = 1 << 5;
/// `FUSE_WRITE_CACHE`, `FUSE_WRITE_KILL_SUIDGID`.
const FROM_CACHE: u32 = 1 << 0;
const KILL: u32 = 1 << 2;

/// Bytes that tell their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn without_handles_a_file_is_named_by_its_inode() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    assert_eq!(kernel.open(file, libc::O_RDWR), Err(libc::ENOSYS));
    let dir = kernel.ask(op::OPENDIR, ROOT, body().u64(0));
    assert_eq!(dir, Err(libc::ENOSYS));
    let made = kernel.create(ROOT, "x", libc::O_RDWR);
    assert_eq!(
        made,
        Err(libc::ENOSYS),
        "the kernel makes and opens it then"
    );
    let flush = body().u64(0).u64(0).u64(0);
    assert_eq!(kernel.ask(op::FLUSH, file, flush), Err(libc::ENOSYS));
    let data = pattern(3 << 20);
    for (i, part) in data.chunks(1 << 20).enumerate() {
        let n = kernel.write(file, 0, (i as u64) << 20, part).unwrap();
        assert_eq!(n as usize, part.len());
    }
    let attr = kernel.getattr(file).unwrap();
    assert_eq!((attr.size, attr.blocks), (3 << 20, 3 << 11));
    assert_eq!(
        kernel.read(file, 0, 4095, 8192).unwrap(),
        data[4095..][..8192]
    );
    assert_eq!(
        kernel.read(file, 0, (3 << 20) - 5, 4096).unwrap(),
        data[(3 << 20) - 5..]
    );
    assert_eq!(kernel.read(file, 0, 3 << 20, 4096).unwrap(), []);
    assert_eq!(kernel.read(ROOT, 0, 0, 4096), Err(libc::EISDIR));
    kernel.fsync(file, 0, false).unwrap();
    kernel.end(&image);
    // The content is on the volume.
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.lookup(ROOT, "file").unwrap().node;
    for (i, part) in data.chunks(1 << 20).enumerate() {
        assert_eq!(
            kernel.read(file, 0, (i as u64) << 20, 1 << 20).unwrap(),
            part
        );
    }
    kernel.end(&image);
}

#[test]
fn with_handles_each_open_has_its_flags() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let (made, fh) = kernel
        .create(ROOT, "file", libc::O_RDWR | libc::O_EXCL)
        .unwrap();
    let node = made.node;
    assert_eq!(made.attr.mode, libc::S_IFREG | 0o644);
    assert_eq!(kernel.write(node, fh, 0, b"0123456789").unwrap(), 10);
    let (reader, flags) = kernel.open(node, libc::O_RDONLY).unwrap();
    assert_eq!(flags, KEEP_CACHE | NOFLUSH);
    assert_ne!(reader, fh);
    assert_eq!(kernel.read(node, reader, 2, 4).unwrap(), b"2345");
    let (writer, _) = kernel.open(node, libc::O_WRONLY | libc::O_TRUNC).unwrap();
    assert_eq!(kernel.getattr(node).unwrap().size, 0);
    let flush = body().u64(writer).u64(0).u64(0);
    assert_eq!(kernel.ask(op::FLUSH, node, flush), Err(libc::ENOSYS));
    for handle in [fh, reader, writer] {
        kernel.release(node, handle);
    }
    assert_eq!(kernel.read(node, reader, 0, 4), Err(libc::EBADF));
    assert_eq!(kernel.write(node, 4711, 0, b"x"), Err(libc::EBADF));
    assert_eq!(kernel.fsync(node, fh, false), Err(libc::EBADF));
    assert_eq!(
        kernel.lseek((node, fh), 0, libc::SEEK_DATA),
        Err(libc::EBADF)
    );
    assert_eq!(kernel.fallocate((node, fh), 0, 0, 9), Err(libc::EBADF));
    // A release of no handle, and one of an unknown, are answered.
    kernel.release(node, 0);
    kernel.release(node, 4711);
    assert_eq!(kernel.open(ROOT, libc::O_RDWR), Err(libc::EISDIR));
    let dir = kernel.ask(op::OPENDIR, ROOT, body().u64(0)).unwrap();
    let release = body().u64(long(&dir, 0)).u64(0).u64(0);
    kernel.ask_empty(op::RELEASEDIR, ROOT, release).unwrap();
    let exists = kernel.create(ROOT, "file", libc::O_RDWR | libc::O_EXCL);
    assert_eq!(exists, Err(libc::EEXIST));
    kernel.end(&image);
}

#[test]
fn options_bypass_the_kernels_pages_or_delay_writes() {
    let image = image();
    let direct = VolumeFsOptions {
        direct_io: true,
        ..VolumeFsOptions::default()
    };
    let kernel = Kernel::on(&image, direct);
    let (made, fh) = kernel.create(ROOT, "file", libc::O_RDWR).unwrap();
    let node = made.node;
    let (again, flags) = kernel.open(node, libc::O_RDWR).unwrap();
    assert_eq!(flags & DIRECT_IO, DIRECT_IO);
    for (i, flags) in [libc::O_DSYNC, libc::O_SYNC, libc::O_DIRECT]
        .into_iter()
        .enumerate()
    {
        let file = (node, fh);
        let n = kernel.write_as(
            file,
            i as u64 * 4096,
            &pattern(4096),
            (0, libc::O_RDWR | flags),
        );
        assert_eq!(n, Ok(4096));
    }
    assert_eq!(kernel.read(node, again, 8192, 4096).unwrap(), pattern(4096));
    assert!(kernel.volume().whole_write() <= 64 << 10);
    kernel.end(&image);
    let delayed = VolumeFsOptions {
        writeback_cache: true,
        ..VolumeFsOptions::default()
    };
    let kernel = Kernel::on(&image, delayed);
    let node = kernel.lookup(ROOT, "file").unwrap().node;
    let (fh, flags) = kernel.open(node, libc::O_RDWR).unwrap();
    assert_eq!(flags & DIRECT_IO, 0);
    let from_cache = (FROM_CACHE, libc::O_RDWR);
    let n = kernel.write_as((node, fh), 1 << 20, &pattern(100_000), from_cache);
    assert_eq!(n, Ok(100_000));
    assert_eq!(
        kernel.read(node, fh, 1 << 20, 100_000).unwrap(),
        pattern(100_000)
    );
    kernel.end(&image);
}

#[test]
fn a_write_by_others_clears_the_bits_that_the_kernel_names() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    let mode = |bits| Set {
        mode: Some(bits),
        ..Set::default()
    };
    let now = |kernel: &Kernel| kernel.getattr(file).unwrap().mode & 0o7777;
    kernel.setattr(file, mode(0o6755)).unwrap();
    kernel.write(file, 0, 0, b"by root").unwrap();
    assert_eq!(now(&kernel), 0o6755);
    kernel.who = USER;
    let written = kernel.write_as((file, 0), 0, b"by a user", (KILL, libc::O_RDWR));
    assert_eq!((written, now(&kernel)), (Ok(9), 0o755));
    // The kernel has to ask for the attributes again.
    kernel.notes(|notes| {
        notes
            .iter()
            .any(|(node, offset, _)| (*node, *offset) == (file, -1))
    });
    // Set-group-id without execution: cleared, as the user is not in the group.
    kernel.setattr(file, mode(0o2644)).unwrap();
    kernel
        .write_as((file, 0), 0, b"x", (KILL, libc::O_RDWR))
        .unwrap();
    assert_eq!(now(&kernel), 0o644);
    kernel.setattr(file, mode(0o4755)).unwrap();
    kernel.fallocate((file, 0), 0, 0, 8192).unwrap();
    assert_eq!(now(&kernel), 0o755);
    kernel.setattr(file, mode(0o4755)).unwrap();
    let sized = Set {
        size: Some(3),
        more: FATTR_KILL_SUIDGID,
        ..Set::default()
    };
    let attr = kernel.setattr(file, sized).unwrap();
    assert_eq!((attr.size, attr.mode & 0o7777), (3, 0o755));
    kernel.end(&image);
}

#[test]
fn allocating_punching_zeroing_and_seeking() {
    let image = image();
    for options in [VolumeFsOptions::default(), handles()] {
        let kernel = Kernel::on(&image, options);
        let node = kernel.file(ROOT, "file");
        let fh = kernel.open(node, libc::O_RDWR).map_or(0, |(fh, _)| fh);
        let file = (node, fh);
        let size = || kernel.getattr(node).unwrap().size;
        let data = pattern(16 << 10);
        kernel.write(node, fh, 0, &data).unwrap();
        kernel
            .fallocate(file, libc::FALLOC_FL_KEEP_SIZE, 16 << 10, 16 << 10)
            .unwrap();
        assert_eq!(
            (size(), kernel.getattr(node).unwrap().blocks),
            (16 << 10, 64)
        );
        kernel.fallocate(file, 0, 32 << 10, 4096).unwrap();
        assert_eq!(size(), 36 << 10);
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        kernel.fallocate(file, punch, 4096, 4096).unwrap();
        kernel
            .fallocate(file, libc::FALLOC_FL_ZERO_RANGE, 10_000, 100)
            .unwrap();
        let mut expected = data.clone();
        expected[4096..8192].fill(0);
        expected[10_000..10_100].fill(0);
        assert_eq!(kernel.read(node, fh, 0, 16 << 10).unwrap(), expected);
        for mode in [
            libc::FALLOC_FL_PUNCH_HOLE,
            libc::FALLOC_FL_COLLAPSE_RANGE,
            1 << 20,
        ] {
            assert_eq!(kernel.fallocate(file, mode, 0, 4096), Err(libc::EOPNOTSUPP));
        }
        assert_eq!(kernel.fallocate(file, 0, 0, 0), Err(libc::EINVAL));
        let seek = |at, whence| kernel.lseek(file, at, whence);
        assert_eq!(seek(0, libc::SEEK_HOLE), Ok(4096));
        assert_eq!(seek(4096, libc::SEEK_DATA), Ok(8192));
        assert_eq!(seek(5, libc::SEEK_DATA), Ok(5));
        assert_eq!(seek(36 << 10, libc::SEEK_DATA), Err(libc::ENXIO));
        assert_eq!(seek(0, libc::SEEK_SET), Err(libc::EINVAL));
        kernel.unlink(ROOT, "file").unwrap();
        kernel.end(&image);
    }
}

#[test]
fn copies_between_files() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let (from, from_fh) = kernel.create(ROOT, "from", libc::O_RDWR).unwrap();
    let (to, to_fh) = kernel
        .create(ROOT, "to", libc::O_RDWR | libc::O_DSYNC)
        .unwrap();
    let data = pattern(300_000);
    kernel.write(from.node, from_fh, 0, &data).unwrap();
    let source = |at| (from.node, from_fh, at);
    let target = |at| (to.node, to_fh, at);
    assert_eq!(kernel.copy(source(1000), target(5), 200_000), Ok(200_000));
    assert_eq!(
        kernel.read(to.node, to_fh, 5, 200_000).unwrap(),
        data[1000..201_000]
    );
    assert_eq!(
        kernel.copy(source(299_990), target(0), 100),
        Ok(10),
        "to the end"
    );
    assert_eq!(kernel.copy(source(300_000), target(0), 100), Ok(0));
    let within = kernel.copy(source(0), source(50), 100);
    assert_eq!(within, Err(libc::EINVAL), "the ranges overlap");
    assert_eq!(kernel.copy(source(0), source(300_000), 100), Ok(100));
    assert_eq!(kernel.copy(source(0), (2, to_fh, 0), 1), Err(libc::ESTALE));
    let unknown = kernel.copy(source(0), (to.node, 4711, 0), 1);
    assert_eq!(unknown, Err(libc::EBADF));
    kernel.end(&image);
    // Without handles it cannot be known whether the copy must be durable.
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let [from, to] = ["from", "to"].map(|name| kernel.lookup(ROOT, name).unwrap().node);
    assert_eq!(
        kernel.copy((from, 0, 0), (to, 0, 0), 9),
        Err(libc::EOPNOTSUPP)
    );
    kernel.end(&image);
}

#[test]
fn syncs_answer_when_the_content_is_durable() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    for others in [false, true] {
        kernel.others = others;
        for data_only in [false, true] {
            let word = format!("durable {others} {data_only}");
            kernel.write(file, 0, 8192, word.as_bytes()).unwrap();
            kernel.fsync(file, 0, data_only).unwrap();
            let on_device = std::fs::read(image.path()).unwrap();
            let found = on_device.windows(word.len()).any(|w| w == word.as_bytes());
            assert!(found, "{word}");
        }
        let fsync = body().u64(0).u64(0);
        kernel.ask_empty(op::FSYNCDIR, ROOT, fsync).unwrap();
        kernel.ask_empty(op::SYNCFS, ROOT, body().u64(0)).unwrap();
    }
    kernel.end(&image);
}

#[test]
fn positions_on_the_device() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    kernel.write(file, 0, 4096, b"where is it?").unwrap();
    kernel.fsync(file, 0, false).unwrap();
    let bmap = |index: u64| kernel.ask(op::BMAP, file, body().u64(index).u32(4096).u32(0));
    assert_eq!(long(&bmap(0).unwrap(), 0), 0, "a hole");
    let block = long(&bmap(1).unwrap(), 0) as usize;
    let on_device = std::fs::read(image.path()).unwrap();
    assert_eq!(&on_device[block * 4096..][..12], b"where is it?");
    kernel.end(&image);
}

#[test]
fn a_size_is_set_by_handle_or_by_name() {
    let image = image();
    let kernel = Kernel::on(&image, handles());
    let (made, fh) = kernel.create(ROOT, "file", libc::O_RDWR).unwrap();
    kernel.write(made.node, fh, 0, &pattern(10_000)).unwrap();
    for (size, more) in [(5000, FATTR_FH), (20_000, 0)] {
        let set = Set {
            size: Some(size),
            more,
            fh,
            ..Set::default()
        };
        assert_eq!(kernel.setattr(made.node, set).unwrap().size, size);
    }
    let read = kernel.read(made.node, fh, 4990, 20).unwrap();
    assert_eq!(read, [&pattern(10_000)[4990..5000], &[0; 10]].concat());
    let whole: Arc<VolumeFs> = Arc::clone(kernel.volume());
    assert!(whole.volume().is_some());
    kernel.end(&image);
    assert!(whole.volume().is_none(), "closed with the session");
    drop(open(&image, FsOptions::default()).close());
}

/// fsync(2) makes attributes durable too; fdatasync(2) need not. The copy of the image is what a
/// crash leaves.
#[test]
fn a_full_sync_makes_attributes_durable() {
    let image = image();
    let kernel = Kernel::on(&image, VolumeFsOptions::default());
    let file = kernel.file(ROOT, "file");
    kernel.write(file, 0, 0, b"content").unwrap();
    kernel.fsync(file, 0, false).unwrap();
    let set = Set {
        mode: Some(0o604),
        ..Set::default()
    };
    kernel.setattr(file, set).unwrap();
    kernel.fsync(file, 0, false).unwrap();
    let crashed = image.copy().unwrap();
    kernel.end(&image);
    let kernel = Kernel::on(&crashed, VolumeFsOptions::default());
    let found = kernel.lookup(ROOT, "file").unwrap().attr;
    assert_eq!((found.mode, found.size), (libc::S_IFREG | 0o604, 7));
    kernel.end(&crashed);
}
