//! The arguments of `stetfs mkfs`.

use std::path::PathBuf;

use clap::Args;
use stetfs::low::{FeatureEdits, FormatOptions, FormatTarget, Part, Profile, format_values, size};

use crate::failure::{Code, Failure, Result};
use crate::{ids, options, part};

/// Arguments of `mkfs`.
#[derive(Debug, Args)]
pub(crate) struct MkfsArgs {
    /// The image file, which is made if it does not exist and --size is given; a block device; or
    /// an export of an NBD server.
    pub(crate) volume: PathBuf,
    /// Size in bytes, or with K, M, G or T; all of the file or device if it is not given. A shorter
    /// file grows to it.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    new: NewVolume,
    /// Byte at which the volume begins, in an image with partitions.
    #[arg(long, value_name = "BYTES", value_parser = size::bytes)]
    offset: Option<u64>,
    /// Location of the volume, separated by commas: partition=N|NAME|UUID, or offset=BYTES and
    /// size=BYTES.
    #[arg(short, value_name = "OPTIONS", conflicts_with = "offset")]
    options: Vec<String>,
    /// Overwrite a file system, a partition table or anything else that is recognised. A volume in
    /// use is refused all the same.
    #[arg(long)]
    force: bool,
    /// Check everything and show the volume, but write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Keep old content in blocks that the new volume does not use, instead of freeing the blocks
    /// of an image and discarding those of a device.
    #[arg(long)]
    no_discard: bool,
    /// Zero all inode tables of a device now. Else the kernel does it after the first mount, and
    /// StetFS when it uses them. Those of an image are always zero.
    #[arg(long)]
    zero_tables: bool,
}

/// The properties of a new volume, whatever is put into it.
#[derive(Debug, Args)]
pub(crate) struct NewVolume {
    /// The defaults of everything else: mke2fs (those of mke2fs 1.47), small (many small files),
    /// android (partitions of Android) or rootfs (root file systems that older boot loaders and
    /// kernels read).
    #[arg(long, value_name = "PROFILE", default_value_t)]
    like: Profile,
    #[command(flatten)]
    numbers: Numbers,
    #[command(flatten)]
    identity: Identity,
}

/// The numbers of a new volume.
#[derive(Debug, Args)]
struct Numbers {
    /// Bytes of a block: 1K, 2K, 4K, 8K, 16K, 32K or 64K.
    #[arg(short, long, value_name = "SIZE", value_parser = size::bytes)]
    block_size: Option<u64>,
    /// Bytes of a cluster, with -O bigalloc.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    cluster_size: Option<u64>,
    /// Features to add, and with ^ to leave out, separated by commas, such as
    /// bigalloc,^resize_inode.
    #[arg(short = 'O', long, value_name = "FEATURES", allow_hyphen_values = true)]
    features: Vec<String>,
    /// Percentage of the blocks that is reserved for root, such as 5 or 0.5.
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = format_values::percent)]
    reserved: Option<u32>,
    /// Bytes of the volume for each inode.
    #[arg(short = 'i', long, value_name = "SIZE", value_parser = size::bytes)]
    inode_ratio: Option<u64>,
    /// Number of inodes.
    #[arg(short = 'N', long, value_name = "N", conflicts_with = "inode_ratio")]
    inodes: Option<u32>,
    /// Bytes of an inode: 128, 256 or a larger power of two.
    #[arg(short = 'I', long, value_name = "BYTES")]
    inode_size: Option<u16>,
    /// Size of the journal; -O ^has_journal for none.
    #[arg(short = 'J', long, value_name = "SIZE", value_parser = size::bytes)]
    journal_size: Option<u64>,
}

/// The name of a new volume, the owner of its root, and what makes it the same again.
#[derive(Debug, Args)]
struct Identity {
    /// Label, 16 bytes at most.
    #[arg(short = 'L', long, value_name = "LABEL", default_value = "")]
    label: String,
    /// UUID; random if it is not given.
    #[arg(short = 'U', long, value_name = "UUID", value_parser = format_values::uuid)]
    uuid: Option<[u8; 16]>,
    /// Owner and group of the root directory, as numbers or names.
    #[arg(long, value_name = "UID:GID", default_value = "0:0", value_parser = owner)]
    root_owner: (u32, u32),
    /// Permissions of the root directory, octal.
    #[arg(long, value_name = "MODE", default_value = "755", value_parser = format_values::mode)]
    root_mode: u16,
    /// Time of everything in the volume, in seconds since 1970; SOURCE_DATE_EPOCH of the
    /// environment if it is not given, else now.
    #[arg(long, value_name = "SECONDS", value_parser = stetfs::low::options::epoch)]
    epoch: Option<u64>,
    /// Number from which the UUID and the seed of directory hashes follow, instead of being random:
    /// with it and --epoch the volume is the same again.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl MkfsArgs {
    /// The place of the new volume, and its options.
    ///
    /// # Errors
    /// Options that are not understood.
    pub(crate) fn read(&self) -> Result<(FormatTarget, FormatOptions)> {
        let numbers = FormatOptions {
            zero_tables: self.zero_tables,
            ..self.new.read()?
        };
        let target = FormatTarget {
            size: self.size,
            part: self.part()?,
            force: self.force,
            discard: !self.no_discard,
            dry_run: self.dry_run,
        };
        Ok((target, numbers))
    }

    fn part(&self) -> Result<Part> {
        match self.offset {
            Some(offset) => Ok(Part::Range {
                offset,
                size: self.size,
            }),
            None => Ok(part::source(self.volume.clone(), &self.options)?.part),
        }
    }
}

impl NewVolume {
    /// The options, with the epoch of the environment where none is given.
    ///
    /// # Errors
    /// Options that are not understood.
    pub(crate) fn read(&self) -> Result<FormatOptions> {
        let n = &self.numbers;
        let narrow = |size: Option<u64>| size.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let mut features = FeatureEdits::default();
        for text in &n.features {
            let edited = features.edit(text);
            edited.map_err(|why| Failure::new(Code::Usage, format!("-O {text}: {why}")))?;
        }
        let epoch = match self.identity.epoch {
            Some(epoch) => Some(epoch),
            None => options::epoch_of_environment()?,
        };
        Ok(FormatOptions {
            profile: self.like,
            block_size: narrow(n.block_size),
            cluster_size: narrow(n.cluster_size),
            features,
            label: self.identity.label.clone().into_bytes(),
            uuid: self.identity.uuid,
            reserved: n.reserved,
            inode_ratio: n.inode_ratio,
            inodes: n.inodes,
            inode_size: n.inode_size,
            journal_size: n.journal_size,
            root_owner: self.identity.root_owner,
            root_mode: self.identity.root_mode,
            epoch,
            seed: self.identity.seed,
            zero_tables: false,
        })
    }
}

/// Reads an owner and a group: numbers, or names of this system.
pub(crate) fn owner(text: &str) -> std::result::Result<(u32, u32), String> {
    let (user, group) = text.split_once(':').ok_or("must be UID:GID")?;
    let id = |kind: &str, text: &str| {
        let id = text.parse().ok().or_else(|| ids::number(kind, text));
        id.ok_or_else(|| format!("there is no {kind} {text:?} here: give the number"))
    };
    Ok((id("user", user)?, id("group", group)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_two_ids() {
        assert_eq!(owner("1:2"), Ok((1, 2)));
        assert!(owner("1").is_err() && owner("nobody-of-that-name:1").is_err());
    }
}
