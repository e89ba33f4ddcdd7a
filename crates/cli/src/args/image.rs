//! The arguments of `stetfs image`: new images, and images in other formats.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::files::args::BuildArgs;

/// Make images, and convert them between formats.
#[derive(Debug, Subcommand)]
pub(crate) enum Image {
    /// Make an image with the content of directories, tar archives and container images.
    Build(Box<BuildArgs>),
    /// Convert a plain image to an Android sparse image, for fastboot and simg2img.
    Sparse(SparseArgs),
    /// Convert an Android sparse image to a plain image that can be written.
    Unsparse(UnsparseArgs),
}

/// Arguments of `image sparse`.
#[derive(Debug, Args)]
pub(crate) struct SparseArgs {
    /// The plain image.
    pub(crate) image: PathBuf,
    /// The sparse image; it must not exist yet.
    pub(crate) sparse: PathBuf,
    /// Block size of the sparse image, bytes.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = stetfs::low::size::bytes)]
    pub(crate) block_size: u64,
    /// Leave out blocks of zeroes and holes (don't care) instead of filling them with zeroes: for a
    /// target that is known to be empty.
    #[arg(long)]
    pub(crate) skip_zeroes: bool,
}

/// Arguments of `image unsparse`.
#[derive(Debug, Args)]
pub(crate) struct UnsparseArgs {
    /// The Android sparse image.
    pub(crate) sparse: PathBuf,
    /// The plain image; it must not exist yet.
    pub(crate) image: PathBuf,
    /// Largest number of bytes to write for fill chunks (blocks that repeat four bytes). Zeroes do
    /// not count: they become holes.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = stetfs::low::size::bytes)]
    pub(crate) max_fill: u64,
}
