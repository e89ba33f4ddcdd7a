//! A volume is never opened twice.
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stetfs_block::{BlockDevice, BlockError, FileDevice, OpenOptions, Span};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::{Mkfs, Mounter, Scratch};

const READ_ONLY: OpenOptions = OpenOptions {
    read_only: true,
    direct: stetfs_block::Direct::Auto,
    uring: stetfs_block::Uring::Auto,
    span: None,
};

fn image(dir: &Scratch) -> PathBuf {
    let path = dir.path().join("volume.img");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    path
}

fn open(path: &Path) -> Result<FileDevice, BlockError> {
    FileDevice::open(path, OpenOptions::default())
}

/// Checks that opening is refused; returns the message.
#[track_caller]
fn refused(result: Result<FileDevice, BlockError>) -> String {
    let error = result.expect_err("a second open must be refused");
    assert!(matches!(error, BlockError::Locked { .. }), "{error}");
    assert_eq!(error.errno(), libc::EBUSY);
    error.to_string()
}

#[test]
fn a_second_writer_is_refused_whatever_the_path() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let hard = dir.path().join("hard.img");
    let soft = dir.path().join("soft.img");
    std::fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink(&path, &soft).unwrap();
    let first = open(&path).unwrap();
    for other in [&path, &hard, &soft] {
        assert!(refused(open(other)).contains("this process"));
        refused(FileDevice::open(other, READ_ONLY));
    }
    first.write(0, &[1; 512]).unwrap();
    drop(first);
    open(&hard).unwrap();
}

#[test]
fn readers_share_and_keep_writers_out() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let readers = [
        FileDevice::open(&path, READ_ONLY).unwrap(),
        FileDevice::open(&path, READ_ONLY).unwrap(),
    ];
    refused(open(&path));
    drop(readers);
    open(&path).unwrap();
}

/// Another process holds the lock, and the message names it.
#[test]
fn the_message_names_the_process() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let mut other = Command::new("flock")
        .arg(&path)
        .args(["-c", "echo locked; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(other.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let result = open(&path);
    drop(other.stdin.take());
    other.wait().unwrap();
    let message = refused(result);
    assert!(
        message.contains(&format!("process {} (flock)", other.id())),
        "{message}"
    );
    open(&path).unwrap();
}

/// A program that uses only fcntl locks, as QEMU does.
#[test]
fn an_open_file_description_lock_is_respected() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let script = "import fcntl,struct,sys,os\n\
                  f=open(sys.argv[1],'r+b')\n\
                  fcntl.fcntl(f,37,struct.pack('hhqqi4x',1,0,100,1,0))\n\
                  print('locked',flush=True)\nsys.stdin.read()";
    let mut other = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(other.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let result = open(&path);
    drop(other.stdin.take());
    other.wait().unwrap();
    assert_eq!(line, "locked\n");
    refused(result);
    open(&path).unwrap();
}

#[test]
fn an_image_behind_a_loop_device_is_read_only() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let hard = dir.path().join("hard.img");
    std::fs::hard_link(&path, &hard).unwrap();
    let attached = LoopDev::attach(&path, LoopOptions::default()).unwrap();
    for path in [&path, &hard] {
        let message = refused(open(path));
        assert!(
            message.contains(attached.path().to_str().unwrap()),
            "{message}"
        );
        FileDevice::open(path, READ_ONLY).unwrap();
    }
    drop(attached);
    open(&path).unwrap();
}

#[test]
fn a_mounted_image_is_refused_and_the_message_says_where() {
    let image = stetfs_testkit::Image::make(16 << 20, &Mkfs::new()).unwrap();
    let mount = Mounter::ext4("").mount(image.path()).unwrap();
    let message = refused(open(image.path()));
    assert!(
        message.contains(mount.path().to_str().unwrap()),
        "{message}"
    );
    let device = mount.device().unwrap().to_owned();
    let message = refused(open(&device));
    assert!(
        message.contains(mount.path().to_str().unwrap()),
        "{message}"
    );
}

/// Two loop devices over one image, and the image itself, are one volume.
#[test]
fn loop_devices_of_one_image_are_one_volume() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let direct = open(&path).unwrap();
    let one = LoopDev::attach(&path, LoopOptions::default()).unwrap();
    let two = LoopDev::attach(&path, LoopOptions::default()).unwrap();
    refused(open(one.path()));
    drop(direct);
    let first = open(one.path()).unwrap();
    refused(open(one.path()));
    refused(open(two.path()));
    refused(open(&path));
    drop(first);
    open(two.path()).unwrap();
}

/// O_EXCL keeps the kernel and e2fsprogs away while this process has the device.
#[test]
fn the_kernel_and_e2fsprogs_keep_off_a_claimed_device() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let attached = LoopDev::attach(&path, LoopOptions::default()).unwrap();
    let place = dir.path().join("mnt");
    std::fs::create_dir(&place).unwrap();
    let mkfs = || {
        let mut command = Command::new("mkfs.ext4");
        command
            .args(["-q", "-F"])
            .arg(attached.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.output().unwrap()
    };
    assert!(mkfs().status.success());
    let dev = open(attached.path()).unwrap();
    let said = mkfs();
    assert!(!said.status.success());
    assert!(
        String::from_utf8_lossy(&said.stderr).contains("in use"),
        "{said:?}"
    );
    // "$1" is the device, "$2" the directory: mounts and unmounts at once.
    let mount = || {
        let script = "mount -t ext4 -o ro,noload \"$1\" \"$2\" && umount \"$2\"";
        Command::new("sh")
            .args(["-c", script, "sh"])
            .args([attached.path(), &place])
            .output()
            .unwrap()
    };
    let busy = mount();
    let message = String::from_utf8_lossy(&busy.stderr).to_lowercase();
    assert!(
        !busy.status.success() && (message.contains("busy") || message.contains("already mounted")),
        "{message}"
    );
    // A mount of type fuseblk needs the claim; then only the lock keeps a second StetFS out.
    dev.release_exclusive_claim();
    // A child process that another test forks holds a copy of the claim until it executes its
    // program.
    let mut mounted = mount();
    for _ in 0..50 {
        if mounted.status.success() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        mounted = mount();
    }
    assert!(mounted.status.success(), "{mounted:?}");
    refused(open(attached.path()));
    drop(dev);
    open(attached.path()).unwrap();
}

/// Opens a part of an image: its first byte and its size in KiB.
fn part(path: &Path, start: u64, len: u64, read_only: bool) -> Result<FileDevice, BlockError> {
    let span = Some(Span {
        start: start << 10,
        len: len << 10,
    });
    let how = OpenOptions {
        read_only,
        span,
        ..OpenOptions::default()
    };
    FileDevice::open(path, how)
}

#[test]
fn parts_of_an_image_are_kept_apart() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let first = part(&path, 64, 512, false).unwrap();
    let second = part(&path, 576, 512, false).unwrap();
    let reader = part(&path, 2048, 512, true).unwrap();
    for (start, len) in [(64, 512), (0, 65), (1000, 1), (0, 4096)] {
        refused(part(&path, start, len, false));
        refused(part(&path, start, len, true));
    }
    refused(part(&path, 2048, 1, false));
    part(&path, 2048, 512, true).unwrap();
    // The whole image cannot be opened meanwhile.
    refused(open(&path));
    refused(FileDevice::open(&path, READ_ONLY));
    drop(first);
    part(&path, 64, 512, false).unwrap();
    refused(open(&path));
    drop(second);
    refused(open(&path));
    FileDevice::open(&path, READ_ONLY).unwrap();
    drop(reader);
    let whole = open(&path).unwrap();
    refused(part(&path, 64, 512, false));
    refused(part(&path, 64, 512, true));
    drop(whole);
    part(&path, 64, 512, false).unwrap();
}

#[test]
fn a_loop_device_keeps_what_it_shows() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let output = Command::new("losetup")
        .args([
            "--find",
            "--show",
            "--offset",
            "65536",
            "--sizelimit",
            "524288",
        ])
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success());
    let device = String::from_utf8(output.stdout).unwrap();
    let tried = [
        part(&path, 64, 512, false).map(drop),
        part(&path, 576, 512, false).map(drop),
        part(&path, 0, 64, false).map(drop),
        part(&path, 0, 65, false).map(drop),
    ];
    let detach = Command::new("losetup").args(["-d", device.trim()]).status();
    assert!(detach.unwrap().success());
    let free: Vec<bool> = tried.iter().map(Result::is_ok).collect();
    assert_eq!(free, [false, true, true, false], "{tried:?}");
}

/// The holder of a part has a shared lock on the whole, too, as the opener has; that lock does not
/// conflict.
#[test]
fn the_message_names_who_has_the_part() {
    let dir = Scratch::new("locks").unwrap();
    let path = image(&dir);
    let script = "import fcntl,struct,sys\n\
                  def hold(start):\n\
                  \x20f=open(sys.argv[1],'r+b')\n\
                  \x20fcntl.flock(f,fcntl.LOCK_SH)\n\
                  \x20fcntl.fcntl(f,37,struct.pack('hhqqi4x',1,0,start,1<<20,0))\n\
                  \x20return f\n\
                  held=hold(int(sys.argv[2]))\n\
                  print('locked',flush=True)\nsys.stdin.read()";
    let mut others = [1 << 20, 2 << 20].map(|start: u64| {
        let mut other = Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .arg(start.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = other.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert_eq!(line, "locked\n");
        (start, other)
    });
    let results = [0, 1].map(|n: usize| {
        let span = Some(Span {
            start: others[n].0,
            len: 1 << 20,
        });
        let options = OpenOptions {
            span,
            ..OpenOptions::default()
        };
        FileDevice::open(&path, options)
    });
    let names = [0, 1].map(|n: usize| format!("process {} (python3)", others[n].1.id()));
    for (_, other) in &mut others {
        drop(other.stdin.take());
        other.wait().unwrap();
    }
    for (message, name) in results.into_iter().map(refused).zip(names) {
        assert!(message.contains(&name), "{name}: {message}");
    }
}
