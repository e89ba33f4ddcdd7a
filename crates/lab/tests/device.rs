//! Tests of `stetfs device serve`: a simulated device as a file.
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::daemon::{BINARY, fails, ok};
use crate::common::{kernel, stetfs};
use crate::served::Served;
use rustix::io::Errno;
use stetfs_testkit::{
    LoopDev, LoopOptions, Mkfs, Mounted, Mounter, Scratch, cmd, mount, wait_until,
};

fn mkfs(path: &Path) {
    let mut mke2fs = Command::new("mke2fs");
    cmd::run(mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(path)).unwrap();
}

#[test]
fn both_the_kernel_and_stetfs_work_on_it() {
    let served = Served::new(&["--model", "nvme-ssd", "--size", "64M"]);
    assert_eq!(served.disk().metadata().unwrap().len(), 64 << 20);
    mkfs(&served.disk());
    let written = served.counter("bytes_written");
    assert!(written > 0);
    for mounter in [kernel(), stetfs()] {
        let mounted = mounter.mount(&served.disk()).unwrap();
        let path = mounted.path().join("file");
        std::fs::write(&path, vec![5; 1 << 20]).unwrap();
        let flushes = served.counter("flushes");
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        assert!(served.counter("flushes") > flushes);
        mounted.umount().unwrap();
    }
    assert!(served.counter("bytes_written") >= written + (2 << 20));
    let said = served.end();
    assert!(said["flushes"].as_u64().unwrap() > 0);
}

#[test]
fn a_file_holds_the_content_and_the_model_its_time() {
    let image = stetfs_testkit::Image::make(32 << 20, &Mkfs::new()).unwrap();
    let path = image.path().to_str().unwrap();
    let served = Served::new(&["--model", "disk", "--image", path]);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(served.disk())
        .unwrap();
    let begin = Instant::now();
    std::os::unix::fs::FileExt::write_all_at(&file, b"here", 30 << 20).unwrap();
    file.sync_all().unwrap();
    // A seek and half a rotation.
    assert!(begin.elapsed() > Duration::from_millis(5));
    drop(file);
    served.end();
    let bytes = std::fs::read(image.path()).unwrap();
    assert_eq!(&bytes[30 << 20..][..4], b"here");
}

#[test]
fn it_ends_with_its_mount() {
    let served = Served::new(&["--model", "nvme-ssd", "--size", "1M"]);
    cmd::run(Command::new("umount").arg(&served.dir)).unwrap();
    assert_eq!(served.ended()["writes"], 0);
}

#[test]
fn who_still_uses_it_is_served_to_the_end() {
    let served = Served::new(&["--model", "nvme-ssd", "--size", "1M"]);
    let options = std::fs::OpenOptions::new().write(true).to_owned();
    let file = options.open(served.disk()).unwrap();
    served.interrupt();
    wait_until("it is unmounted", || !mount::is_mounted(&served.dir));
    std::os::unix::fs::FileExt::write_all_at(&file, b"late", 0).unwrap();
    drop(file);
    assert_eq!(served.ended()["writes"], 1);
}

/// A fresh volume, served and mounted, with a durable file `old`.
fn volume(mounter: &Mounter, args: &[&str]) -> (Served, Mounted) {
    let served = Served::new(&[&["--size", "64M"], args].concat());
    mkfs(&served.disk());
    let mounted = mounter.mount(&served.disk()).unwrap();
    synced(&mounted.path().join("old")).unwrap();
    (served, mounted)
}

/// Writes 64 KiB and syncs them.
fn synced(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(&[7; 64 << 10])?;
    file.sync_all()
}

fn is_whole(path: &Path) -> bool {
    std::fs::read(path).unwrap() == [7; 64 << 10]
}

/// Ends a mount whose device failed, and mounts again when the device works, which replays the
/// journal.
fn again(mounter: &Mounter, served: &Served, mounted: Mounted) -> Mounted {
    // The unmount is not clean, of course.
    let _ = mounted.umount();
    assert_eq!(served.fault(&["pass"]), ["pass"]);
    mounter.mount(&served.disk()).unwrap()
}

fn check(served: &Served) {
    cmd::run(Command::new("e2fsck").arg("-fn").arg(served.disk())).unwrap();
}

#[test]
fn dropped_writes_are_gone_and_nobody_is_told() {
    for mounter in [kernel(), stetfs()] {
        let (served, mounted) = volume(&mounter, &[]);
        assert_eq!(served.fault(&["drop-writes"]), ["drop-writes"]);
        synced(&mounted.path().join("new")).unwrap();
        let mounted = again(&mounter, &served, mounted);
        assert!(is_whole(&mounted.path().join("old")));
        assert!(!mounted.path().join("new").exists(), "{}", mounter.name());
        mounted.umount().unwrap();
        check(&served);
    }
}

#[test]
fn failed_writes_are_told_of() {
    for mounter in [kernel(), stetfs()] {
        let (served, mounted) = volume(&mounter, &[]);
        served.fault(&["error-writes"]);
        let failed = synced(&mounted.path().join("new")).unwrap_err();
        let code = failed.raw_os_error();
        let told = [libc::EIO, libc::EROFS].map(Some).contains(&code);
        assert!(told, "{}: {failed}", mounter.name());
        let mounted = again(&mounter, &served, mounted);
        assert!(is_whole(&mounted.path().join("old")));
        synced(&mounted.path().join("new")).unwrap();
        mounted.umount().unwrap();
        check(&served);
    }
}

#[test]
fn failed_reads_are_told_of_and_kept_by_nobody() {
    for mounter in [kernel(), stetfs()] {
        let (served, mounted) = volume(&mounter, &[]);
        mounted.umount().unwrap();
        let mounted = mounter.mount(&served.disk()).unwrap();
        let old = mounted.path().join("old");
        let file = std::fs::File::open(&old).unwrap();
        served.fault(&["error-reads"]);
        let failed = (&file).read(&mut [0; 4096]).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EIO), "{}", mounter.name());
        served.fault(&["pass"]);
        assert!(is_whole(&old), "{}", mounter.name());
        drop(file);
        mounted.umount().unwrap();
    }
}

#[test]
fn a_device_that_is_gone_leaves_what_was_synced() {
    for mounter in [kernel(), stetfs()] {
        let (served, mounted) = volume(&mounter, &[]);
        served.fault(&["error-all"]);
        assert!(synced(&mounted.path().join("new")).is_err());
        let mounted = again(&mounter, &served, mounted);
        assert!(is_whole(&mounted.path().join("old")));
        mounted.umount().unwrap();
        check(&served);
    }
}

/// Overwrites one page of the file in place.
fn overwrite(path: &Path, byte: u8) -> std::fs::File {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[byte; 4096], 0).unwrap();
    file
}

/// As xfstests generic/484: the device fails as a whole while data is overwritten, and works again
/// before any sync.
#[test]
fn syncfs_tells_once_of_data_that_was_lost() {
    for mounter in [kernel(), stetfs()] {
        let name = mounter.name();
        let (served, mounted) = volume(&mounter, &[]);
        let path = mounted.path().join("old");
        served.fault(&["error-all"]);
        let lost = overwrite(&path, 8).sync_data();
        assert!(lost.is_err(), "{name}");
        served.fault(&["pass"]);
        let syncfs = |file: &std::fs::File| rustix::fs::syncfs(file);
        let open = || std::fs::File::open(&path).unwrap();
        let file = open();
        let told = [syncfs(&file), syncfs(&file)];
        let errors = told.iter().filter(|t| t.is_err()).count();
        assert_eq!(errors, 1, "{name}: {told:?}");
        assert_eq!(syncfs(&open()), Ok(()), "{name}");
        // The mount works on.
        synced(&mounted.path().join("new")).unwrap();
        drop(file);
        mounted.umount().unwrap();
        check(&served);
        let mounted = mounter.mount(&served.disk()).unwrap();
        for file in ["old", "new"] {
            assert!(is_whole(&mounted.path().join(file)), "{name}: {file}");
        }
        mounted.umount().unwrap();
    }
}

/// As xfstests generic/252, with one thread: a direct write reports its failure at once, and its
/// data does not appear later. Over written and unwritten blocks.
#[test]
fn direct_writes_are_told_of_their_failure() {
    use std::os::unix::fs::OpenOptionsExt;
    let mut page = stetfs_block::AlignedBuf::zeroed(4096);
    page.fill(8);
    for mounter in [kernel(), stetfs()] {
        let name = mounter.name();
        let (served, mounted) = volume(&mounter, &[]);
        let unwritten = mounted.path().join("unwritten");
        let file = std::fs::File::create(&unwritten).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 64 << 10).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let direct = |name: &str| {
            let mut options = std::fs::File::options();
            options.write(true).custom_flags(libc::O_DIRECT);
            options.open(mounted.path().join(name)).unwrap()
        };
        let (old, unwritten) = (direct("old"), direct("unwritten"));
        served.fault(&["error-all"]);
        for (what, file, at) in [("old", &old, 4096), ("unwritten", &unwritten, 8192)] {
            let told = file.write_at(&page, at).map_err(|e| e.raw_os_error());
            assert_eq!(told, Err(Some(libc::EIO)), "{name}: {what}");
        }
        served.fault(&["pass"]);
        assert_eq!(old.write_at(&page, 0).unwrap(), 4096, "{name}");
        drop((old, unwritten));
        mounted.umount().unwrap();
        check(&served);
        let mounted = mounter.mount(&served.disk()).unwrap();
        let old = std::fs::read(mounted.path().join("old")).unwrap();
        assert!(
            old[..4096] == [8; 4096] && old[4096..] == [7; 60 << 10],
            "{name}"
        );
        let unwritten = std::fs::read(mounted.path().join("unwritten")).unwrap();
        assert!(unwritten == [0; 64 << 10], "{name}");
        mounted.umount().unwrap();
    }
}

#[test]
fn a_power_cut_takes_what_was_not_flushed() {
    for mounter in [kernel(), stetfs()] {
        for cut in ["power-cut=lose", "power-cut=keep", "power-cut=5"] {
            let (served, mounted) = volume(&mounter, &["--volatile"]);
            std::fs::write(mounted.path().join("new"), [7; 64 << 10]).unwrap();
            assert_eq!(served.fault(&[cut]), ["error-all"]);
            let mounted = again(&mounter, &served, mounted);
            assert!(is_whole(&mounted.path().join("old")));
            mounted.umount().unwrap();
            check(&served);
        }
    }
    let served = Served::new(&["--size", "1M", "--volatile"]);
    let disk = std::fs::File::options().write(true).open(served.disk());
    let disk = disk.unwrap();
    disk.write_all_at(&[1; 1024], 0).unwrap();
    disk.sync_all().unwrap();
    disk.write_all_at(&[2; 512], 0).unwrap();
    served.fault(&["power-cut=lose"]);
    assert!(std::fs::read(served.disk()).is_err());
    served.fault(&["pass"]);
    assert_eq!(std::fs::read(served.disk()).unwrap()[..1024], [1; 1024]);
}

#[test]
fn a_suspended_device_answers_when_it_is_resumed() {
    for mounter in [kernel(), stetfs()] {
        let (served, mounted) = volume(&mounter, &[]);
        assert_eq!(served.fault(&["suspend"]), ["pass", "suspend"]);
        let path = mounted.path().join("new");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| synced(&path));
            // The switch answers however many requests wait.
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(10));
                assert_eq!(served.fault(&[]), ["pass", "suspend"]);
            }
            assert!(!writer.is_finished());
            assert_eq!(served.fault(&["resume"]), ["pass"]);
            writer.join().unwrap().unwrap();
        });
        mounted.umount().unwrap();
        check(&served);
    }
}

#[test]
fn who_waits_for_a_suspended_device_is_let_go_at_its_end() {
    let served = Served::new(&["--size", "1M"]);
    let disk = std::fs::File::options().write(true).open(served.disk());
    let disk = disk.unwrap();
    served.fault(&["suspend"]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| disk.write_all_at(&[1; 512], 0));
        std::thread::sleep(Duration::from_millis(50));
        served.interrupt();
        writer.join().unwrap().unwrap();
    });
    drop(disk);
    assert_eq!(served.ended()["writes"], 1);
}

#[test]
fn sectors_fail_alone_also_through_a_loop_device() {
    let served = Served::new(&["--size", "1M"]);
    let all = std::fs::File::options().write(true).open(served.disk());
    all.unwrap().write_all_at(&[1; 1 << 20], 0).unwrap();
    let words = ["error-reads=8+8", "error-writes=32+1", "drop-writes=64+8"];
    assert_eq!(served.fault(&words), words);
    let direct = LoopOptions {
        direct_io: true,
        ..LoopOptions::default()
    };
    let attached = LoopDev::attach(&served.disk(), direct).unwrap();
    for path in [served.disk().as_path(), attached.path()] {
        let disk = std::fs::File::options().read(true).write(true).open(path);
        let disk = disk.unwrap();
        let read = |sector: u64| disk.read_exact_at(&mut [0; 512], sector * 512);
        read(0).unwrap();
        assert!(read(8).is_err());
        read(16).unwrap();
        let write = |sector: u64, byte| {
            let written = disk.write_all_at(&[byte; 4096], sector * 512);
            written.and_then(|()| disk.sync_all())
        };
        write(40, 2).unwrap();
        assert!(write(32, 2).is_err());
        write(64, 2).unwrap();
    }
    drop(attached);
    served.fault(&["pass"]);
    let bytes = std::fs::read(served.disk()).unwrap();
    let sector = |n: usize| bytes[n * 512];
    assert_eq!([40, 32, 33, 64, 71, 72].map(sector), [2, 1, 2, 1, 1, 1]);
}

#[test]
fn a_block_device_holds_the_content_and_what_is_zeroed_reads_as_zeros() {
    let scratch = Scratch::new("device").unwrap();
    let image = scratch.path().join("image");
    std::fs::write(&image, vec![1; 1 << 20]).unwrap();
    let below = LoopDev::attach(&image, LoopOptions::default()).unwrap();
    let served = Served::new(&["--image", below.path().to_str().unwrap()]);
    let disk = std::fs::File::options()
        .read(true)
        .write(true)
        .open(served.disk());
    let disk = disk.unwrap();
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&disk, flags, 4096, 8192).unwrap();
    disk.write_all_at(&[2; 512], 0).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    served.end();
    drop(below);
    let bytes = std::fs::read(&image).unwrap();
    let expected = [
        (0, 2),
        (512, 1),
        (4095, 1),
        (4096, 0),
        (12287, 0),
        (12288, 1),
    ];
    for (at, byte) in expected {
        assert_eq!(bytes[at], byte, "byte {at}");
    }
}

/// `scripts/xfstests-dmsetup`, with devices in a directory of its own; removed when dropped.
struct DmSetup {
    scratch: Scratch,
}

impl DmSetup {
    fn new() -> DmSetup {
        let scratch = Scratch::new("dm").unwrap();
        for dir in ["state", "nodes"] {
            std::fs::create_dir(scratch.path().join(dir)).unwrap();
        }
        DmSetup { scratch }
    }

    fn node(&self) -> PathBuf {
        self.scratch.path().join("nodes/one")
    }

    fn output(&self, args: &[&str]) -> std::process::Output {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../scripts/xfstests-dmsetup"
        );
        Command::new(script)
            .args(args)
            .env("STETFS", BINARY)
            .env("DM_STATE", self.scratch.path().join("state"))
            .env("DM_DIR", self.scratch.path().join("nodes"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> String {
        let out = self.output(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{args:?}: {said}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Changes the table under a file system as xfstests does.
    fn change(&self, table: &str) {
        self.run(&["suspend", "--nolockfs", "one"]);
        self.run(&["load", "one", "--table", table]);
        self.run(&["resume", "one"]);
    }
}

impl Drop for DmSetup {
    fn drop(&mut self) {
        if self.node().exists() {
            self.output(&["remove", "one"]);
        }
    }
}

#[test]
fn tables_of_device_mapper_are_put_into_faults() {
    let image = stetfs_testkit::Image::sparse(32 << 20).unwrap();
    let below = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    let device = below.path().display();
    let dm = DmSetup::new();
    let targets = dm.run(&["targets"]);
    assert!(
        ["flakey", "error", "linear"]
            .iter()
            .all(|t| targets.contains(t))
    );
    let linear = format!("0 65536 linear {device} 0");
    dm.run(&["create", "one", "--table", &linear]);
    let disk = std::fs::File::options()
        .read(true)
        .write(true)
        .open(dm.node());
    let disk = disk.unwrap();
    let write = |byte| {
        let written = disk.write_all_at(&[byte; 4096], 1 << 20);
        written.and_then(|()| disk.sync_all())
    };
    // The content below, without any cache.
    let stands = || {
        let mut bytes = [0; 4096];
        let file = std::fs::File::open(image.path()).unwrap();
        file.read_exact_at(&mut bytes, 1 << 20).unwrap();
        bytes[0]
    };
    write(1).unwrap();
    assert_eq!(stands(), 1);
    dm.change(&format!("0 65536 flakey {device} 0 0 180 1 drop_writes"));
    write(2).unwrap();
    assert_eq!(stands(), 1);
    dm.change(&format!("0 65536 flakey {device} 0 0 180 1 error_writes"));
    assert!(write(3).is_err());
    dm.change(&format!("0 65536 flakey {device} 0 180 0"));
    write(4).unwrap();
    dm.change(&format!("0 65536 error {device} 0"));
    assert!(write(5).is_err());
    // Sector 2048 is at 1 MiB, the offset of the writes.
    let around = |bad: u64| {
        let rest = bad + 8;
        let parts = [
            format!("0 {bad} linear {device} 0"),
            format!("{bad} 8 error"),
            format!("{rest} {} linear {device} {rest}", 65536 - rest),
        ];
        parts.join("\n")
    };
    dm.change(&around(2048));
    assert!(write(6).is_err());
    dm.change(&around(4096));
    write(7).unwrap();
    assert_eq!(stands(), 7);
    assert!(dm.run(&["table", "one"]).contains("4096 8 error"));
    // An unsupported table is an error.
    let table = format!("0 65536 delay {device} 0 500");
    assert!(
        !dm.output(&["load", "one", "--table", &table])
            .status
            .success()
    );
    drop(disk);
    dm.run(&["remove", "--deferred", "one"]);
    assert!(!dm.node().exists());
    // The device is no longer open.
    drop(below);
    mkfs(image.path());
}

#[test]
fn wrong_faults_are_explained() {
    let served = Served::new(&["--size", "1M"]);
    let dir = served.dir.to_str().unwrap();
    fails(&["device", "fault", dir, "burn"], 1, &["drop-writes"]);
    fails(
        &["device", "fault", dir, "power-cut=lose"],
        1,
        &["--volatile"],
    );
    fails(&["device", "fault", "/tmp", "pass"], 3, &["no device"]);
    let control = served.dir.join("control");
    let refused = std::fs::write(&control, "burn").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    std::fs::write(&control, "error-reads=0+1 intervals=1,2\n").unwrap();
    let set = std::fs::read_to_string(&control).unwrap();
    assert_eq!(set, "error-reads=0+1\nintervals=1,2\n");
    assert!(ok(&["device", "fault", "--help"]).contains("power-cut"));
}

#[test]
fn wrong_arguments_are_explained() {
    let scratch = Scratch::new("device").unwrap();
    let dir = scratch.path().to_str().unwrap();
    fails(
        &["device", "serve", "--model", "tape", "--size", "1M", dir],
        1,
        &["sata-ssd"],
    );
    fails(&["device", "serve", "--model", "disk", dir], 1, &["--size"]);
    assert!(ok(&["device", "serve", "--help"]).contains("nvme-ssd"));
}
