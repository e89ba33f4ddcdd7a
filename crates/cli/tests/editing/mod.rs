//! Tests of the commands that change files of a volume without a mount, beside the usual tools on
//! the same volume, mounted by the kernel: exit codes, output and trees.

mod archives;
mod attributes;
mod copies;
mod edit;
mod names;

use std::path::Path;
use std::process::{Command, Output};

use crate::common::daemon::BINARY;
use crate::files::{image, kernel};
use stetfs_testkit::{CaptureOptions, Image, Mounted, Tree, cmd, tree};

/// Two copies of one image: the usual tools change one, mounted by the kernel, and StetFS the
/// other.
pub(crate) struct Pair {
    theirs: Image,
    mounted: Option<Mounted>,
    ours: Image,
    /// Times are compared.
    times: bool,
}

impl Pair {
    /// Makes the files by a script of the shell, whose directory is the root of the volume.
    pub(crate) fn new(script: &str) -> Pair {
        let theirs = image();
        let mounted = kernel(&theirs);
        let mut shell = Command::new("bash");
        shell.args(["-euc", &format!("umask 022; {script}")]);
        cmd::run(shell.current_dir(mounted.path())).unwrap();
        mounted.umount().unwrap();
        let ours = theirs.copy().unwrap();
        Pair {
            mounted: Some(kernel(&theirs)),
            theirs,
            ours,
            times: false,
        }
    }

    fn root(&self) -> &Path {
        self.mounted.as_ref().unwrap().path()
    }

    /// Runs a line in both ways; `@/` begins a path in the volume. Returns the outputs of theirs
    /// and ours.
    #[track_caller]
    pub(crate) fn both(&self, line: &str) -> (Output, Output) {
        self.two(line, &format!("stetfs {line}"))
    }

    /// Runs a line of theirs, and one with the same effect of ours, where `stetfs ` is the tested
    /// program.
    #[track_caller]
    pub(crate) fn two(&self, theirs: &str, ours: &str) -> (Output, Output) {
        let line = theirs;
        let shell = |line: &str, root: &str| {
            let line = line.replace("@/", &format!("{root}/"));
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("umask 022; {line}")]);
            shell
                .env("TZ", "UTC")
                .env("LC_ALL", "C.UTF-8")
                .output()
                .unwrap()
        };
        let theirs = shell(theirs, self.root().to_str().unwrap());
        let ours = ours.replace("stetfs ", &format!("{BINARY} "));
        let ours = shell(&ours, &format!("{}:", self.ours.path().display()));
        assert_eq!(
            theirs.status.success(),
            ours.status.success(),
            "{line}\ntheirs: {}\nours: {}",
            cmd::said(&theirs),
            cmd::said(&ours)
        );
        if !theirs.status.success() {
            let said = String::from_utf8_lossy(&ours.stderr);
            let is_told = said.starts_with("stetfs: ") || said.starts_with("error: ");
            assert!(is_told, "{line}: {said}");
        }
        (theirs, ours)
    }

    /// Runs each line in both ways, and compares the trees after each.
    #[track_caller]
    pub(crate) fn all(&self, lines: &[&str]) {
        for line in lines {
            self.both(line);
            self.compare(line);
        }
    }

    /// Runs each line in both ways, and compares the output.
    #[track_caller]
    pub(crate) fn print(&self, lines: &[&str]) {
        for line in lines {
            let (theirs, ours) = self.both(line);
            let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
            let root = self.root().to_str().unwrap();
            let theirs = text(&theirs).replace(root, "");
            assert!(!theirs.is_empty(), "{line}");
            assert_eq!(text(&ours), theirs, "{line}");
        }
    }

    #[track_caller]
    pub(crate) fn compare(&self, line: &str) {
        self.ours.e2fsck_fn().unwrap();
        let options = CaptureOptions {
            mtime: self.times,
            atime: self.times,
            ..CaptureOptions::default()
        };
        let capture = |root: &Path| Tree::capture(root, &options).unwrap();
        let mounted = kernel(&self.ours);
        let ours = capture(mounted.path());
        mounted.umount().unwrap();
        let differences = tree::diff(&capture(self.root()), &ours);
        assert!(differences.is_empty(), "{line}: {differences:#?}");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.umount().unwrap();
            self.theirs.e2fsck_fn().unwrap();
        }
    }
}
