//! For those who package StetFS.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where, such as /usr/local/share/man/man1. It is made if it is not there.
    pub(crate) dir: PathBuf,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which.
    pub(crate) shell: clap_complete::Shell,
}
