//! Images in other formats.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with an image.
#[derive(Debug, Subcommand)]
pub(crate) enum Image {
    /// Make an Android sparse image, for fastboot and simg2img.
    Sparse(SparseArgs),
    /// Make a plain image of an Android sparse one, which then can be written.
    Unsparse(UnsparseArgs),
}

/// Arguments of `image sparse`.
#[derive(Debug, Args)]
pub(crate) struct SparseArgs {
    /// A plain image.
    pub(crate) image: PathBuf,
    /// The sparse image, which must not be there yet.
    pub(crate) sparse: PathBuf,
    /// Bytes of its blocks.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = stetfs::low::size::bytes)]
    pub(crate) block_size: u64,
    /// Leave out blocks of zeroes and holes (don't care) instead of filling them with zeroes: for
    /// a target that is known to be empty.
    #[arg(long)]
    pub(crate) skip_zeroes: bool,
}

/// Arguments of `image unsparse`.
#[derive(Debug, Args)]
pub(crate) struct UnsparseArgs {
    /// An Android sparse image.
    pub(crate) sparse: PathBuf,
    /// The plain image, which must not be there yet.
    pub(crate) image: PathBuf,
    /// Bytes at most that are written without being in the sparse image: blocks that repeat four
    /// bytes, but for zeroes, which become holes.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = stetfs::low::size::bytes)]
    pub(crate) max_fill: u64,
}
