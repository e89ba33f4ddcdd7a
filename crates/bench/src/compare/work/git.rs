//! Cloning a git repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::measured::{Measured, Meter, Outcome};
use super::shared::Shared;
use crate::compare::Better;
use crate::compare::Target;
use crate::compare::program::checked;

/// Number of files per directory of the repository.
const PER_DIRECTORY: u32 = 40;

fn git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    // The user's git configuration must not affect the measurement.
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(dir);
    command.args([
        "-c",
        "user.name=bench",
        "-c",
        "user.email=bench@localhost",
        "-c",
        "init.defaultBranch=main",
    ]);
    command
}

/// Makes a repository of `files` text files of 0.5 to 16 KiB in one commit, packed.
pub(super) fn make_repository(dir: &Path, files: u32) -> Result<PathBuf> {
    let path = dir.join("repository");
    fs::create_dir(&path)?;
    checked(git(&path).args(["init", "-q"]))?;
    for i in 0..files {
        let sub = path.join(format!("dir-{}", i / PER_DIRECTORY));
        if i % PER_DIRECTORY == 0 {
            fs::create_dir(&sub)?;
        }
        let lines = 10u32 << (i % 6);
        let text: String = (0..lines)
            .map(|l| format!("line {l} of file {i}: {:016x}{:016x}\n", i ^ l, l * i))
            .collect();
        fs::write(sub.join(format!("file-{i}.txt")), text)?;
    }
    checked(git(&path).args(["add", "-A"]))?;
    checked(git(&path).args(["commit", "-q", "-m", "all"]))?;
    checked(git(&path).args(["gc", "-q"]))?;
    Ok(path)
}

pub(super) fn clone(target: &Target, dir: &Path, shared: &Shared) -> Result<Outcome> {
    let repository = shared.repository()?;
    let meter = Meter::start(target)?;
    checked(
        git(dir)
            .args(["clone", "-q", "--no-hardlinks"])
            .arg(repository)
            .arg("clone"),
    )?;
    let value = meter.seconds();
    Ok(vec![Measured {
        title: "git clone".to_owned(),
        unit: "s".into(),
        better: Better::Lower,
        value,
        below: meter.below_settled(1.0)?,
    }])
}
