//! The arguments of the commands on volumes that need not be mounted.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stetfs::low::{RecoverOptions, Source};

use crate::{ids, part};

/// The help text of the argument VOLUME of most commands.
pub(super) const VOLUME: &str = "An ext4 image file, a block device, or an export of an NBD server (nbd://HOST[:PORT]/EXPORT, \
     nbd+unix:///EXPORT?socket=PATH)";

/// Show structures of a volume.
#[derive(Debug, Subcommand)]
pub(crate) enum Dump {
    /// Print the records of the journal.
    Journal(DumpJournalArgs),
}

/// Arguments of `dump journal`.
#[derive(Debug, Args)]
pub(crate) struct DumpJournalArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// Draw the transactions into this SVG file instead of printing the records.
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
}

/// Arguments of `quota`.
#[derive(Debug, Args)]
pub(crate) struct QuotaArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// The user, group or project to set limits for, such as user:1000, user:alice, group:100 or
    /// project:5. A limit that is not given is removed.
    #[arg(long, value_name = "KIND:ID", value_parser = quota_id)]
    pub(crate) set: Option<(stetfs::low::QuotaKind, u32)>,
    /// Hard limit of space.
    #[arg(long, value_name = "SIZE", value_parser = stetfs::low::size::bytes, requires = "set")]
    pub(crate) space: Option<u64>,
    /// Soft limit of space: it may be exceeded for the grace time.
    #[arg(long, value_name = "SIZE", value_parser = stetfs::low::size::bytes, requires = "set")]
    pub(crate) space_soft: Option<u64>,
    /// Hard limit of inodes.
    #[arg(long, value_name = "N", requires = "set")]
    pub(crate) inodes: Option<u64>,
    /// Soft limit of inodes: it may be exceeded for the grace time.
    #[arg(long, value_name = "N", requires = "set")]
    pub(crate) inodes_soft: Option<u64>,
}

fn quota_id(text: &str) -> Result<(stetfs::low::QuotaKind, u32), String> {
    let (name, id) = text.split_once(':').unwrap_or_default();
    let kind = stetfs::low::QuotaKind::ALL
        .into_iter()
        .find(|k| k.name() == name);
    let kind = kind.ok_or("must be user:ID, group:ID or project:ID, or a name in place of ID")?;
    let number = id.parse().ok().or_else(|| ids::number(name, id));
    match number {
        Some(id) => Ok((kind, id)),
        None => Err(format!("there is no {name} {id:?} here: give the number")),
    }
}

/// A volume that is not mounted.
#[derive(Debug, Args)]
pub(crate) struct VolumeArg {
    #[arg(help = VOLUME)]
    pub(crate) volume: PathBuf,
    /// Location of the volume, separated by commas: partition=N|NAME|UUID, or offset=BYTES and
    /// size=BYTES; journal_path=PATH, the journal of a volume with it on another device; nvm=PATH,
    /// the records of synced files of a volume that was mounted with it.
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}

impl VolumeArg {
    /// The place of the volume: the file and the part of it.
    pub(crate) fn source(&self) -> crate::failure::Result<Source> {
        part::source(self.volume.clone(), &self.options)
    }
}

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// The use of the volume.
    #[arg(long = "for", value_name = "USE", value_enum, default_value_t)]
    pub(crate) program: crate::cmd::advise::Use,
}

/// Arguments of `recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    #[arg(help = VOLUME)]
    pub(crate) volume: PathBuf,
    /// Options, separated by commas: home=share, to have the device share logged blocks with their
    /// home locations where it can, instead of copying them there (home=copy); and the location of
    /// the volume and its journal (partition=N|NAME|UUID, or offset=BYTES and size=BYTES;
    /// journal_path=PATH, nvm=PATH, nvm_offset=BYTES, nvm_size=BYTES).
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Replay the undamaged part of a damaged journal, and leave out the rest; run e2fsck -f
    /// afterwards.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Recover without the file of nvm=, which is lost, and with it the records of synced files:
    /// the volume is as of its last commit.
    #[arg(long)]
    pub(crate) without_nvm: bool,
}

impl RecoverArgs {
    /// The place of the volume, and the options of its recovery.
    pub(crate) fn read(&self) -> crate::failure::Result<(Source, RecoverOptions)> {
        let mut how = RecoverOptions {
            salvage: self.salvage,
            without_nvm: self.without_nvm,
            ..RecoverOptions::default()
        };
        let take = &mut |name: &str, value: &str| {
            let journal = how.journal.with(name, value).map_err(|bad| bad.0)?;
            how.journal = journal;
            Ok(())
        };
        let source = part::source_and(self.volume.clone(), &self.options, &["home"], take)?;
        Ok((source, how))
    }
}
