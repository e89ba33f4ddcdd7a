//! Tests of failures below a mount or around it: the server reports them, does not panic and does
//! not hang; synced data is there after recovery, and e2fsck finds nothing.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::daemon::BINARY;
use crate::common::{Host, number, stetfs_with};
use rustix::process::{Pid, Signal, kill_process};
use stetfs_block::{Fault, FaultInjector, MemDevice, Op};
use stetfs_fuse::{DeviceFs, MountOptions, Service};
use stetfs_testkit::image::e2fsck;
use stetfs_testkit::{Image, Mkfs, Mounted, Scratch, StetMount, cmd, wait_until};

/// 256 KiB that identify their file.
fn content(i: u64) -> Vec<u8> {
    (0..32_768u64)
        .flat_map(|n| (i << 32 | n).to_le_bytes())
        .collect()
}

/// Writes a file; it is durable with its name when this succeeds.
fn write_synced(dir: &Path, i: u64) -> std::io::Result<()> {
    let mut file = File::create(dir.join(format!("f{i}")))?;
    file.write_all(&content(i))?;
    file.sync_all()?;
    File::open(dir)?.sync_all()
}

/// Writes files `f0` … with [`write_synced`], until one fails; returns the number of durable files,
/// and the error.
fn write_until_it_fails(dir: &Path, most: u64) -> (u64, Option<std::io::Error>) {
    for i in 0..most {
        if let Err(e) = write_synced(dir, i) {
            return (i, Some(e));
        }
    }
    (most, None)
}

fn mount(volume: &Path) -> StetMount {
    mount_with(volume, "")
}

fn mount_with(volume: &Path, options: &str) -> StetMount {
    match stetfs_with(options).mount(volume).unwrap() {
        Mounted::Stetfs { mount, .. } => mount,
        Mounted::Kernel(_) => unreachable!("it is StetFS"),
    }
}

/// Unmounts, cleanly or not, and returns the server's log.
fn take_down(mount: StetMount) -> String {
    let _ = cmd::output(Command::new(BINARY).arg("umount").arg(mount.path())).unwrap();
    let log = mount.log();
    drop(mount);
    assert!(!log.contains("panicked") && !log.contains("a bug"), "{log}");
    log
}

/// Recovers the volume, runs e2fsck, and checks that the first `synced` files are as written.
fn recovered(volume: &Path, synced: u64, what: &str) {
    cmd::run(Command::new(BINARY).arg("recover").arg(volume)).unwrap();
    e2fsck(volume, &["-fn"], 0).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mounted = mount(volume);
    for i in 0..synced {
        let is = std::fs::read(mounted.path().join(format!("f{i}")));
        let is = is.unwrap_or_else(|e| panic!("{what}: f{i} of {synced}: {e}"));
        assert!(is == content(i), "{what}: f{i} is not as it was synced");
    }
    // The volume can be written again.
    std::fs::write(mounted.path().join("after"), "stet").unwrap();
    mounted.umount().unwrap();
    e2fsck(volume, &["-fn"], 0).unwrap();
}

#[test]
fn the_host_is_full_under_a_sparse_image() {
    let host = Host::new(40 << 20);
    let image = host.dir.join("image");
    File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let mut mkfs = Command::new("mke2fs");
    cmd::run(mkfs.args(["-q", "-t", "ext4", "-J", "size=4"]).arg(&image)).unwrap();
    let mounted = mount(&image);
    let (synced, error) = write_until_it_fails(mounted.path(), 400);
    let error = error.expect("256 MiB do not fit on 40");
    assert!(synced > 20, "only {synced} files: {error}");
    assert!(
        matches!(
            error.raw_os_error(),
            Some(libc::EIO | libc::ENOSPC | libc::EROFS)
        ),
        "{error}"
    );
    // Existing files can still be read.
    assert!(std::fs::read(mounted.path().join("f0")).unwrap() == content(0));
    let log = take_down(mounted);
    assert!(
        log.contains("No space left") || log.contains("no space"),
        "{log}"
    );
    host.resize(400 << 20);
    recovered(&image, synced, "a full host");
}

/// A simulated device in this process, as a file that can be mounted.
struct Faulty {
    device: Arc<FaultInjector<MemDevice>>,
    _service: Service,
    disk: PathBuf,
    _scratch: Scratch,
}

impl Faulty {
    fn new(image: &Image) -> Faulty {
        let scratch = Scratch::new("faulty").unwrap();
        let device = Arc::new(FaultInjector::new(MemDevice::load(image.path()).unwrap()));
        let fs = Arc::new(DeviceFs::new(Arc::clone(&device)));
        let options = MountOptions::new("faulty");
        let service = Service::start(fs, scratch.path(), &options, 4).unwrap();
        Faulty {
            device,
            disk: service.dir().join("disk"),
            _service: service,
            _scratch: scratch,
        }
    }
}

/// A run: the device fails from its `after`-th request of a kind on, once or permanently.
fn fail_at(image: &Image, op: Op, after: u64, times: u64) -> bool {
    let what = format!("{op} {after}, {times} times");
    let faulty = Faulty::new(image);
    let mounted = mount(&faulty.disk);
    faulty
        .device
        .add(Fault::fail(op, libc::EIO).after(after).times(times));
    let (synced, error) = write_until_it_fails(mounted.path(), 12);
    // A read fault needs reads.
    let read = (0..synced).try_for_each(|i| {
        let file = File::open(mounted.path().join(format!("f{i}")))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        file.read_exact_at(&mut vec![0; 1000], 100_000)
    });
    if let Some(e) = &error {
        assert!(
            matches!(e.raw_os_error(), Some(libc::EIO | libc::EROFS)),
            "{what}: {e}"
        );
    }
    let failed = error.is_some() || read.is_err();
    let log = take_down(mounted);
    assert!(
        !failed || log.contains("Input/output error"),
        "{what}: the server does not say why:\n{log}"
    );
    faulty.device.clear();
    recovered(&faulty.disk, synced, &what);
    failed
}

/// Writes to the blocks of two files fail: a sync of them gets an error, once per descriptor, and
/// everything else goes on (xfstests' generic/441, 484 and 487).
#[test]
fn file_data_that_cannot_be_written_stops_nothing() {
    let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
    let made = mount(image.path());
    for i in 0..3 {
        write_synced(made.path(), i).unwrap();
    }
    made.umount().unwrap();
    let place = |name: &str| {
        let first = image.debugfs(&format!("bmap {name} 0")).unwrap();
        let first = first.trim().parse::<u64>().unwrap() * 4096;
        first..first + content(0).len() as u64
    };
    let (bad, worse) = (place("f0"), place("f1"));
    let runs = [
        ("ordered", "stateless"),
        ("writeback", "stateless"),
        ("ijournal", "stateless"),
        ("ordered", "handles"),
    ];
    for (preset, opens) in runs {
        let faulty = Faulty::new(&image);
        let options = format!("journal={preset},errors=remount-ro,opens={opens}");
        let mounted = mount_with(&faulty.disk, &options);
        let open = |name: &str| {
            let path = mounted.path().join(name);
            File::options().read(true).write(true).open(path).unwrap()
        };
        let errno = |result: std::io::Result<()>| result.err().and_then(|e| e.raw_os_error());
        let fsync = |file: &File| errno(file.sync_all());
        let syncfs = || errno(rustix::fs::syncfs(open("f2")).map_err(Into::into));
        let openers: Vec<File> = (0..4).map(|_| open("f0")).collect();
        let break_it = || {
            for place in [&bad, &worse] {
                let fault = Fault::fail(Op::Write, libc::EIO);
                faulty.device.add(fault.within(place.clone()));
            }
        };
        break_it();
        for (i, file) in openers.iter().enumerate() {
            file.write_all_at(&[7; 50_000], 50_000 * i as u64).unwrap();
        }
        let told = |file| (fsync(file), fsync(file));
        for file in &openers {
            assert_eq!(told(file), (Some(libc::EIO), None), "{preset}");
        }
        // Without handles the server does not know that the file was opened later.
        let late = (opens == "stateless").then_some(libc::EIO);
        assert_eq!(fsync(&open("f0")), late, "{preset}: others were told");
        let mut sync = Command::new("sync");
        let sync = sync.arg(mounted.path().join("f0")).output().unwrap();
        assert_eq!(
            sync.status.success(),
            late.is_none(),
            "{preset}: another program, {sync:?}"
        );
        assert_eq!((syncfs(), syncfs()), (Some(libc::EIO), None), "{preset}");
        open("f1").write_all_at(b"unsynced", 9).unwrap();
        assert_eq!((syncfs(), syncfs()), (Some(libc::EIO), None), "{preset}");
        // Everything else goes on meanwhile.
        write_synced(mounted.path(), 3).unwrap();
        std::fs::rename(mounted.path().join("f3"), mounted.path().join("f2")).unwrap();

        // A remount does not forget which descriptors are to get the error.
        let late = open("f1");
        openers[0].write_all_at(&[7; 50_000], 0).unwrap();
        let remounted = Command::new(BINARY)
            .args(["mount", "-o", "remount,commit=7", "none"])
            .arg(mounted.path())
            .output()
            .unwrap();
        assert!(remounted.status.success(), "{preset}: {remounted:?}");
        faulty.device.clear();
        for file in [&late, &openers[0], &openers[1]] {
            assert_eq!(told(file), (Some(libc::EIO), None), "{preset}: remounted");
        }

        openers[0].write_all_at(&content(0), 0).unwrap();
        assert_eq!(fsync(&openers[0]), None, "{preset}: written again");
        drop((openers, late));
        let log = take_down(mounted);
        assert!(log.contains("is lost"), "{preset}: {log}");
        let mounted = mount(&faulty.disk);
        assert!(std::fs::read(mounted.path().join("f0")).unwrap() == content(0));
        assert!(std::fs::read(mounted.path().join("f2")).unwrap() == content(3));
        mounted.umount().unwrap();
        e2fsck(&faulty.disk, &["-fn"], 0).unwrap();
    }
}

#[test]
fn the_device_fails_at_any_request() {
    let image = Image::make(48 << 20, &Mkfs::new().journal_mib(4)).unwrap();
    // With STETFS_LONG=1, at each of the first hundred.
    let step = if number("STETFS_LONG", 0) > 0 { 1 } else { 9 };
    for (op, most) in [(Op::Write, 60), (Op::Flush, 30)] {
        let mut failed = 0;
        for after in (0..most).step_by(step) {
            for times in [1, u64::MAX] {
                failed += u64::from(fail_at(&image, op, after, times));
            }
        }
        assert!(failed >= 3, "{op}: {failed} failures were seen");
    }
    for after in [0, 3, 20] {
        fail_at(&image, Op::Read, after, u64::MAX);
    }
}

/// The image of a mounted volume is truncated, and later extended to its old length: the lost part
/// reads as an error, never as other data.
#[test]
fn the_image_shrinks_while_it_is_mounted() {
    const FILES: u64 = 900;
    const CUT: u64 = 180 << 20;
    // Two groups; behind the journal, which mke2fs puts in the middle, there is only data.
    let image = Image::make(256 << 20, &Mkfs::blocks(4096).journal_mib(4)).unwrap();
    let journal_end: u64 = image
        .debugfs("bmap <8> 1023")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(
        (1..CUT / 4096).contains(&journal_end),
        "block {journal_end}"
    );
    let mounted = mount_with(image.path(), "cache=4M");
    for i in 0..FILES {
        std::fs::write(mounted.path().join(format!("f{i}")), content(i)).unwrap();
    }
    rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
    let file = File::options().write(true).open(image.path()).unwrap();
    file.set_len(CUT).unwrap();
    let read = |i: u64| {
        let file = File::open(mounted.path().join(format!("f{i}")))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let mut bytes = content(0);
        file.read_exact_at(&mut bytes, 0)?;
        assert!(bytes == content(i), "f{i} reads as something else");
        std::io::Result::Ok(())
    };
    let mut lost = Vec::new();
    for i in 0..FILES {
        if let Err(e) = read(i) {
            assert_eq!(e.raw_os_error(), Some(libc::EIO), "f{i}: {e}");
            lost.push(i);
        }
    }
    assert!(
        (50..500).contains(&lost.len()),
        "{} of {FILES} are lost",
        lost.len()
    );
    let log = take_down(mounted);
    assert!(log.contains("the image ended at byte"), "{log}");
    assert_eq!(
        file.metadata().unwrap().len(),
        CUT,
        "the server made it long again"
    );
    file.set_len(256 << 20).unwrap();
    recovered(image.path(), 1, "a shrunk image");
    let mounted = mount(image.path());
    for i in (0..FILES).filter(|i| !lost.contains(i)) {
        assert!(std::fs::read(mounted.path().join(format!("f{i}"))).unwrap() == content(i));
    }
    mounted.umount().unwrap();
}

/// `/sys/fs/fuse/connections/N/abort`: an administrator's remedy for a mount that hangs.
#[test]
fn the_connection_is_aborted() {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let scratch = Scratch::new("fusectl").unwrap();
    let control = scratch.path().join("control");
    std::fs::create_dir(&control).unwrap();
    cmd::run(
        Command::new("mount")
            .args(["-t", "fusectl", "none"])
            .arg(&control),
    )
    .unwrap();
    let mounted = mount(image.path());
    for i in 0..3 {
        write_synced(mounted.path(), i).unwrap();
    }
    let mut open = File::create(mounted.path().join("open")).unwrap();
    open.write_all(&[7; 5000]).unwrap();
    // The kernel's own form of a device number.
    let dev = mounted.path().metadata().unwrap().dev();
    let number = rustix::fs::major(dev) << 20 | rustix::fs::minor(dev);
    std::fs::write(control.join(number.to_string()).join("abort"), "1").unwrap();
    assert_eq!(
        open.write_all(b"x").unwrap_err().raw_os_error(),
        Some(libc::ENOTCONN)
    );
    drop(open);
    take_down(mounted);
    recovered(image.path(), 3, "an aborted connection");
    cmd::run(Command::new("umount").arg(&control)).unwrap();
}

/// SIGTERM twice, or SIGKILL, while several threads write.
#[test]
fn the_server_is_ended_under_its_users() {
    for signals in [&[Signal::TERM, Signal::TERM][..], &[Signal::KILL]] {
        let what = format!("{signals:?}");
        let image = Image::make(128 << 20, &Mkfs::new()).unwrap();
        let mounted = mount(image.path());
        let pid = Pid::from_raw(i32::try_from(mounted.pid().unwrap()).unwrap()).unwrap();
        let stop = AtomicBool::new(false);
        // After the unmount the path leads to the covered directory.
        let root = File::open(mounted.path()).unwrap();
        let dir = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        let synced: u64 = std::thread::scope(|scope| {
            let dir = dir.as_path();
            let first = scope.spawn(|| write_until_it_fails(dir, 400).0);
            for t in 0..2 {
                let stop = &stop;
                scope.spawn(move || {
                    let names = || {
                        let name = dir.join(format!("t{t}"));
                        for i in 0..100 {
                            std::fs::create_dir(&name)?;
                            std::fs::write(name.join("f"), vec![i; 3000])?;
                            std::fs::remove_dir_all(&name)?;
                        }
                        std::io::Result::Ok(())
                    };
                    while !stop.load(Ordering::Relaxed) && names().is_ok() {}
                });
            }
            wait_until("the first files", || dir.join("f5").exists());
            for signal in signals {
                let _ = kill_process(pid, *signal);
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            stop.store(true, Ordering::Relaxed);
            first.join().unwrap()
        });
        drop(root);
        assert!((5..400).contains(&synced), "{what}: {synced}");
        take_down(mounted);
        recovered(image.path(), synced, &what);
    }
}

/// A descriptor that outlives its server reports errors.
#[test]
fn what_is_open_when_the_server_dies_fails_and_can_be_closed() {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let mounted = mount(image.path());
    write_synced(mounted.path(), 0).unwrap();
    let file = File::open(mounted.path().join("f0")).unwrap();
    let pid = Pid::from_raw(i32::try_from(mounted.pid().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait_until("the end of the connection", || {
        rustix::fs::fstat(file.as_fd()).is_err() || file.sync_all().is_err()
    });
    drop(file);
    take_down(mounted);
    recovered(image.path(), 1, "a file open at the kill");
}
