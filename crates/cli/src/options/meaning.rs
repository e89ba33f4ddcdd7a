//! The effect of options on the volume, the mount and the server.

use std::path::Path;
use std::time::Duration;

use stetfs::low::options::{VOLUME_OPTIONS, kept};
use stetfs::low::{Atime, Composition, VolumeOptions};
use stetfs_fuse::{MountOptions, ServeOptions, VolumeFsOptions};

use super::mount::MOUNT_OPTIONS;
use super::read::bad;
use super::said::Options;
use crate::failure::Result;

/// The default time that an atomic write may be without a change, seconds.
const ATOMIC_TIMEOUT: u32 = 60;

impl Options {
    /// Warnings about options that may not be as meant.
    pub(crate) fn warnings(&self) -> Result<Vec<String>> {
        let mut all = self.warnings.clone();
        if let Some(preset) = self.request.preset {
            let replaced = self.composition()?.replaced();
            all.extend(replaced.iter().map(|(said, of_preset)| {
                format!("{said} takes the place of {of_preset}, which journal={preset} stands for")
            }));
        }
        let policy = self.request.fs.cache_policy;
        if self.request.erase_block.is_some() && !policy.by_erase_block() {
            let warning = format!("erase_block= does nothing with cache_policy={policy}");
            all.push(warning);
        }
        Ok(all)
    }

    /// Takes from `now`, the options of a mount, everything that a remount cannot change: how its
    /// server and its connection to the kernel are made. Returns the names of the options that
    /// should have changed.
    pub(crate) fn keep_fixed(&mut self, now: &Options) -> Vec<&'static str> {
        let mut names = kept(MOUNT_OPTIONS, self, now);
        names.extend(kept(VOLUME_OPTIONS, &mut self.request, &now.request));
        names
    }

    /// The composition of the journal.
    fn composition(&self) -> Result<Composition> {
        self.request.composition().map_err(bad)
    }

    fn check_fakeroot(&self) -> Result {
        let why = match () {
            () if !self.fakeroot => return Ok(()),
            () if self.allow_other == Some(true) => "allow_other: others, too, would be root in it",
            () if self.idmap => "idmap: both change the owners that files show",
            () => return Ok(()),
        };
        Err(bad(format!("fakeroot does not go with {why}")))
    }

    fn check_atomic(&self, journal: &Composition) -> Result {
        let why = match () {
            () if !self.atomic || self.request.fs.read_only => return Ok(()),
            () if self.writeback_cache => {
                "does not go with writeback_cache: the kernel would delay writes, so the server could \
                 not tell which belong to an atomic write"
            }
            () if !journal.data().keeps_whole() => {
                "needs a journal that data goes through: journal=data, ldj, stet or afs, or \
                 data=journal or data=overwrites"
            }
            () => return Ok(()),
        };
        Err(bad(format!("atomic {why}")))
    }

    /// The options with which the volume is opened.
    pub fn volume(&self) -> Result<VolumeOptions> {
        self.check_fakeroot()?;
        let journal = self.composition()?;
        self.check_atomic(&journal)?;
        let mut request = self.request.clone();
        request
            .cache
            .get_or_insert_with(stetfs::low::default_cache_bytes);
        request.settle_with(journal).map_err(bad)
    }

    /// The options of the mount in the kernel.
    pub(crate) fn mount(&self, source: &Path) -> MountOptions {
        let (defaults, fs) = (MountOptions::new(source), &self.request.fs);
        MountOptions {
            read_only: fs.read_only,
            // Other users as root in the kernel would be root in the volume, too.
            allow_other: self
                .allow_other
                .unwrap_or(defaults.allow_other && !self.fakeroot),
            judged: !self.fakeroot,
            nosuid: self.nosuid,
            nodev: self.nodev,
            noexec: self.noexec,
            nosymfollow: self.nosymfollow,
            sync: fs.sync,
            dirsync: fs.dirsync,
            noatime: fs.atime == Atime::Noatime,
            nodiratime: fs.nodiratime,
            strictatime: fs.atime == Atime::Strict,
            ..defaults
        }
    }

    /// The options with which it is served.
    pub(crate) fn serve(&self, source: &Path) -> ServeOptions {
        ServeOptions {
            mount: self.mount(source),
            volume: VolumeFsOptions {
                direct_io: self.direct_io,
                writeback_cache: self.writeback_cache,
                idmap: self.idmap,
                fakeroot: self.fakeroot,
                opens: self.opens,
                atomic: self.atomic,
                atomic_timeout: match self.atomic_timeout.unwrap_or(ATOMIC_TIMEOUT) {
                    0 => None,
                    seconds => Some(Duration::from_secs(seconds.into())),
                },
                noxattr: self.noxattr,
            },
            threads: self.threads,
            io_uring: self.io_uring,
            low_latency: self.low_latency,
            ..ServeOptions::new(source)
        }
    }
}
