//! The laboratory's commands in the server's program: they run `stetfs-lab` in its place, or say
//! how to install it (decisions/0041).

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Subcommand;

use crate::args::VERSION;
use crate::failure::{Code, Failure, Result};
use crate::more::More;

/// The laboratory's program.
const PROGRAM: &str = "stetfs-lab";

/// The names of the commands; their arguments are known to that program only.
#[derive(Debug, Subcommand)]
pub enum Laboratory {
    /// Check whether a volume, or the mount at a directory, keeps its promises here, and write a
    /// page about it: the storage below it, the cost of syncs, the effects of a device error and of
    /// power cuts. Changes nothing of a volume; on a mount, makes files and removes them.
    Certify,
    /// Run benchmarks.
    Bench,
    /// Explore the states that power cuts can leave behind, and check them.
    Crash,
    /// Provide simulated devices.
    Device,
    /// Run traces through page caches and simulated flash.
    Flash,
}

impl More for Laboratory {
    const ELSEWHERE: bool = true;

    fn run(&self, _json: bool) -> Result<ExitCode> {
        let args: Vec<OsString> = env::args_os().skip(1).collect();
        Err(hand_over(&args))
    }
}

/// Whether the arguments name one of these commands, or ask for help on one.
pub(crate) fn is_asked(args: &[OsString]) -> bool {
    let mut words = args.iter().filter(|word| *word != "--json");
    let named = words.find(|word| *word != "help");
    named
        .and_then(|word| word.to_str())
        .is_some_and(Laboratory::has_subcommand)
}

/// Replaces this process by the program with these arguments. Returns only on failure, with the
/// reason.
pub(crate) fn hand_over(args: &[OsString]) -> Failure {
    let own = env::current_exe().ok();
    let path = env::var_os("PATH").unwrap_or_default();
    let Some(program) = find(PROGRAM, own.as_deref(), &path) else {
        let message = "this is a command of the laboratory, which is not installed: there is no \
                       stetfs-lab beside this program or on PATH";
        return Failure::new(Code::System, message).hint(
            "install the package stetfs-lab; or build it with cargo build --release -p stetfs-lab, \
             and put target/release/stetfs-lab beside this program",
        );
    };
    let e = Command::new(&program).arg0("stetfs").args(args).exec();
    let message = format!("cannot run {}: {e}", program.display());
    Failure::new(Code::System, message)
}

/// The server's program of this very build, for the laboratory's measurements: beside this program,
/// or on PATH. None if there is none, or only one of another version.
pub fn server_program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let program = find("stetfs", env::current_exe().ok().as_deref(), &path)?;
    let told = Command::new(&program).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&told.stdout);
    (version.trim() == format!("stetfs {VERSION}")).then_some(program)
}

/// The path of a program: beside this one, else in `path`. Relative directories of `path` are
/// skipped.
fn find(name: &str, own: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    let beside = own.map(|own| own.with_file_name(name));
    let elsewhere = env::split_paths(path).map(|dir| dir.join(name));
    let mut places = beside.into_iter().chain(elsewhere);
    places.find(|place| place.is_absolute() && is_program(place))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
