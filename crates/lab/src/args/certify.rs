//! The arguments of `stetfs certify`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `certify`.
#[derive(Debug, Args)]
pub(crate) struct CertifyArgs {
    /// An ext4 image file or block device, or the directory of a mount. Certify the export of an
    /// NBD server where the server runs, or as a mount.
    pub(crate) volume: PathBuf,
    /// Options of a volume that is not mounted, as for `stetfs mount`; the trials use them.
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Approximate time of all measurements and trials.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub(crate) seconds: f64,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write the page to this file, as HTML.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
