//! The arguments of `image build`.

use std::path::PathBuf;

use clap::Args;
use stetfs::low::{format_values, size};

use crate::args::NewVolume;

const BUILD: &str = "\
The sources are layers: each adds to those before it, and replaces files that they have brought. A
directory gives what is in it, and its own attributes to the root. A tar archive, which may be packed by
gzip, bzip2, xz or zstd, gives its files; names in it that begin with .wh. remove files of lower layers, as
in container images. A directory with oci-layout and index.json is an OCI image layout: its layers come in
order, and their digests are checked.

The image has blocks of 4 KiB and none reserved for root, unless -b, -m or --like say otherwise. It appears
under its name when it is complete and durable; a build that fails leaves nothing. With --epoch (or
SOURCE_DATE_EPOCH) and --seed the same sources give the same image, byte for byte.";

/// Arguments of `image build`.
#[derive(Debug, Args)]
#[command(after_help = BUILD)]
pub(crate) struct BuildArgs {
    /// The new image; a block device is written in place.
    pub(crate) image: PathBuf,
    /// The sources: directories, tar archives and OCI image layouts, from the lowest layer up.
    #[arg(long, required = true, num_args = 1.., value_name = "DIR|TAR|OCI-LAYOUT")]
    pub(crate) from: Vec<PathBuf>,
    /// Size in bytes, or with K, M, G or T; auto is the smallest size that holds the content and
    /// has --free beside. A device is used whole.
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = image_size)]
    pub(crate) size: ImageSize,
    /// Room that --size auto leaves free: a percentage of the whole, or a size.
    #[arg(long, value_name = "PERCENT%|SIZE", default_value = "10%", value_parser = free)]
    pub(crate) free: Free,
    /// Owner and group of everything, as numbers or names of this system; else they are those of
    /// the sources.
    #[arg(long, value_name = "UID:GID", value_parser = crate::args::owner)]
    pub(crate) owner: Option<(u32, u32)>,
    /// Platform of the image to take from an OCI layout, such as linux/arm64; else that of this
    /// machine.
    #[arg(long, value_name = "OS/ARCH")]
    pub(crate) platform: Option<String>,
    /// Directories are upper directories of overlayfs: a character device 0/0 removes a name, and a
    /// directory with trusted.overlay.opaque=y hides what lower layers have in it.
    #[arg(long)]
    pub(crate) overlay: bool,
    /// Replace an image that exists, or overwrite what a device holds. One in use is refused all
    /// the same.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) new: NewVolume,
}

/// The size of a new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageSize {
    /// As small as its content allows.
    Auto,
    /// Bytes.
    Bytes(u64),
}

/// Room that stays free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// A part of what the volume has for files, in hundredths of a percent.
    Percent(u32),
    /// Bytes.
    Bytes(u64),
}

fn image_size(text: &str) -> Result<ImageSize, String> {
    match text {
        "auto" => Ok(ImageSize::Auto),
        text => size::bytes(text).map(ImageSize::Bytes),
    }
}

fn free(text: &str) -> Result<Free, String> {
    match text.strip_suffix('%') {
        Some(percent) => format_values::percent(percent).map(Free::Percent),
        None => size::bytes(text).map(Free::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_free_room_are_read() {
        assert_eq!(image_size("auto"), Ok(ImageSize::Auto));
        assert_eq!(image_size("2M"), Ok(ImageSize::Bytes(2 << 20)));
        assert!(image_size("Auto").is_err() && image_size("").is_err());
        assert_eq!(free("12.5%"), Ok(Free::Percent(1250)));
        assert_eq!(free("1G"), Ok(Free::Bytes(1 << 30)));
        assert!(free("60%").is_err() && free("%").is_err() && free("x").is_err());
    }
}
