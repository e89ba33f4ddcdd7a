//! The `stetfs` command, and the mount helper `mount.fuse.stetfs`.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a reader may go away: outln!")
)]

#[macro_use]
mod print;

mod args;
mod cmd;
mod control;
mod daemon;
mod date;
mod failure;
mod files;
mod held;
mod ids;
mod interrupt;
mod job;
mod limits;
mod live;
mod log;
mod memory;
mod net;
mod notify;
mod options;
mod part;
mod sandbox;
mod scout;
mod serve;
mod usage;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command, Device, Dump, HelperArgs};
use crate::failure::{Code, Result};

/// Many small allocations on many threads: glibc's arenas grow and shrink by system calls here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Names under which mount(8) runs the program as a helper.
const HELPERS: [&str; 3] = ["mount.fuse.stetfs", "mount.fuseblk.stetfs", "mount.stetfs"];

fn main() -> ExitCode {
    stetfs_fuse::hear_signals();
    limits::outlive();
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default();
    if name == stetfs_fuse::VISITOR {
        return stetfs_fuse::visitor(std::env::args_os().skip(1));
    }
    if name == stetfs_fuse::HELPER {
        return stetfs_fuse::helper(control::remove);
    }
    if HELPERS.iter().any(|helper| name == *helper) || called_by_mount_fuse() {
        return match HelperArgs::try_parse() {
            Ok(args) => finish(cmd::mount::helper(&args).map(|()| Code::Done.into()), false),
            Err(e) => usage::report(&e, false),
        };
    }
    match Cli::try_parse() {
        Ok(cli) => finish(run(&cli), cli.json),
        Err(e) => usage::report(&e, usage::asks_for_json(std::env::args_os().skip(1))),
    }
}

/// Without a helper of ours mount(8) runs mount.fuse, and that runs `stetfs SOURCE DIR -o OPTIONS`.
fn called_by_mount_fuse() -> bool {
    let args: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    matches!(&args[..], [source, _, option] if option == "-o"
        && !source.as_encoded_bytes().starts_with(b"-")
        && Cli::command().find_subcommand(source).is_none())
}

fn run(cli: &Cli) -> Result<ExitCode> {
    let done = match &cli.command {
        Command::Mount(args) => return Ok(cmd::mount::run(args, cli.json)?.into()),
        Command::Umount(args) => cmd::umount::run(args, cli.json),
        Command::Stat(args) => return Ok(cmd::stat::run(args, cli.json)?.into()),
        Command::Freeze(args) => cmd::freeze::freeze(args, cli.json),
        Command::Sync(args) => cmd::sync::run(args, cli.json),
        Command::Thaw(args) => cmd::freeze::thaw(args, cli.json),
        Command::Atomic(command) => cmd::atomic::run(command, cli.json),
        Command::Bench(command) => cmd::bench::run(command, cli.json),
        Command::Crash(command) => cmd::crash::run(command, cli.json),
        Command::Flash(command) => return cmd::flash::run(command, cli.json),
        Command::Device(Device::Serve(args)) => cmd::device::serve(args, cli.json),
        Command::Device(Device::Fault(args)) => cmd::fault::fault(args, cli.json),
        Command::Recover(args) => return Ok(cmd::volume::recover(args, cli.json)?.into()),
        Command::Files(command) => return Ok(files::run(command, cli.json)?.into()),
        Command::Quota(args) => cmd::quota::run(args, cli.json),
        Command::Info(args) => cmd::volume::info(args, cli.json),
        Command::Certify(args) => return Ok(cmd::certify::run(args, cli.json)?.into()),
        Command::Advise(args) => cmd::advise::run(args, cli.json),
        Command::Image(command) => cmd::image::run(command, cli.json),
        Command::Man(args) => cmd::package::man(args, cli.json),
        Command::Completions(args) => cmd::package::completions(args, cli.json),
        Command::Dump(Dump::Journal(args)) => cmd::journal::dump(args, cli.json),
    };
    done.map(|()| Code::Done.into())
}

fn finish(result: Result<ExitCode>, json: bool) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}
