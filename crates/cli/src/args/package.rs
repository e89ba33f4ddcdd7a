//! The arguments of the commands for packagers: `man` and `completions`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory, such as /usr/local/share/man/man1. It is created if it does not exist.
    pub(crate) dir: PathBuf,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}
