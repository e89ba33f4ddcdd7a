//! The `stetfs` command: the part that its two programs share.
//!
//! The server's program, `stetfs`, is exactly this. The laboratory's, `stetfs-lab`, adds commands
//! that measure and test ([`More`]), and mounts with the code that it has as a library
//! (decisions/0041).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a reader may go away: outln!")
)]

#[macro_use]
mod print;

mod advice;
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
mod laboratory;
mod limits;
mod live;
mod log;
mod memory;
mod more;
mod net;
mod notify;
mod options;
mod part;
mod record;
mod sandbox;
mod scout;
mod serve;
mod usage;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

pub use crate::args::VERSION;
use crate::args::{Cli, Command, Dump, HelperArgs};
pub use crate::cmd::{connect, find_mount};
pub use crate::control::client::Client;
pub use crate::date::utc;
pub use crate::failure::{Code, Failure, Result, code_of};
pub use crate::interrupt::Interrupt;
pub use crate::laboratory::{Laboratory, server_program};
pub use crate::more::More;
pub use crate::options::{MOUNT_OPTIONS, Options, of_volume as options_of_volume};
pub use crate::print::{out, value as print_value};

/// mimalloc, for many small allocations on many threads: glibc's arenas would grow and shrink by
/// system calls.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Names under which mount(8) runs the program as a helper.
const HELPERS: [&str; 3] = ["mount.fuse.stetfs", "mount.fuseblk.stetfs", "mount.stetfs"];

/// The `main` of a program: the commands that both have, and `M`.
pub fn main<M: More>() -> ExitCode {
    stetfs_fuse::hear_signals();
    limits::outlive();
    let mut args = std::env::args_os();
    let called = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let name = Path::new(&called).file_name().unwrap_or_default();
    if name == stetfs_fuse::VISITOR {
        return stetfs_fuse::visitor(args.into_iter());
    }
    if name == stetfs_fuse::HELPER {
        return stetfs_fuse::helper(control::remove);
    }
    if HELPERS.iter().any(|helper| name == *helper) || called_by_mount_fuse::<M>(&args) {
        return match HelperArgs::try_parse() {
            Ok(args) => finish(cmd::mount::helper(&args).map(|()| Code::Done.into()), false),
            Err(e) => usage::report(&e, false),
        };
    }
    if M::ELSEWHERE && laboratory::is_asked(&args) {
        return laboratory::hand_over(&args).report(usage::asks_for_json(args));
    }
    match Cli::<M>::try_parse() {
        Ok(cli) => finish(run(&cli), cli.json),
        Err(e) => usage::report(&e, usage::asks_for_json(args)),
    }
}

/// Whether mount.fuse runs the program. Without a StetFS helper mount(8) runs mount.fuse, and that
/// runs `stetfs SOURCE DIR -o OPTIONS`.
fn called_by_mount_fuse<M: More>(args: &[OsString]) -> bool {
    matches!(args, [source, _, option, ..] if option == "-o"
        && !source.as_encoded_bytes().starts_with(b"-")
        && Cli::<M>::command().find_subcommand(source).is_none())
}

fn run<M: More>(cli: &Cli<M>) -> Result<ExitCode> {
    let done = match &cli.command {
        Command::Mount(args) => return Ok(cmd::mount::run(args, cli.json)?.into()),
        Command::Umount(args) => cmd::umount::run(args, cli.json),
        Command::Stat(args) => return Ok(cmd::stat::run(args, cli.json)?.into()),
        Command::Freeze(args) => cmd::freeze::freeze(args, cli.json),
        Command::Sync(args) => cmd::sync::run(args, cli.json),
        Command::Thaw(args) => cmd::freeze::thaw(args, cli.json),
        Command::Atomic(command) => cmd::atomic::run(command, cli.json),
        Command::Recover(args) => return Ok(cmd::volume::recover(args, cli.json)?.into()),
        Command::Files(command) => return Ok(files::run(command, cli.json)?.into()),
        Command::Quota(args) => cmd::quota::run(args, cli.json),
        Command::Info(args) => cmd::volume::info(args, cli.json),
        Command::Advise(args) => cmd::advise::run(args, cli.json),
        Command::Mkfs(args) => cmd::mkfs::run(args, cli.json),
        Command::Image(command) => cmd::image::run(command, cli.json),
        Command::Dump(Dump::Journal(args)) => cmd::journal::dump(args, cli.json),
        Command::More(command) => return command.run(cli.json),
        Command::Man(args) => cmd::package::man::<M>(args, cli.json),
        Command::Completions(args) => cmd::package::completions::<M>(args, cli.json),
    };
    done.map(|()| Code::Done.into())
}

fn finish(result: Result<ExitCode>, json: bool) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}
