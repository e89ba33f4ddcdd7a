//! Options, read from what was said.

use std::collections::BTreeMap;
use std::path::Path;

use stetfs::low::{Atime, FirstLook, Source, did_you_mean};
use stetfs_fuse::{IoUring, LowLatency};

use super::kernels;
use super::names::{is_comment, names};
use super::said::Options;
use super::value::{
    Read, absolute_path, auto_on_off, bad, cache_size, data_err, epoch, erase_block, no_barrier,
    nothing, on_error, opens, policy, required, seconds, threads, whole_seconds,
};
use crate::failure::Result;
use crate::sandbox::Wanted;
use crate::{net, part, scout};

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
                let meant = match name {
                    "noacl" | "nouser_xattr" => {
                        "; noxattr turns attributes and ACLs off, both at once".to_owned()
                    }
                    _ => did_you_mean(name, names()),
                };
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
    let own = stetfs::low::own_options(&source(path, &said(text)?)?);
    let own = own.inspect_err(|e| tracing::debug!("the volume's own options cannot be read: {e}"));
    with_own(&own.unwrap_or_default(), text)
}

/// The same for the server of a mount, with all else that the volume says of that.
pub(crate) fn of_mount(path: &Path, text: &str) -> Result<(Options, FirstLook)> {
    let said = said(text)?;
    let look = scout::look(&source(path, &said)?, said.nbd, said.sandbox)?;
    Ok((with_own(&look.own_options, text)?, look))
}

/// Options without those of a volume.
fn said(text: &str) -> Result<Options> {
    let mut said = Options::default();
    parse(text, false, &mut said)?;
    Ok(said)
}

/// The volume that options mean.
fn source(path: &Path, said: &Options) -> Result<Source> {
    Ok(Source {
        path: path.to_owned(),
        part: said.part.part()?,
        journal_path: said.journal_path.clone(),
        ..Source::default()
    })
}

fn with_own(own: &[&str], text: &str) -> Result<Options> {
    let mut options = Options::default();
    if let Err(e) = parse(&own.join(","), false, &mut options) {
        tracing::warn!("the volume's own options: {e}");
    }
    options.volume_data = options.journal.pop().map(|(_, value)| value);
    options.journal.clear();
    parse(text, false, &mut options)?;
    Ok(options)
}

/// The options of `text` that are known, for a server that is less sloppy.
pub(crate) fn known_only(text: &str) -> String {
    let known = |option: &&str| parse(option, false, &mut Options::default()).is_ok();
    text.split(',').filter(known).collect::<Vec<_>>().join(",")
}

/// `None` if there is no such option. What is wrong is a sentence.
pub(super) fn apply(name: &str, value: Option<&str>, o: &mut Options) -> Option<Read<()>> {
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

/// What an option without a value says.
type Flag = fn(&mut Options);

/// The options without a value. The journal has another `sync`, which has one.
const FLAGS: [(&str, Flag); 33] = [
    ("ro", |o| o.read_only = true),
    ("rw", |o| o.read_only = false),
    ("remount", |o| o.remount = true),
    ("noatime", |o| o.atime = Some(Atime::Noatime)),
    ("relatime", |o| o.atime = Some(Atime::Relatime)),
    ("strictatime", |o| o.atime = Some(Atime::Strict)),
    ("nodiratime", |o| o.nodiratime = true),
    ("lazytime", |o| o.lazytime = true),
    ("nolazytime", |o| o.lazytime = false),
    ("discard", |o| o.discard = true),
    ("nodiscard", |o| o.discard = false),
    ("grpid", |o| o.bsd_groups = Some(true)),
    ("bsdgroups", |o| o.bsd_groups = Some(true)),
    ("nogrpid", |o| o.bsd_groups = Some(false)),
    ("sysvgroups", |o| o.bsd_groups = Some(false)),
    ("allow_other", |o| o.allow_other = Some(true)),
    ("noallow_other", |o| o.allow_other = Some(false)),
    ("norecovery", |o| o.no_recovery = true),
    ("noload", |o| o.no_recovery = true),
    ("direct_io", |o| o.direct_io = true),
    ("writeback_cache", |o| o.writeback_cache = true),
    ("atomic", |o| o.atomic = true),
    ("noxattr", |o| o.noxattr = true),
    ("fakeroot", |o| o.fakeroot = true),
    ("idmap", |o| o.idmap = true),
    ("sync", |o| o.sync = true),
    ("dirsync", |o| o.dirsync = true),
    ("nobarrier", |o| o.no_barrier = true),
    ("journal_async_commit", |o| o.async_commit = true),
    ("nosuid", |o| o.nosuid = true),
    ("nodev", |o| o.nodev = true),
    ("noexec", |o| o.noexec = true),
    ("nosymfollow", |o| o.nosymfollow = true),
];

fn flag(name: &str) -> Option<Flag> {
    let found = FLAGS.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, set)| set)
}

/// Options that are neither the journal's nor a name. What is wrong is a sentence without its
/// subject, the option.
fn own(name: &str, value: Option<&str>, o: &mut Options) -> Option<Read<()>> {
    if let Some(set) = flag(name) {
        return Some(nothing(value).map(|()| set(o)));
    }
    let done = match name {
        "barrier" => set(&mut o.no_barrier, no_barrier(value)),
        "journal_path" => set(
            &mut o.journal_path,
            required(value, absolute_path).map(Some),
        ),
        "nvm" => set(&mut o.nvm.path, required(value, absolute_path).map(Some)),
        "nvm_offset" => set(&mut o.nvm.offset, required(value, part::bytes).map(Some)),
        "nvm_size" => set(&mut o.nvm.size, required(value, part::bytes).map(Some)),
        "log_file" => set(&mut o.log_file, required(value, absolute_path).map(Some)),
        "commit" => set(&mut o.commit_secs, required(value, whole_seconds).map(Some)),
        "atomic_timeout" => {
            let seconds = required(value, whole_seconds).map(Some);
            set(&mut o.atomic_timeout, seconds)
        }
        "epoch" => set(&mut o.epoch, required(value, epoch).map(Some)),
        "dirty_expire" => set(&mut o.dirty_expire, required(value, seconds).map(Some)),
        "cache" => set(&mut o.cache_bytes, required(value, cache_size).map(Some)),
        "erase_block" => set(&mut o.erase_block, required(value, erase_block).map(Some)),
        "io_uring" => {
            let how = auto_on_off(value, IoUring::Auto, IoUring::On, IoUring::Off);
            set(&mut o.io_uring, how)
        }
        "opens" => set(&mut o.opens, opens(value)),
        "low_latency" => {
            let how = auto_on_off(value, LowLatency::Auto, LowLatency::On, LowLatency::Off);
            set(&mut o.low_latency, how)
        }
        "sandbox" => {
            let how = auto_on_off(value, Wanted::Auto, Wanted::On, Wanted::Off);
            set(&mut o.sandbox, how)
        }
        "threads" => set(&mut o.threads, required(value, threads)),
        "errors" => set(&mut o.on_error, required(value, on_error).map(Some)),
        "data_err" => set(&mut o.data_err, data_err(value)),
        _ if net::NAMES.contains(&name) => net::set(name, value, &mut o.nbd),
        _ if part::NAMES.contains(&name) => o.part.set(name, value)?,
        "journal" | "cache_policy" => Err("needs a value".to_owned()),
        _ if stetfs::low::is_option(name) => Err("needs a value".to_owned()),
        _ => return kernels::check(name, value),
    };
    Some(done)
}

fn set<T>(place: &mut T, value: Read<T>) -> Read<()> {
    *place = value?;
    Ok(())
}
