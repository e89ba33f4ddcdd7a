//! The `stetfs` command, and the mount helper `mount.fuse.stetfs`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    stetfs_cli::main::<stetfs_cli::Laboratory>()
}
