//! `-o` options of mount, as mount(8), fstab and ext4 users write them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stetfs::low::{
    Atime, Composition, DataMode, Direct, FsOptions, NbdOptions, OnDataError, OnError, PolicyKind,
    Preset, Source, VolumeOptions, did_you_mean,
};
use stetfs_fuse::{IoUring, LowLatency, MountOptions, Opens, ServeOptions, VolumeFsOptions};

use crate::failure::{Code, Failure, Result};
use crate::net;
use crate::part::{self, NvmOptions, PartOptions};
use crate::sandbox::Wanted;

/// All that `-o` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) read_only: bool,
    pub(crate) remount: bool,
    pub(crate) preset: Option<Preset>,
    /// Options of the journal, in the order in which they were said.
    pub(crate) journal: Vec<(String, String)>,
    /// `data=` of the volume's own options, which counts where nothing is said of the journal.
    pub(crate) volume_data: Option<String>,
    pub(crate) commit_secs: Option<u32>,
    pub(crate) epoch: Option<u64>,
    pub(crate) dirty_expire: Option<Duration>,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) cache_policy: PolicyKind,
    pub(crate) erase_block: Option<u64>,
    pub(crate) atime: Option<Atime>,
    pub(crate) nodiratime: bool,
    pub(crate) lazytime: bool,
    pub(crate) discard: bool,
    pub(crate) bsd_groups: Option<bool>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) data_err: OnDataError,
    pub(crate) allow_other: Option<bool>,
    pub(crate) no_recovery: bool,
    pub(crate) journal_path: Option<PathBuf>,
    pub(crate) nvm: NvmOptions,
    pub(crate) nbd: NbdOptions,
    pub(crate) part: PartOptions,
    pub(crate) threads: usize,
    pub(crate) io_uring: IoUring,
    pub(crate) low_latency: LowLatency,
    pub(crate) sandbox: Wanted,
    /// Where messages go. Absolute.
    pub(crate) log_file: Option<PathBuf>,
    pub(crate) noxattr: bool,
    pub(crate) direct_io: bool,
    pub(crate) writeback_cache: bool,
    pub(crate) atomic: bool,
    pub(crate) idmap: bool,
    pub(crate) fakeroot: bool,
    pub(crate) opens: Opens,
    pub(crate) sync: bool,
    pub(crate) dirsync: bool,
    pub(crate) no_barrier: bool,
    pub(crate) async_commit: bool,
    pub(crate) nosuid: bool,
    pub(crate) nodev: bool,
    pub(crate) noexec: bool,
    /// Of what was said twice.
    warnings: Vec<String>,
}

/// Options that mean nothing here, or are what is done anyway.
const IGNORED: [&str; 40] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "_netdev",
    "async",
    "suid",
    "dev",
    "exec",
    "loop",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "acl",
    "user_xattr",
    "default_permissions",
    "diratime",
    "atime",
    "norelatime",
    "nostrictatime",
    "mand",
    "nomand",
    "auto_da_alloc",
    "delalloc",
    "nodelalloc",
    // Limits that the volume has hold in any case.
    "quota",
    "usrquota",
    "grpquota",
    "prjquota",
    // What the kernel shows of a FUSE mount, and mount(8) gives back for a remount.
    "user_id",
    "group_id",
    "rootmode",
    "max_read",
    "blksize",
];

fn bad(message: String) -> Failure {
    Failure::new(Code::Usage, message)
        .hint("docs/usage.md and `stetfs mount --help` list the options")
}

/// Reads comma-separated options into `all`. With `sloppy`, unknown ones are passed over.
pub(crate) fn parse(text: &str, sloppy: bool, all: &mut Options) -> Result {
    let mut said: BTreeMap<&str, &str> = BTreeMap::new();
    for option in text.split(',').filter(|o| !o.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match apply(name, value, all) {
            Some(done) => done.map_err(|why| bad(format!("option {option}: {why}")))?,
            None if sloppy || is_comment(name) => continue,
            None => {
                let meant = did_you_mean(name, names());
                return Err(bad(format!("unknown option {option:?}{meant}")));
            }
        }
        // mount(8) puts the options of fstab before those of its command line, so the last one
        // counts.
        let topic = match option {
            "nobarrier" => "barrier",
            // Another than the journal's of that name.
            "sync" => "",
            _ => name,
        };
        if let Some(before) = said.insert(topic, option)
            && before != option
        {
            let warning = format!("{option} takes the place of {before}, which was said before");
            all.warnings.push(warning);
        }
    }
    Ok(())
}

/// The options of the volume at `path`: those that it has of its own, and after them those of
/// `text`. Why it has none is told by whoever opens it.
pub(crate) fn of_volume(path: &Path, text: &str) -> Result<Options> {
    let mut said = Options::default();
    parse(text, false, &mut said)?;
    let source = Source {
        path: path.to_owned(),
        part: said.part.part()?,
        ..Source::default()
    };
    let mut options = Options::default();
    match stetfs::low::own_options(&source) {
        Ok(own) => {
            if let Err(e) = parse(&own.join(","), false, &mut options) {
                tracing::warn!("the volume's own options: {e}");
            }
            options.volume_data = options.journal.pop().map(|(_, value)| value);
            options.journal.clear();
        }
        Err(e) => tracing::debug!("the volume's own options cannot be read: {e}"),
    }
    parse(text, false, &mut options)?;
    Ok(options)
}

/// The options of `text` that are known, for a server that is less sloppy.
pub(crate) fn known_only(text: &str) -> String {
    let known = |option: &&str| parse(option, false, &mut Options::default()).is_ok();
    text.split(',').filter(known).collect::<Vec<_>>().join(",")
}

/// The options that mean something and are not the journal's.
const NAMES: [&str; 52] = [
    "ro",
    "rw",
    "remount",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "discard",
    "nodiscard",
    "grpid",
    "bsdgroups",
    "nogrpid",
    "sysvgroups",
    "allow_other",
    "noallow_other",
    "norecovery",
    "noload",
    "direct_io",
    "writeback_cache",
    "atomic",
    "noxattr",
    "idmap",
    "fakeroot",
    "sync",
    "dirsync",
    "nobarrier",
    "journal_async_commit",
    "nosuid",
    "nodev",
    "noexec",
    "barrier",
    "journal",
    "journal_path",
    "nvm",
    "nvm_offset",
    "nvm_size",
    "commit",
    "epoch",
    "dirty_expire",
    "cache",
    "cache_policy",
    "erase_block",
    "io_uring",
    "opens",
    "low_latency",
    "sandbox",
    "log_file",
    "threads",
    "errors",
    "data_err",
];

/// All that people may mean.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES
        .into_iter()
        .chain(part::NAMES)
        .chain(net::NAMES)
        .chain(IGNORED)
        .chain(stetfs::low::option_names())
}

fn is_comment(name: &str) -> bool {
    IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-") || name == "comment"
}

/// `None` if there is no such option. What is wrong is a sentence.
fn apply(
    name: &str,
    value: Option<&str>,
    o: &mut Options,
) -> Option<std::result::Result<(), String>> {
    Some(match value {
        Some(v) if name == "journal" => v
            .parse()
            .map(|preset| o.preset = Some(preset))
            .map_err(|e: stetfs::low::BadJournal| e.to_string()),
        Some(v) if name == "cache_policy" => policy(v).map(|policy| o.cache_policy = policy),
        // Whether it goes with the others is seen when all are known.
        Some(v) if stetfs::low::is_option(name) => stetfs::low::check_option(name, v)
            .map(|()| o.journal.push((name.to_owned(), v.to_owned())))
            .map_err(|why| why.to_string()),
        _ => own(name, value, o)?.map_err(|why| format!("{name} {why}")),
    })
}

/// Options that are neither the journal's nor a name. What is wrong is a sentence without its
/// subject, the option.
fn own(
    name: &str,
    value: Option<&str>,
    o: &mut Options,
) -> Option<std::result::Result<(), String>> {
    let mut flag = |set: &mut dyn FnMut(&mut Options)| match value {
        None => {
            set(o);
            Ok(())
        }
        Some(_) => Err("takes no value".to_owned()),
    };
    let done = match name {
        "ro" => flag(&mut |o| o.read_only = true),
        "rw" => flag(&mut |o| o.read_only = false),
        "remount" => flag(&mut |o| o.remount = true),
        "noatime" => flag(&mut |o| o.atime = Some(Atime::Noatime)),
        "relatime" => flag(&mut |o| o.atime = Some(Atime::Relatime)),
        "strictatime" => flag(&mut |o| o.atime = Some(Atime::Strict)),
        "nodiratime" => flag(&mut |o| o.nodiratime = true),
        "lazytime" => flag(&mut |o| o.lazytime = true),
        "nolazytime" => flag(&mut |o| o.lazytime = false),
        "discard" => flag(&mut |o| o.discard = true),
        "nodiscard" => flag(&mut |o| o.discard = false),
        "grpid" | "bsdgroups" => flag(&mut |o| o.bsd_groups = Some(true)),
        "nogrpid" | "sysvgroups" => flag(&mut |o| o.bsd_groups = Some(false)),
        "allow_other" => flag(&mut |o| o.allow_other = Some(true)),
        "noallow_other" => flag(&mut |o| o.allow_other = Some(false)),
        "norecovery" | "noload" => flag(&mut |o| o.no_recovery = true),
        "direct_io" => flag(&mut |o| o.direct_io = true),
        "writeback_cache" => flag(&mut |o| o.writeback_cache = true),
        "atomic" => flag(&mut |o| o.atomic = true),
        "noxattr" => flag(&mut |o| o.noxattr = true),
        "fakeroot" => flag(&mut |o| o.fakeroot = true),
        "idmap" => flag(&mut |o| o.idmap = true),
        "sync" if value.is_none() => flag(&mut |o| o.sync = true),
        "dirsync" => flag(&mut |o| o.dirsync = true),
        "nobarrier" => flag(&mut |o| o.no_barrier = true),
        "journal_async_commit" => flag(&mut |o| o.async_commit = true),
        "nosuid" => flag(&mut |o| o.nosuid = true),
        "nodev" => flag(&mut |o| o.nodev = true),
        "noexec" => flag(&mut |o| o.noexec = true),
        "barrier" => match value {
            None | Some("1") => set(&mut o.no_barrier, Ok(false)),
            Some("0") => set(&mut o.no_barrier, Ok(true)),
            Some(_) => Err("must be 0 or 1".to_owned()),
        },
        "journal_path" => set(
            &mut o.journal_path,
            required(value, absolute_path).map(Some),
        ),
        "nvm" => set(&mut o.nvm.path, required(value, absolute_path).map(Some)),
        "nvm_offset" => set(&mut o.nvm.offset, required(value, part::bytes).map(Some)),
        "nvm_size" => set(&mut o.nvm.size, required(value, part::bytes).map(Some)),
        "log_file" => set(&mut o.log_file, required(value, absolute_path).map(Some)),
        "commit" => set(&mut o.commit_secs, required(value, whole_seconds).map(Some)),
        "epoch" => set(&mut o.epoch, required(value, epoch).map(Some)),
        "dirty_expire" => set(&mut o.dirty_expire, required(value, seconds).map(Some)),
        "cache" => set(&mut o.cache_bytes, required(value, cache_size).map(Some)),
        "erase_block" => set(&mut o.erase_block, required(value, erase_block).map(Some)),
        "io_uring" => match value {
            Some("auto") => set(&mut o.io_uring, Ok(IoUring::Auto)),
            None | Some("on") => set(&mut o.io_uring, Ok(IoUring::On)),
            Some("off") => set(&mut o.io_uring, Ok(IoUring::Off)),
            Some(_) => Err("must be auto, on or off".to_owned()),
        },
        "opens" => match value {
            Some("stateless") => set(&mut o.opens, Ok(Opens::Stateless)),
            Some("handles") => set(&mut o.opens, Ok(Opens::Handles)),
            _ => Err("must be stateless or handles".to_owned()),
        },
        "low_latency" => match value {
            Some("auto") => set(&mut o.low_latency, Ok(LowLatency::Auto)),
            None | Some("on") => set(&mut o.low_latency, Ok(LowLatency::On)),
            Some("off") => set(&mut o.low_latency, Ok(LowLatency::Off)),
            Some(_) => Err("must be auto, on or off".to_owned()),
        },
        "sandbox" => match value {
            Some("auto") => set(&mut o.sandbox, Ok(Wanted::Auto)),
            None | Some("on") => set(&mut o.sandbox, Ok(Wanted::On)),
            Some("off") => set(&mut o.sandbox, Ok(Wanted::Off)),
            Some(_) => Err("must be auto, on or off".to_owned()),
        },
        "threads" => set(&mut o.threads, required(value, threads)),
        "errors" => set(&mut o.on_error, required(value, on_error).map(Some)),
        "data_err" => match value {
            Some("ignore") => set(&mut o.data_err, Ok(OnDataError::Ignore)),
            Some("abort") => set(&mut o.data_err, Ok(OnDataError::Abort)),
            _ => Err("must be ignore or abort".to_owned()),
        },
        _ if net::NAMES.contains(&name) => net::set(name, value, &mut o.nbd),
        _ if part::NAMES.contains(&name) => o.part.set(name, value)?,
        "journal" | "cache_policy" => Err("needs a value".to_owned()),
        _ if stetfs::low::is_option(name) => Err("needs a value".to_owned()),
        _ => return None,
    };
    Some(done)
}

fn policy(text: &str) -> std::result::Result<PolicyKind, String> {
    text.parse().map_err(|e: stetfs::low::UnknownPolicy| {
        let names = PolicyKind::ALL.into_iter().map(PolicyKind::name);
        format!("{e}{}", did_you_mean(text, names))
    })
}

fn absolute_path(v: &str) -> std::result::Result<PathBuf, String> {
    std::path::absolute(v).map_err(|e| format!("must be a path ({e})"))
}

/// The least cache; the operations that run at once need room.
const LEAST_CACHE: u64 = 1 << 20;

fn cache_size(v: &str) -> std::result::Result<u64, String> {
    let bytes = stetfs::low::size::bytes(v)?;
    let memory = stetfs::low::usable_memory();
    if bytes < LEAST_CACHE {
        return Err("must be at least 1M: less does not hold what operations work on".into());
    }
    if bytes > memory {
        let memory = memory >> 20;
        return Err(format!(
            "must be less than the {memory}M of memory that may be used here"
        ));
    }
    Ok(bytes)
}

fn erase_block(v: &str) -> std::result::Result<u64, String> {
    // A page of flash, and more than any device has.
    const PAGE: u64 = 4096;
    const MOST: u64 = 1 << 30;
    match stetfs::low::size::bytes(v)? {
        n if (PAGE..=MOST).contains(&n) && n.is_multiple_of(PAGE) => Ok(n),
        _ => Err("must be a multiple of 4K, 1G at most: flash is erased in whole pages".into()),
    }
}

fn set<T>(place: &mut T, value: std::result::Result<T, String>) -> std::result::Result<(), String> {
    *place = value?;
    Ok(())
}

fn required<T>(
    value: Option<&str>,
    read: impl FnOnce(&str) -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    read(value.ok_or("needs a value")?)
}

fn whole_seconds(v: &str) -> std::result::Result<u32, String> {
    v.parse()
        .map_err(|_| "must be a number of seconds, such as 5".to_owned())
}

fn epoch(v: &str) -> std::result::Result<u64, String> {
    match v.parse() {
        Ok(epoch) if epoch <= stetfs::low::MAX_EPOCH => Ok(epoch),
        _ => Err(format!(
            "must be a number of seconds since 1970, {} at most",
            stetfs::low::MAX_EPOCH
        )),
    }
}

/// The epoch that the environment gives for what is built (`SOURCE_DATE_EPOCH`).
///
/// # Errors
/// What is no number of seconds: whoever builds by it is not to get something else.
pub(crate) fn epoch_of_environment() -> Result<Option<u64>> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let Some(value) = std::env::var_os(NAME).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let read = epoch(&value.to_string_lossy());
    read.map(Some).map_err(|why| bad(format!("{NAME} {why}")))
}

/// Seconds, or a fraction of one.
fn seconds(v: &str) -> std::result::Result<Duration, String> {
    let time = v.parse().ok().map(Duration::try_from_secs_f64);
    match time {
        Some(Ok(time)) => Ok(time),
        _ => Err("must be a number of seconds, such as 30 or 0.5".to_owned()),
    }
}

fn threads(v: &str) -> std::result::Result<usize, String> {
    match v.parse() {
        Ok(n @ 1..=256) => Ok(n),
        _ => Err("must be a number from 1 to 256".to_owned()),
    }
}

fn on_error(v: &str) -> std::result::Result<OnError, String> {
    match v {
        "continue" => Ok(OnError::Continue),
        "remount-ro" => Ok(OnError::RemountRo),
        "panic" => Ok(OnError::Panic),
        _ => Err("must be continue, remount-ro or panic".to_owned()),
    }
}

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
            () if journal.data() != DataMode::Journal => {
                "needs a journal that data goes through: journal=data, ldj, stet or afs, or \
                 data=journal"
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
                noxattr: self.noxattr,
            },
            threads: self.threads,
            io_uring: self.io_uring,
            low_latency: self.low_latency,
            ..ServeOptions::new(source)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs::low::preset;

    use super::*;

    fn read(text: &str) -> std::result::Result<Options, String> {
        let mut all = Options::default();
        parse(text, false, &mut all)
            .map(|()| all)
            .map_err(|f| f.message)
    }

    #[test]
    fn an_fstab_line_as_people_write_it() {
        let o = read(
            "defaults,nofail,x-systemd.automount,_netdev,noatime,journal=data,cache=1G,commit=30",
        )
        .unwrap();
        assert_eq!(o.preset, Some(preset::DATA));
        assert_eq!(o.cache_bytes, Some(1 << 30));
        let v = o.volume().unwrap();
        assert_eq!((v.fs.commit_secs, v.fs.atime), (30, Atime::Noatime));
        assert!(o.mount(Path::new("x")).noatime);
    }

    #[test]
    fn the_last_of_ro_and_rw_counts_and_commit_0_is_the_default() {
        let o = read("ro,rw,commit=0,data=journal").unwrap();
        let v = o.volume().unwrap();
        assert!(!v.fs.read_only);
        assert_eq!(v.fs.commit_secs, FsOptions::default().commit_secs);
        assert_eq!(v.fs.journal.data(), DataMode::Journal);
        assert!(v.fs.journal.is_jbd2());
    }

    #[test]
    fn how_old_data_may_be_and_what_failures_of_it_do() {
        let fs = |text: &str| read(text).map(|o| o.volume().unwrap().fs);
        let defaults = fs("").unwrap();
        assert_eq!(defaults.dirty_expire, Duration::from_secs(30));
        assert_eq!(defaults.data_err, OnDataError::Ignore);
        let set = fs("dirty_expire=0.25,data_err=abort").unwrap();
        assert_eq!(set.dirty_expire, Duration::from_millis(250));
        assert_eq!(set.data_err, OnDataError::Abort);
        for wrong in ["", "=", "=-1", "=soon", "=NaN", "=1e99"] {
            let said = fs(&format!("dirty_expire{wrong}")).unwrap_err();
            assert!(
                said.contains("seconds") || said.contains("value"),
                "{wrong}: {said}"
            );
        }
        assert!(
            fs("data_err=panic")
                .unwrap_err()
                .contains("ignore or abort")
        );
    }

    #[test]
    fn how_files_are_synced() {
        let has_records = |text| {
            let o = read(text).unwrap().volume().unwrap();
            o.fs.journal.has_records()
        };
        assert!(has_records("journal=ijournal,records=3"));
        assert!(!has_records("journal=ijournal,sync=compound"));
        assert!(!has_records("journal=ldj"));
        assert!(has_records("journal=ldj,sync=file"));
        assert!(has_records("journal=data,sync=file"));
        assert!(read("sync").unwrap().sync);
        assert!(read("sync=all").unwrap_err().contains("compound or file"));
        assert!(read("records=0").unwrap_err().contains("1 to 64"));
        let wrong = read("codec=jbd2,sync=file").unwrap().volume();
        assert!(wrong.is_err_and(|e| e.message.contains("sync=file needs codec=frames")));
    }

    #[test]
    fn what_the_volume_says_of_data_counts_where_nothing_else_is_said() {
        let data = |text: &str| {
            let mut all = Options {
                volume_data: Some("journal".into()),
                ..Options::default()
            };
            parse(text, false, &mut all).unwrap();
            all.volume().unwrap().fs.journal.data()
        };
        assert_eq!(data(""), DataMode::Journal);
        assert_eq!(data("data=ordered"), DataMode::Ordered);
        assert_eq!(data("journal=ijournal"), DataMode::Ordered);
        assert_eq!(data("compress=lz4"), DataMode::Journal);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(
            read("journal=fast")
                .unwrap_err()
                .contains("ordered, data, writeback, ldj, ijournal")
        );
        assert!(read("frobnicate").unwrap_err().contains("frobnicate"));
        assert!(read("cache=much").unwrap_err().contains("256M"));
        assert!(read("cache_policy=best").unwrap_err().contains("ts-clock"));
        assert!(read("ro=1").unwrap_err().contains("takes no value"));
        assert!(read("commit").unwrap_err().contains("needs a value"));
        assert!(read("threads=0").is_err());
        let sentence = |text: &str| read(text).unwrap_err();
        assert_eq!(
            sentence("commit=abc"),
            "option commit=abc: commit must be a number of seconds, such as 5"
        );
        assert_eq!(
            sentence("home=remap"),
            "option home=remap: home must be copy or share"
        );
        assert!(sentence("journal").ends_with("journal needs a value"));
        assert!(sentence("codec").ends_with("codec needs a value"));
        assert!(
            read("opens=none")
                .unwrap_err()
                .contains("stateless or handles")
        );
        assert!(
            read("norecovery")
                .unwrap()
                .volume()
                .unwrap_err()
                .message
                .contains("norecovery needs ro")
        );
        let mut all = Options::default();
        assert!(parse("frobnicate,ro", true, &mut all).is_ok() && all.read_only);
    }

    #[test]
    fn atomic_writes_say_what_is_in_their_way() {
        let why = |text: &str| read(text).unwrap().volume().map(drop).unwrap_err().message;
        for journal in ["data", "ldj", "stet", "afs", "ordered,data=journal"] {
            let o = read(&format!("journal={journal},atomic")).unwrap();
            o.volume().unwrap();
            assert!(o.serve(Path::new("x")).volume.atomic);
        }
        assert!(why("atomic").contains("journal=data, ldj, stet or afs"));
        assert!(why("journal=ijournal,atomic").contains("needs a journal that data goes through"));
        assert!(why("journal=data,atomic,writeback_cache").contains("writeback_cache"));
        assert!(read("atomic=1").unwrap_err().contains("takes no value"));
    }

    #[test]
    fn what_the_connection_is_asked_for() {
        let o = read("low_latency=off,io_uring,noxattr,sandbox").unwrap();
        assert_eq!(o.sandbox, Wanted::On);
        let serve = o.serve(Path::new("x"));
        assert_eq!(serve.low_latency, LowLatency::Off);
        assert_eq!(serve.io_uring, IoUring::On);
        assert!(serve.volume.noxattr);
        assert_eq!(read("").unwrap().sandbox, Wanted::Auto);
        assert_eq!(read("sandbox=off").unwrap().sandbox, Wanted::Off);
        assert!(read("sandbox=no").unwrap_err().contains("auto, on or off"));
        let plain = read("").unwrap().serve(Path::new("x"));
        assert_eq!(plain.low_latency, LowLatency::Auto);
        assert!(!plain.volume.noxattr);
        assert!(
            read("low_latency=1")
                .unwrap_err()
                .contains("auto, on or off")
        );
        assert!(read("noxattr=1").unwrap_err().contains("takes no value"));
    }

    #[test]
    fn every_name_is_taken_and_slips_are_understood() {
        for name in names() {
            let taken = [None, Some("1")]
                .iter()
                .any(|value| apply(name, *value, &mut Options::default()).is_some());
            assert!(taken || is_comment(name), "{name}");
        }
        for (wrong, meant) in [
            ("jounal=ldj", "journal"),
            ("comit=5", "commit"),
            ("no_barrier", "nobarrier"),
            ("journal=ijurnal", "ijournal"),
            ("cache_policy=tsclock", "ts-clock"),
            ("codec=frame", "frames"),
        ] {
            let said = read(wrong).unwrap_err();
            assert!(said.ends_with(&format!("did you mean {meant}?")), "{said}");
        }
        assert!(!read("frobnicate").unwrap_err().contains("mean"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_or_warned_of() {
        let refused = |text: &str| read(text).unwrap_err();
        assert!(refused("cache=4K").contains("at least 1M"));
        assert!(refused("cache=900000G").contains("of memory"));
        assert!(refused("erase_block=5000").contains("multiple of 4K"));
        assert!(refused("erase_block=0").contains("multiple of 4K"));
        let warned = |text: &str| read(text).unwrap().warnings().unwrap().join("\n");
        assert_eq!(
            warned("nobarrier,barrier=1"),
            "barrier=1 takes the place of nobarrier, which was said before"
        );
        assert_eq!(
            warned("journal=ijournal,data=journal"),
            "data=journal takes the place of data=ordered, which journal=ijournal stands for"
        );
        assert_eq!(
            warned("journal=ldj,codec=jbd2"),
            "codec=jbd2 takes the place of codec=frames, which journal=ldj stands for"
        );
        assert!(warned("erase_block=24M").contains("does nothing with cache_policy=clock"));
        for sound in [
            "defaults,rw,ro,noatime",
            "journal=ldj,compress=zstd",
            "data=journal",
            "cache=1M,commit=5,commit=5",
            "sync,journal=data,sync=file",
            "cache_policy=ts-clock,erase_block=24M",
        ] {
            assert_eq!(warned(sound), "", "{sound}");
        }
    }

    /// What a part of another order takes, too.
    #[test]
    fn lanes_go_with_the_order_of_the_preset() {
        let journal = |text: &str| {
            let options = read(text)?.volume().map_err(|e| e.to_string())?;
            Ok(options.fs.journal.to_string())
        };
        let all = "journal=zjournal,lanes=2,groups=core,copies=proactive";
        let said = "zjournal,copies=proactive,groups=core,lanes=2";
        assert_eq!(journal(all), Ok(said.to_owned()));
        let refused: std::result::Result<String, String> = journal("lanes=2");
        assert!(refused.is_err_and(|why| why.contains("lanes needs order=cores or order=threads")));
        assert!(journal("journal=zjournal,copies=wait").is_err());
    }

    #[test]
    fn barrier_both_ways() {
        assert!(!read("nobarrier").unwrap().volume().unwrap().fs.barrier);
        assert!(!read("barrier=0").unwrap().volume().unwrap().fs.barrier);
        assert!(
            read("nobarrier,barrier=1")
                .unwrap()
                .volume()
                .unwrap()
                .fs
                .barrier
        );
    }
}
