//! Volumes that need not be mounted.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stetfs::low::{RecoverOptions, Source};

use crate::{ids, part};

/// What is a volume, to most commands.
pub(super) const VOLUME: &str = "An ext4 image file, a block device, or an export of an NBD server (nbd://HOST[:PORT]/EXPORT, \
     nbd+unix:///EXPORT?socket=PATH)";

/// What to show.
#[derive(Debug, Subcommand)]
pub(crate) enum Dump {
    /// The journal, record by record.
    Journal(DumpJournalArgs),
}

/// Arguments of `dump journal`.
#[derive(Debug, Args)]
pub(crate) struct DumpJournalArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// Draw the transactions into this file, as SVG, instead of telling the records.
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
}

/// Arguments of `quota`.
#[derive(Debug, Args)]
pub(crate) struct QuotaArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// Whose limits are set, such as user:1000, user:alice, group:100 or project:5. Those that are
    /// not given are none.
    #[arg(long, value_name = "KIND:ID", value_parser = quota_id)]
    pub(crate) set: Option<(stetfs::low::QuotaKind, u32)>,
    /// Space that is never exceeded.
    #[arg(long, value_name = "SIZE", value_parser = stetfs::low::size::bytes, requires = "set")]
    pub(crate) space: Option<u64>,
    /// Space that is exceeded for the grace time only.
    #[arg(long, value_name = "SIZE", value_parser = stetfs::low::size::bytes, requires = "set")]
    pub(crate) space_soft: Option<u64>,
    /// Inodes that are never exceeded.
    #[arg(long, value_name = "N", requires = "set")]
    pub(crate) inodes: Option<u64>,
    /// Inodes that are exceeded for the grace time only.
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
    /// Where the volume is in it, separated by commas: partition=N|NAME|UUID, or offset=BYTES and
    /// size=BYTES; journal_path=PATH, where the journal is, on a volume with it on another
    /// device; nvm=PATH, where records of synced files are, of one that was mounted so.
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}

impl VolumeArg {
    /// Where it is.
    pub(crate) fn source(&self) -> crate::failure::Result<Source> {
        part::source(self.volume.clone(), &self.options)
    }
}

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// What it is for.
    #[arg(long = "for", value_name = "USE", value_enum, default_value_t)]
    pub(crate) program: crate::cmd::advise::Use,
}

/// Arguments of `certify`.
#[derive(Debug, Args)]
pub(crate) struct CertifyArgs {
    /// An ext4 image file or block device, or the directory of a mount. What an NBD server exports
    /// is certified where the server runs, or as a mount.
    pub(crate) volume: PathBuf,
    /// Options of a volume that is not mounted, as for `stetfs mount`: with which it is tried.
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// How long is measured and tried, about.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub(crate) seconds: f64,
    /// What is drawn at random comes from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write the page there, as HTML.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Arguments of `recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    #[arg(help = VOLUME)]
    pub(crate) volume: PathBuf,
    /// Separated by commas: home=share, to have the device share what is logged to its home, where
    /// it can, instead of writing it there (home=copy); and where the volume and its journal
    /// are (partition=N|NAME|UUID, or offset=BYTES and size=BYTES; journal_path=PATH, nvm=PATH,
    /// nvm_offset=BYTES, nvm_size=BYTES).
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Of a damaged journal, bring home what is whole and leave out the rest; run e2fsck -f
    /// afterwards.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// The file of nvm= is lost, and its records of synced files with it: bring the volume to its
    /// last commit.
    #[arg(long)]
    pub(crate) without_nvm: bool,
}

impl RecoverArgs {
    /// Where the volume is, and how it is recovered.
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
