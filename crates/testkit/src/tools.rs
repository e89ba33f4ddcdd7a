//! Test programs from crates.io, which are installed on first use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};

use crate::cmd;

/// The directory of the programs: `$STETFS_TEST_TOOLS`, else `test-tools` in the build directory of
/// the running test.
fn home() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("STETFS_TEST_TOOLS") {
        return Ok(dir.into());
    }
    let exe = std::env::current_exe()?;
    let target = exe
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists());
    Ok(target
        .context("the test does not run from a cargo build directory; set STETFS_TEST_TOOLS")?
        .join("test-tools"))
}

/// The path of the program `name` of the crate `name` with this version; `cargo install`s it if it
/// is missing.
pub fn cargo_tool(name: &str, version: &str) -> Result<PathBuf> {
    let root = home()?.join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    std::fs::create_dir_all(&root)?;
    // Tests run in parallel: one installs, the others wait.
    let lock = File::create(root.join("lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    if !program.exists() {
        let mut install = Command::new("cargo");
        install
            // A debug build takes half the time, and most of the work is done in the kernel anyway.
            .args(["install", "--debug", "--config", "profile.dev.debug=false"])
            .args(["--quiet", "--locked", name, "--version", version, "--root"])
            .arg(&root);
        cmd::run(&mut install)?;
    }
    ensure!(program.exists(), "{} was not installed", program.display());
    Ok(program)
}

/// The path of an installed program, or an error that says which Debian package has it.
pub fn system_tool(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir: PathBuf| dir.join(name))
        .find(|program: &PathBuf| Path::is_file(program))
        .with_context(|| format!("{name} is not installed (Debian package {package})"))
}
