//! Running programs.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a command; an exit status other than 0 is an error with its output.
pub(super) fn checked(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a command and returns its output; errors as [`checked`].
pub(super) fn output(command: &mut Command) -> Result<String> {
    let out = command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !out.status.success() {
        // sysbench prints errors on standard output.
        let said = [&out.stderr, &out.stdout]
            .into_iter()
            .find(|s| !s.is_empty());
        bail!(
            "{} failed: {}",
            command.get_program().display(),
            said.map_or("".into(), |said| String::from_utf8_lossy(said))
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
