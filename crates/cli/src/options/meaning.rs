//! What options mean for the volume, the mount and the server.

use std::path::Path;
use std::time::Duration;

use stetfs::low::{Atime, Composition, Direct, FsOptions, VolumeOptions};
use stetfs_fuse::{MountOptions, ServeOptions, VolumeFsOptions};

use super::said::Options;
use super::value::bad;
use crate::failure::Result;

/// Seconds that an atomic write may be without a change.
const ATOMIC_TIMEOUT: u32 = 60;

impl Options {
    /// What was said that may not be what was meant.
    pub(crate) fn warnings(&self) -> Result<Vec<String>> {
        let mut all = self.warnings.clone();
        if let Some(preset) = self.preset {
            let replaced = self.composition()?.replaced();
            all.extend(replaced.iter().map(|(said, of_preset)| {
                format!("{said} takes the place of {of_preset}, which journal={preset} stands for")
            }));
        }
        let policy = self.cache_policy;
        if self.erase_block.is_some() && !policy.by_erase_block() {
            let warning = format!("erase_block= does nothing with cache_policy={policy}");
            all.push(warning);
        }
        Ok(all)
    }

    /// Takes from `now`, the options of a mount, what no remount changes: how its server and its
    /// connection to the kernel are made. Gives the names of those that were to be others.
    pub(crate) fn keep_fixed(&mut self, now: &Options) -> Vec<&'static str> {
        fn keep<T: Clone + PartialEq>(own: &mut T, now: &T) -> bool {
            let differs = own != now;
            own.clone_from(now);
            differs
        }
        let others = |o: &Options| o.mount(Path::new("")).allow_other;
        let others_differ = others(self) != others(now);
        self.allow_other = now.allow_other;
        [
            ("threads", keep(&mut self.threads, &now.threads)),
            ("io_uring", keep(&mut self.io_uring, &now.io_uring)),
            ("low_latency", keep(&mut self.low_latency, &now.low_latency)),
            ("sandbox", keep(&mut self.sandbox, &now.sandbox)),
            ("opens", keep(&mut self.opens, &now.opens)),
            ("direct_io", keep(&mut self.direct_io, &now.direct_io)),
            (
                "writeback_cache",
                keep(&mut self.writeback_cache, &now.writeback_cache),
            ),
            ("atomic", keep(&mut self.atomic, &now.atomic)),
            (
                "atomic_timeout",
                keep(&mut self.atomic_timeout, &now.atomic_timeout),
            ),
            ("idmap", keep(&mut self.idmap, &now.idmap)),
            ("fakeroot", keep(&mut self.fakeroot, &now.fakeroot)),
            ("noxattr", keep(&mut self.noxattr, &now.noxattr)),
            (
                "nbd_connections, nbd_reconnect, nbd_answer",
                keep(&mut self.nbd, &now.nbd),
            ),
            (
                "journal_path",
                keep(&mut self.journal_path, &now.journal_path),
            ),
            ("allow_other", others_differ),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }

    /// The journal.
    fn composition(&self) -> Result<Composition> {
        let of_volume = self.volume_data.as_deref().map(|data| ("data", data));
        let said: Vec<(&str, &str)> = match self.preset {
            None => of_volume.into_iter().chain(self.said()).collect(),
            Some(_) => self.said().collect(),
        };
        Composition::new(self.preset.unwrap_or_default(), said).map_err(|why| bad(why.to_string()))
    }

    fn said(&self) -> impl Iterator<Item = (&str, &str)> {
        let said = self.journal.iter();
        said.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn check_fakeroot(&self) -> Result {
        let why = match () {
            () if !self.fakeroot => return Ok(()),
            () if self.allow_other == Some(true) => "allow_other: others, too, would be root in it",
            () if self.idmap => "idmap: each shows ids in its own way",
            () => return Ok(()),
        };
        Err(bad(format!("fakeroot does not go with {why}")))
    }

    fn check_atomic(&self, journal: &Composition) -> Result {
        let why = match () {
            () if !self.atomic || self.read_only => return Ok(()),
            () if self.writeback_cache => {
                "does not go with writeback_cache: the kernel would write when it likes, and nobody \
                 could tell what is part of an atomic write"
            }
            () if !journal.data().keeps_whole() => {
                "needs a journal that data goes through: journal=data, ldj, stet or afs, or \
                 data=journal or data=overwrites"
            }
            () => return Ok(()),
        };
        Err(bad(format!("atomic {why}")))
    }

    /// How the volume is opened.
    pub(crate) fn volume(&self) -> Result<VolumeOptions> {
        if self.no_recovery && !self.read_only {
            return Err(bad(
                "norecovery needs ro: a volume whose journal was not replayed cannot be written"
                    .into(),
            ));
        }
        self.check_fakeroot()?;
        let journal = self.composition()?;
        self.check_atomic(&journal)?;
        let nvm = self.nvm.region()?;
        if nvm.is_some() && !self.read_only {
            stetfs::low::check_region(&journal).map_err(bad)?;
        }
        let defaults = FsOptions::default();
        let fs = FsOptions {
            read_only: self.read_only,
            no_recovery: self.no_recovery,
            // 0 means the default, as for ext4.
            commit_secs: self
                .commit_secs
                .filter(|n| *n > 0)
                .unwrap_or(defaults.commit_secs),
            dirty_expire: self.dirty_expire.unwrap_or(defaults.dirty_expire),
            cache_bytes: self
                .cache_bytes
                .unwrap_or_else(stetfs::low::default_cache_bytes),
            cache_policy: self.cache_policy,
            erase_block: self.erase_block.unwrap_or(defaults.erase_block),
            data_err: self.data_err,
            on_error: self.on_error,
            atime: self.atime.unwrap_or_default(),
            nodiratime: self.nodiratime,
            lazytime: self.lazytime,
            sync: self.sync,
            dirsync: self.dirsync,
            discard: self.discard,
            bsd_groups: self.bsd_groups,
            async_commit: self.async_commit,
            barrier: !self.no_barrier,
            epoch: self.epoch,
            journal,
            ..defaults
        };
        Ok(VolumeOptions {
            fs,
            part: self.part.part()?,
            journal_path: self.journal_path.clone(),
            nvm,
            nbd: self.nbd,
            direct: Direct::Auto,
            ..Default::default()
        })
    }

    /// How it appears in the name space.
    pub(crate) fn mount(&self, source: &Path) -> MountOptions {
        let defaults = MountOptions::new(source);
        MountOptions {
            read_only: self.read_only,
            // Others would be root in the volume, too.
            allow_other: self
                .allow_other
                .unwrap_or(defaults.allow_other && !self.fakeroot),
            judged: !self.fakeroot,
            nosuid: self.nosuid,
            nodev: self.nodev,
            noexec: self.noexec,
            nosymfollow: self.nosymfollow,
            sync: self.sync,
            dirsync: self.dirsync,
            noatime: self.atime == Some(Atime::Noatime),
            nodiratime: self.nodiratime,
            strictatime: self.atime == Some(Atime::Strict),
            ..defaults
        }
    }

    /// How it is served.
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
