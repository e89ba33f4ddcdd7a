//! `stetfs-lab`: the `stetfs` command with its laboratory, which tests, measures and simulates.
//!
//! It has all other commands, too: it mounts with the code that it has as a library
//! (decisions/0041).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a reader may go away: outln!")
)]

mod args;
mod bench;
mod certify;
mod crash;
mod device;
mod flash;
mod record;

use std::process::ExitCode;

use stetfs_cli::{Code, More, Result};

use crate::args::Laboratory;

impl More for Laboratory {
    const ELSEWHERE: bool = false;

    fn run(&self, json: bool) -> Result<ExitCode> {
        let done = match self {
            Laboratory::Certify(args) => return Ok(certify::run(args, json)?.into()),
            Laboratory::Bench(command) => bench::run(command, json),
            Laboratory::Crash(command) => crash::run(command, json),
            Laboratory::Device(command) => device::run(command, json),
            Laboratory::Flash(command) => return flash::run(command, json),
        };
        done.map(|()| Code::Done.into())
    }
}

fn main() -> ExitCode {
    stetfs_cli::main::<Laboratory>()
}
