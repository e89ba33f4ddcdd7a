//! Tests of `stetfs image build`: what comes of directories, archives and container images, beside
//! what the usual tools make of them in a directory.

mod layers;
mod recipes;
mod refused;
mod whole;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::daemon::json;
use crate::files::text;
use stetfs_testkit::{CaptureOptions, Mounter, Scratch, Tree, cmd};

/// A directory for sources and images. It is on the file system of temporary files, which has
/// extended attributes.
struct Bench {
    scratch: Scratch,
}

impl Bench {
    fn new(label: &str) -> Bench {
        let scratch = Scratch::new(label).unwrap();
        Bench { scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Runs a script of the shell in the directory.
    #[track_caller]
    fn shell(&self, script: &str) {
        let mut shell = Command::new("bash");
        shell.args(["-euc", &format!("umask 022; {script}")]);
        cmd::run(shell.current_dir(self.scratch.path())).unwrap();
    }

    /// Builds `disk.img`; returns the answer.
    #[track_caller]
    fn build(&self, args: &[&str]) -> Value {
        let image = self.path("disk.img");
        let names = args.iter().map(|arg| self.named(arg));
        let names: Vec<String> = names.collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        json(&[&["image", "build", text(&image), "--force"], &names[..]].concat())
    }

    /// An argument; `@NAME` is a path here.
    fn named(&self, arg: &str) -> String {
        match arg.strip_prefix('@') {
            Some(name) => text(&self.path(name)).to_owned(),
            None => arg.to_owned(),
        }
    }

    /// The content of `disk.img`, which is sound, as the kernel sees it.
    #[track_caller]
    fn seen(&self) -> Tree {
        let image = self.path("disk.img");
        stetfs_testkit::image::e2fsck(&image, &["-fn"], 0).unwrap();
        let mounted = Mounter::ext4("ro").mount(&image).unwrap();
        let tree = capture(mounted.path());
        mounted.umount().unwrap();
        tree
    }

    /// All names here.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.scratch.path()).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// The content of a directory, with its own attributes.
fn capture(root: &Path) -> Tree {
    let options = CaptureOptions {
        sparse: true,
        ..CaptureOptions::default()
    };
    let mut tree = Tree::capture(root, &options).unwrap();
    // The directory lost+found counts as a link of the root.
    if let Some(root) = tree.entries.get_mut("") {
        root.nlink = 2;
    }
    tree
}
