//! The conformance suite for every backend.
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use std::sync::Arc;

use stetfs_block::{
    AlignedBuf, BlockDevice, BlockError, Direct, FailStop, FaultInjector, FileDevice, MemDevice,
    OpenOptions, Overlay, Read, Recorder, Span, Uring, Watched, Window, Write, suite,
};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use tempfile::TempDir;

/// A directory on a disk: /tmp may be a tmpfs, the target directory hardly.
fn dir() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn image(dir: &TempDir, size: u64) -> PathBuf {
    let path = dir.path().join("volume.img");
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

const SIZE: u64 = 1 << 20;

/// One test per backend: its name, and an expression for the device in a scratch directory.
macro_rules! stamp {
    ($($name:ident: |$dir:ident| $make:expr;)*) => {$(
        #[test]
        fn $name() {
            let $dir = dir();
            let dev = $make;
            for seed in 1..3 {
                suite::check_all(&dev, seed);
            }
        }
    )*};
}

fn open(dir: &TempDir, size: u64, direct: Direct, uring: Uring) -> FileDevice {
    FileDevice::open(
        image(dir, size),
        OpenOptions {
            direct,
            uring,
            ..Default::default()
        },
    )
    .unwrap()
}

/// A loop device with sectors of this size, opened as a device.
fn block_device(dir: &TempDir, sector: u32, options: OpenOptions) -> Disk {
    let options_of_loop = LoopOptions {
        block_size: sector,
        ..Default::default()
    };
    let attached = LoopDev::attach(&image(dir, SIZE), options_of_loop).unwrap();
    let dev = FileDevice::open(attached.path(), options).unwrap();
    assert!(dev.is_block_device());
    assert_eq!((dev.size(), dev.sector_size()), (SIZE, sector));
    Disk {
        dev,
        _attached: attached,
    }
}

/// Dropped in this order.
struct Disk {
    dev: FileDevice,
    _attached: LoopDev,
}

/// A window that leaves out `start` bytes before it and 100 KiB behind it.
fn window<D: BlockDevice>(inner: D, start: u64) -> Window<D> {
    let len = inner.size() - start - (100 << 10);
    Window::new(inner, Span { start, len }, Path::new("disk")).unwrap()
}

const DIRECT: OpenOptions = OpenOptions {
    read_only: false,
    direct: Direct::Required,
    uring: Uring::Auto,
    span: None,
};

stamp! {
    recorder: |_d| Recorder::new(MemDevice::new(SIZE));
    fault_injector_at_rest: |_d| FaultInjector::new(MemDevice::new(SIZE));
    shared_and_boxed: |_d| Arc::new(Box::new(MemDevice::new(SIZE)) as Box<dyn BlockDevice>);
    stacked_on_a_file: |d| FaultInjector::new(Recorder::new(open(&d, SIZE, Direct::Auto, Uring::Auto)));
    fail_stop: |_d| FailStop::new(MemDevice::new(SIZE));
    watched: |_d| Watched::new(MemDevice::new(SIZE), "disk", Arc::default());
    memory: |_d| MemDevice::new(SIZE);
    memory_odd_size: |_d| MemDevice::new(300_001);
    overlay: |_d| Overlay::new(Arc::new(MemDevice::from_image(&[5; 300_001])));
    memory_fork: |_d| MemDevice::from_image(&[3; 200_000]).fork();
    file_default: |d| FileDevice::open(image(&d, SIZE), OpenOptions::default()).unwrap();
    file_direct_uring: |d| open(&d, SIZE, Direct::Required, Uring::Auto);
    file_direct_syscalls: |d| open(&d, SIZE, Direct::Required, Uring::Off);
    file_buffered_uring: |d| open(&d, SIZE, Direct::Off, Uring::Auto);
    file_buffered_syscalls: |d| open(&d, SIZE, Direct::Off, Uring::Off);
    file_odd_size: |d| open(&d, 300_001, Direct::Auto, Uring::Auto);
    file_ends_inside_a_page: |d| open(&d, 300 * 1024 + 512, Direct::Auto, Uring::Auto);
    window_that_shares: |_d| window(MemDevice::new(SIZE).with_share(64, true), 128 << 10);
    window_on_memory: |_d| window(MemDevice::new(SIZE), 63 * 512);
    window_on_a_file: |d| window(open(&d, SIZE, Direct::Required, Uring::Auto), 128 << 10);
    window_on_a_file_between_its_blocks: |d| window(open(&d, SIZE, Direct::Auto, Uring::Auto), 63 * 512);
    file_direct_turned_off: |d| {
        let dev = open(&d, SIZE, Direct::Auto, Uring::Auto);
        dev.fit_granularity(1).unwrap();
        assert!(!dev.is_direct());
        dev
    };
}

/// Which requests make a flush reach the kernel, by the device's own counter. (block.F3)
#[test]
fn a_flush_that_would_find_nothing_is_left_out() {
    let flushes = |dev: &FailStop<&FileDevice>, work: &dyn Fn()| {
        let before = dev.stats().flushes;
        work();
        dev.stats().flushes - before
    };
    let page = AlignedBuf::zeroed(4096);
    let (images, disks) = (dir(), dir());
    let image = open(&images, SIZE, Direct::Auto, Uring::Auto);
    let disk = block_device(&disks, 512, OpenOptions::default());
    for (dev, for_fua) in [(&image, 0), (&disk.dev, 1)] {
        let dev = &FailStop::new(dev);
        assert!(!dev.is_flushed(), "what others wrote before");
        dev.write_batch_flush(&[Write::new(0, &page)]).unwrap();
        let flush = || dev.flush().unwrap();
        assert_eq!(flushes(dev, &flush), 0);
        let empty = || dev.write_batch_flush(&[]).unwrap();
        assert_eq!(flushes(dev, &empty), 0);
        let nothing = || dev.write_batch_flush(&[Write::new(0, &[])]).unwrap();
        assert_eq!(flushes(dev, &nothing), 0);
        let durable = || dev.write_batch(&[Write::new(0, &page).fua()]).unwrap();
        assert_eq!(flushes(dev, &durable), for_fua);
        assert_eq!(flushes(dev, &flush), 0, "it is durable by itself");
        let both = [Write::new(0, &page).fua(), Write::new(8192, &page)];
        let mixed = || dev.write_batch_flush(&both).unwrap();
        assert_eq!(flushes(dev, &mixed), 1 + for_fua);
    }
}

#[test]
fn rings_and_o_direct_are_used_where_the_suite_says_so() {
    let d = dir();
    let dev = open(&d, SIZE, Direct::Required, Uring::Auto);
    assert!(dev.is_direct() && dev.uses_uring());
    assert!(dev.dio_align() >= 512 && dev.dio_align() <= 4096);
    dev.fit_granularity(4096).unwrap();
    assert!(dev.is_direct());
}

#[test]
fn an_image_of_odd_size_is_buffered_and_keeps_its_size() {
    let d = dir();
    let dev = open(&d, 300_001, Direct::Auto, Uring::Auto);
    assert!(!dev.is_direct());
    dev.write(300_000, &[1]).unwrap();
    dev.flush().unwrap();
    drop(dev);
    let path = d.path().join("volume.img");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 300_001);
    let refused = FileDevice::open(
        &path,
        OpenOptions {
            direct: Direct::Required,
            ..Default::default()
        },
    );
    assert_eq!(refused.unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn block_device_512() {
    let d = dir();
    let disk = block_device(&d, 512, DIRECT);
    suite::check_all(&disk.dev, 1);
}

#[test]
fn block_device_512_syscalls() {
    let d = dir();
    let disk = block_device(
        &d,
        512,
        OpenOptions {
            uring: Uring::Off,
            ..DIRECT
        },
    );
    suite::check_all(&disk.dev, 2);
}

#[test]
fn block_device_4096_reads_before_it_writes_less() {
    let d = dir();
    let disk = block_device(&d, 4096, DIRECT);
    assert_eq!(disk.dev.dio_align(), 4096);
    suite::check_all(&disk.dev, 3);
}

#[test]
fn block_device_4096_with_1k_blocks_turns_o_direct_off() {
    let d = dir();
    let disk = block_device(&d, 4096, DIRECT);
    disk.dev.fit_granularity(1024).unwrap();
    assert!(!disk.dev.is_direct());
    suite::check_all(&disk.dev, 4);
}

/// Blocks of 1 KiB at odd multiples of 512 need no copy for O_DIRECT where sectors have 512 bytes.
#[test]
fn half_kilobyte_offsets_are_direct() {
    let d = dir();
    let disk = block_device(&d, 512, DIRECT);
    disk.dev.fit_granularity(1024).unwrap();
    assert!(disk.dev.is_direct());
    assert!(disk.dev.dio_align() <= 512);
    for i in 0..64u64 {
        let page = AlignedBuf::from_slice(&[i as u8; 1024]);
        disk.dev.write(512 + 3 * 512 * i, &page).unwrap();
    }
    let mut all = AlignedBuf::zeroed(SIZE as usize);
    disk.dev.read(0, &mut all).unwrap();
    for i in 0..64usize {
        let at = 512 + 3 * 512 * i;
        assert!(all[at..at + 1024].iter().all(|&b| b == i as u8));
        assert!(
            all[at + 1024..at + 1536].iter().all(|&b| b == 0),
            "the gap after block {i}"
        );
    }
}

#[test]
fn what_was_written_is_in_the_file() {
    let d = dir();
    for (direct, uring) in [(Direct::Required, Uring::Auto), (Direct::Off, Uring::Off)] {
        let dev = open(&d, SIZE, direct, uring);
        dev.write_batch(&[Write::new(4096, &[7; 4096]), Write::new(77, &[8; 10]).fua()])
            .unwrap();
        dev.discard(8192..SIZE).unwrap();
        dev.flush().unwrap();
        let file = std::fs::read(dev.path()).unwrap();
        assert!(file[4096..8192].iter().all(|&b| b == 7));
        assert!(file[77..87].iter().all(|&b| b == 8));
        assert_eq!(file.iter().filter(|&&b| b != 0).count(), 4096 + 10);
        let allocated = std::fs::metadata(dev.path()).unwrap().blocks() * 512;
        assert!(
            allocated < 64 << 10,
            "the discard punched a hole: {allocated} bytes left"
        );
    }
}

#[test]
fn a_read_only_device_refuses_writes() {
    let d = dir();
    let path = image(&d, SIZE);
    let dev = FileDevice::open(
        &path,
        OpenOptions {
            read_only: true,
            ..Default::default()
        },
    )
    .unwrap();
    assert!(dev.read_only());
    for refused in [dev.write(0, &[1; 512]), dev.discard(0..4096)] {
        assert_eq!(refused.unwrap_err().errno(), libc::EROFS);
    }
    dev.flush().unwrap();
    dev.read(0, &mut [0; 512]).unwrap();
}

#[test]
fn an_image_that_shrinks_says_so() {
    let d = dir();
    for direct in [Direct::Required, Direct::Off] {
        let dev = open(&d, SIZE, direct, Uring::Auto);
        File::options()
            .write(true)
            .open(dev.path())
            .unwrap()
            .set_len(5000)
            .unwrap();
        let mut buf = AlignedBuf::zeroed(8192);
        dev.read(0, &mut buf[..4096]).unwrap();
        for at in [0, 4096, 512 << 10] {
            let error = dev.read(at, &mut buf).unwrap_err();
            assert!(
                matches!(
                    error,
                    BlockError::Shrunk {
                        offset: 5000,
                        size: SIZE
                    }
                ),
                "{error}"
            );
        }
    }
}

#[test]
fn what_is_no_volume_is_refused() {
    let d = dir();
    let kinds = [
        d.path().to_owned(),
        "/dev/null".into(),
        d.path().join("nothing"),
    ];
    let errnos = [libc::EINVAL, libc::EINVAL, libc::ENOENT];
    for (path, errno) in kinds.iter().zip(errnos) {
        let error = FileDevice::open(path, OpenOptions::default())
            .err()
            .unwrap();
        assert_eq!(error.errno(), errno, "{error}");
    }
}

/// With more threads than rings, and batches larger than a ring, no data is mixed up.
#[test]
fn many_threads_share_the_rings() {
    let d = dir();
    let dev = open(&d, 16 << 20, Direct::Required, Uring::Auto);
    std::thread::scope(|scope| {
        for t in 0..48u64 {
            let dev = &dev;
            scope.spawn(move || {
                let pages: Vec<_> = (0..80)
                    .map(|i| AlignedBuf::from_slice(&[(t * 3 + i) as u8; 4096]))
                    .collect();
                let place = |i: usize| (i as u64 * 48 + t) * 4096;
                let writes: Vec<_> = pages
                    .iter()
                    .enumerate()
                    .map(|(i, p)| Write::new(place(i), p))
                    .collect();
                dev.write_batch_flush(&writes).unwrap();
                let mut back: Vec<_> = pages.iter().map(|_| AlignedBuf::zeroed(4096)).collect();
                let mut reads: Vec<_> = back
                    .iter_mut()
                    .enumerate()
                    .map(|(i, p)| Read::new(place(i), p))
                    .collect();
                dev.read_batch(&mut reads).unwrap();
                assert!(back == pages, "thread {t}");
            });
        }
    });
    assert_eq!(dev.stats().writes, 48 * 80);
}

#[test]
fn images_are_loaded_and_saved_with_their_holes() {
    let d = dir();
    let dev = MemDevice::new(50_000_001);
    dev.write(12_345_678, b"stet").unwrap();
    dev.write(50_000_000, b"!").unwrap();
    let path = d.path().join("saved.img");
    dev.save(&path).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 50_000_001);
    assert!(meta.blocks() * 512 < 100_000);
    let back = MemDevice::load(&path).unwrap();
    assert_eq!(back.size(), dev.size());
    assert_eq!(back.differences(&dev), []);
    let mut word = [0; 4];
    back.read(12_345_678, &mut word).unwrap();
    assert_eq!(&word, b"stet");
}

#[test]
fn forks_share_until_written() {
    let a = MemDevice::new(10 << 20);
    a.write(0, &[1; 8192]).unwrap();
    let b = a.fork();
    assert_eq!(a.differences(&b), []);
    b.write(4100, &[2; 10]).unwrap();
    a.write(9 << 20, &[3]).unwrap();
    assert_eq!(a.differences(&b), [4096..8192, 9 << 20..(9 << 20) + 4096]);
    assert_eq!(b.differences(&a), a.differences(&b));
    let mut byte = [0];
    a.read(4100, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    b.read(9 << 20, &mut byte).unwrap();
    assert_eq!(byte, [0]);
}

/// The kernel does not drop dirty pages of a device that this process no longer claims: a discard
/// is then skipped.
#[test]
fn discards_work_without_the_exclusive_claim() {
    let d = dir();
    let disk = block_device(
        &d,
        512,
        OpenOptions {
            direct: Direct::Off,
            ..DIRECT
        },
    );
    disk.dev.release_exclusive_claim();
    suite::random_requests(&disk.dev, 5, 300);
}

#[test]
fn a_full_host_says_so() {
    let host = stetfs_testkit::Image::make(16 << 20, &stetfs_testkit::Mkfs::new()).unwrap();
    let mount = stetfs_testkit::Mounter::ext4("")
        .mount(host.path())
        .unwrap();
    for direct in [Direct::Required, Direct::Off] {
        let path = mount.path().join("sparse.img");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let dev = FileDevice::open(
            &path,
            OpenOptions {
                direct,
                ..Default::default()
            },
        )
        .unwrap();
        let data = AlignedBuf::scratch(1 << 20);
        let results: Vec<_> = (0..64).map(|i| dev.write(i << 20, &data)).collect();
        assert!(results[0].is_ok());
        let error = results
            .into_iter()
            .find_map(Result::err)
            .expect("16 MiB do not hold 64");
        assert!(matches!(error, BlockError::NoSpace { .. }), "{error}");
        assert_eq!(error.errno(), libc::ENOSPC);
        std::fs::remove_file(&path).unwrap();
    }
}

/// A further write would extend the image again, and the lost part would read as zeros.
#[test]
fn an_image_that_became_shorter_is_not_made_long_again() {
    for uring in [Uring::Auto, Uring::Off] {
        let dir = dir();
        let path = image(&dir, SIZE);
        let options = OpenOptions {
            uring,
            ..OpenOptions::default()
        };
        let dev = FileDevice::open(&path, options).unwrap();
        dev.write(SIZE - 4096, &[7; 4096]).unwrap();
        dev.flush().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(SIZE / 2).unwrap();
        let shrunk = |r: Result<(), BlockError>| {
            assert!(matches!(r, Err(BlockError::Shrunk { offset, size })
                if (offset, size) == (SIZE / 2, SIZE)));
        };
        // Also before the cut: nothing of this volume may change any more.
        shrunk(dev.write(SIZE - 8192, &[8; 4096]));
        shrunk(dev.write(0, &[8; 4096]));
        shrunk(dev.flush());
        assert_eq!(file.metadata().unwrap().len(), SIZE / 2);
        let mut bytes = [0; 4096];
        shrunk(dev.read(SIZE - 4096, &mut bytes));
    }
}
