//! Tests of a server whose available memory shrinks while it serves: it goes on with less.
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use crate::common::daemon::{Daemon, json};
use stetfs_testkit::{Image, Mkfs, wait_until};

const MIB: u64 = 1 << 20;

/// A control group with a memory limit. When dropped, its processes return to their former group.
struct Group {
    dir: PathBuf,
    before: PathBuf,
}

impl Group {
    /// Makes a group with a limit of so many bytes. Needs root, and the memory controller.
    fn new(limit: u64) -> Group {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let v1 = own.lines().find_map(|line| line.split_once(":memory:"));
        let (before, at, file) = match v1 {
            Some((_, path)) => {
                let own = PathBuf::from(format!("/sys/fs/cgroup/memory{path}"));
                (own.clone(), own, "memory.limit_in_bytes")
            }
            None => {
                let path = own.lines().find_map(|line| line.strip_prefix("0::"));
                let root = PathBuf::from("/sys/fs/cgroup");
                let own = root.join(path.unwrap().trim_start_matches('/'));
                (own, root, "memory.max")
            }
        };
        let dir = at.join(format!("stetfs-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let group = Group { dir, before };
        fs::write(group.dir.join(file), limit.to_string()).unwrap();
        group
    }

    fn take(&self, pid: i32) {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn let_go(&self, pid: i32) {
        fs::write(self.before.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = fs::write(self.before.join("cgroup.procs"), pid);
        }
        if let Err(e) = fs::remove_dir(&self.dir) {
            eprintln!("{} stays: {e}", self.dir.display());
        }
    }
}

fn cache(d: &Daemon, what: &str) -> u64 {
    json(&["stat", d.dir()])["cache"][what].as_u64().unwrap()
}

fn write(d: &Daemon, name: &str, mib: u64) {
    let path = d.file(name);
    let bytes: Vec<u8> = (0..MIB).map(|i| (i % 251) as u8).collect();
    let mut file = fs::File::create(path).unwrap();
    for _ in 0..mib {
        std::io::Write::write_all(&mut file, &bytes).unwrap();
    }
    file.sync_all().unwrap();
}

/// Reads the file directly, without the kernel's cache.
fn read(d: &Daemon, name: &str) -> u64 {
    let mut file = fs::File::open(d.file(name)).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let (mut buf, mut sum) = (vec![0; MIB as usize], 0);
    loop {
        match file.read(&mut buf).unwrap() {
            0 => return sum,
            n => sum += n as u64,
        }
    }
}

/// A server that is moved into a control group smaller than its cache after the mount survives, and
/// uses less.
#[test]
fn a_server_in_a_smaller_group_lives_and_takes_less() {
    let d = Daemon::unmounted(Image::make(2 << 30, &Mkfs::new()).unwrap());
    d.mount("");
    let first = cache(&d, "bytes_at_most");
    assert!(first > 64 * MIB, "{first} bytes: too little to begin with");
    write(&d, "a", 500);
    write(&d, "b", 500);
    let full = cache(&d, "bytes");
    assert!(full > 64 * MIB, "{full} bytes");

    let group = Group::new(256 * MIB);
    group.take(d.pid());
    write(&d, "c", 300);
    for name in ["a", "b", "c"] {
        read(&d, name);
    }
    assert_eq!(cache(&d, "bytes_at_most"), 64 * MIB);
    let held = cache(&d, "bytes");
    assert!(held <= 64 * MIB + 16 * MIB, "{held} bytes are cached");

    // It uses more where it may.
    group.let_go(d.pid());
    wait_until("the cache may be as large as before", || {
        cache(&d, "bytes_at_most") == first
    });
    write(&d, "d", 300);
    assert!(cache(&d, "bytes") > 64 * MIB);
}

/// A size that the user set stays.
#[test]
fn a_cache_of_a_size_that_was_said_has_that() {
    let d = Daemon::unmounted(Image::make(512 << 20, &Mkfs::new()).unwrap());
    d.mount("cache=96M");
    let group = Group::new(512 * MIB);
    group.take(d.pid());
    write(&d, "a", 200);
    assert_eq!(cache(&d, "bytes_at_most"), 96 * MIB);
    drop(group);
}
