//! `stetfs device serve`: a simulated device as a file.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::daemon::{BINARY, fails, ok};
use common::{kernel, stetfs};
use serde_json::Value;
use stetfs_testkit::{Mkfs, Scratch, cmd, mount};

/// A device being served; ended when dropped.
struct Served {
    server: Child,
    dir: PathBuf,
    _scratch: Scratch,
}

impl Served {
    fn new(args: &[&str]) -> Served {
        let scratch = Scratch::new("device").unwrap();
        let dir = scratch.path().join("dev");
        std::fs::create_dir(&dir).unwrap();
        let mut server = Command::new(BINARY)
            .args(["--json", "device", "serve"])
            .args(args)
            .arg(&dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = server.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(told["disk"].as_str(), dir.join("disk").to_str());
        Served {
            server,
            dir,
            _scratch: scratch,
        }
    }

    fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    fn counter(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.dir.join("stats")).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }

    /// Ctrl-C.
    fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.server);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Ends it; gives what it says.
    fn end(self) -> Value {
        self.interrupt();
        self.ended()
    }

    fn ended(mut self) -> Value {
        let mut said = String::new();
        let out = self.server.stdout.as_mut().unwrap();
        out.read_to_string(&mut said).unwrap();
        let status = self.server.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        assert!(!mount::is_mounted(&self.dir));
        serde_json::from_str(&said).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if mount::is_mounted(&self.dir) {
            // On failure only.
            let _ = self.server.kill();
            let _ = self.server.wait();
            mount::detach(&self.dir);
        }
    }
}

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
    let patience = Instant::now() + Duration::from_secs(10);
    while mount::is_mounted(&served.dir) {
        assert!(Instant::now() < patience, "still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::os::unix::fs::FileExt::write_all_at(&file, b"late", 0).unwrap();
    drop(file);
    assert_eq!(served.ended()["writes"], 1);
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
