//! Determines the commit for `--version`: from git, or from STETFS_COMMIT (for builds from an
//! archive).

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    (out.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-env-changed=STETFS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // Every commit and checkout writes there.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = std::env::var("STETFS_COMMIT")
        .ok()
        .or_else(|| git(&["log", "-1", "--format=%h of %cs", "--abbrev=12"]));
    let commit = commit.map_or(String::new(), |c| format!(" ({c})"));
    println!("cargo::rustc-env=STETFS_COMMIT={commit}");
}
