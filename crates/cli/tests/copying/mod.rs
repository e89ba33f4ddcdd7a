//! Tests of copies from untrusted sources, and of copies while other users change the trees:
//! `stetfs cp` and `stetfs tar` beside cp(1), with the attacks that SECURITY.md lists.

mod archive;
mod deep;
mod host;
mod named;
mod names;
mod round;
mod swapped;
mod troubles;
mod twice;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::common::daemon::BINARY;
use crate::files::{at, image, kernel, text};

/// An ordinary user.
const USER: u32 = 1002;

/// Runs a program with this umask, as this user.
fn run_as(uid: u32, umask: u32, program: &str, args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    let script = format!("umask {umask:04o}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, program]).args(args);
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    command.output().unwrap()
}

fn stetfs_as(uid: u32, umask: u32, args: &[&str]) -> Output {
    run_as(uid, umask, BINARY, args)
}
