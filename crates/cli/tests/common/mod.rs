//! Helpers for the integration tests of this crate and of `crates/lab`. They need root, /dev/fuse,
//! loop devices and e2fsprogs, and fail without.
//!
//! Each test is a function over a [`Mounter`], instantiated for StetFS and (to prove the test
//! itself) for the kernel's ext4.

pub(crate) mod daemon;
pub(crate) mod manual;
pub(crate) mod prometheus;

use std::path::{Path, PathBuf};
use std::process::Command;

use stetfs_testkit::{CaptureOptions, Mounter, Scratch, Tree, cmd, mount, tree};

/// The `stetfs` program of this build. `$STETFS_TEST_OPTIONS` is given to `-o`, so that the whole
/// suite can run with any preset; `$STETFS_TEST_BINARY` names another program.
pub(crate) fn stetfs() -> Mounter {
    stetfs_with("")
}

/// The same with more `-o` options.
pub(crate) fn stetfs_with(options: &str) -> Mounter {
    let given = std::env::var("STETFS_TEST_OPTIONS").unwrap_or_default();
    let options = [given.as_str(), options];
    let options = options
        .iter()
        .filter(|o| !o.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(",");
    let binary = std::env::var_os("STETFS_TEST_BINARY").unwrap_or_else(|| crate::BINARY.into());
    Mounter::stetfs(binary, &options)
}

/// The kernel's ext4.
pub(crate) fn kernel() -> Mounter {
    Mounter::ext4("")
}

/// The kernel's ext4, read-only.
pub(crate) fn kernel_read_only() -> Mounter {
    Mounter::ext4("ro")
}

/// Fails with all differences.
#[track_caller]
pub(crate) fn assert_same(what: &str, a: &Tree, b: &Tree) {
    assert!(!a.entries.is_empty());
    assert_no_differences(what, &tree::diff(a, b));
}

/// Fails if there are differences.
#[track_caller]
pub(crate) fn assert_no_differences(what: &str, lines: &[String]) {
    assert!(
        lines.is_empty(),
        "{what}: {} differences\n{}",
        lines.len(),
        lines.join("\n")
    );
}

/// A snapshot for comparing two readings of one image.
///
/// The volume is synced first: in block-mapped files SEEK_DATA of Linux 6.18 misses data whose
/// (delayed) allocation is still outstanding.
pub(crate) fn capture(root: &Path) -> Tree {
    rustix::fs::syncfs(std::fs::File::open(root).unwrap()).unwrap();
    Tree::capture(root, &CaptureOptions::same_image()).unwrap()
}

/// A snapshot of the image as `mounter` sees it; leaves it unmounted.
pub(crate) fn capture_image(mounter: &Mounter, image: &Path) -> Tree {
    let mounted = mounter.mount(image).unwrap();
    let tree = capture(mounted.path());
    mounted.umount().unwrap();
    tree
}

/// A file system in memory of a chosen size; removed when dropped.
pub(crate) struct Host {
    pub(crate) dir: PathBuf,
    _scratch: Scratch,
}

impl Host {
    pub(crate) fn new(bytes: u64) -> Host {
        let scratch = Scratch::new("host").unwrap();
        let dir = scratch.path().join("host");
        std::fs::create_dir(&dir).unwrap();
        let host = Host {
            dir,
            _scratch: scratch,
        };
        host.mount(&format!("size={bytes}"));
        host
    }

    /// Changes its size to this many bytes.
    pub(crate) fn resize(&self, bytes: u64) {
        self.mount(&format!("remount,size={bytes}"));
    }

    fn mount(&self, how: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", how, "tmpfs"]);
        cmd::run(mount.arg(&self.dir)).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        mount::detach(&self.dir);
    }
}

/// Whether a loop device is attached to this image.
pub(crate) fn loops_of(image: &Path) -> bool {
    let loops = std::fs::read_dir("/sys/block").unwrap().flatten();
    loops
        .filter_map(|l| std::fs::read(l.path().join("loop/backing_file")).ok())
        .any(|path| path.trim_ascii_end() == image.as_os_str().as_encoded_bytes())
}

/// A number from the environment.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")),
        Err(_) => default,
    }
}

/// A seed: from the environment, else from the clock. Printed, so that a failure can be repeated.
pub(crate) fn seed(variable: &str) -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let seed = number(variable, now.as_millis() as u64 % 1_000_000);
    println!("{variable}={seed}");
    seed
}
