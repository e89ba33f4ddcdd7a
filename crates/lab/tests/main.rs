//! Tests of the laboratory's commands, and of mounts over its devices, in one program with a module
//! for each subject, like the tests of `crates/cli`. README.md describes them.

#![allow(clippy::unwrap_used)]

mod bench;
mod certify;
#[allow(dead_code, reason = "the tests of crates/cli use the rest")]
#[path = "../../cli/tests/common/mod.rs"]
mod common;
mod crash;
mod device;
mod failing;
mod flash;
mod flash_lab;
mod home_share;
mod log_file;
mod packaging;
mod record;
mod served;
mod sqlite_cuts;
mod told;

/// The tested program, which also mounts.
const BINARY: &str = env!("CARGO_BIN_EXE_stetfs-lab");
