//! Options of `stetfs_open`, written as those of `stetfs mount -o`.

use std::time::Duration;

use stetfs::MountOptions;
use stetfs::low::{self, Atime, size};

use crate::answer::{Failed, Result};

/// The names, for whoever misspells one.
const NAMES: [&str; 21] = [
    "ro",
    "rw",
    "norecovery",
    "noload",
    "sync",
    "noatime",
    "relatime",
    "strictatime",
    "journal",
    "partition",
    "offset",
    "size",
    "journal_path",
    "nvm",
    "commit",
    "cache",
    "epoch",
    "owner",
    "umask",
    "defaults",
    "async",
];

/// Reads options, separated by commas.
pub(crate) fn read(text: &str) -> Result<MountOptions> {
    let mut options = MountOptions::new();
    let mut part: (Option<u64>, Option<u64>) = (None, None);
    for option in text.split(',').filter(|option| !option.is_empty()) {
        let done = match option.split_once('=') {
            Some((name, value)) => valued(&mut options, &mut part, name, value),
            None => flag(&mut options, option),
        };
        done.map_err(|why| Failed::argument(format!("option {option}: {why}")))?;
    }
    match part {
        (None, None) => {}
        (offset, size) => {
            options.part(offset.unwrap_or(0), size);
        }
    }
    Ok(options)
}

type Said = std::result::Result<(), String>;

fn unknown(name: &str) -> String {
    let names = NAMES.into_iter().chain(low::option_names());
    format!("unknown{}", low::did_you_mean(name, names))
}

fn flag(options: &mut MountOptions, name: &str) -> Said {
    match name {
        "ro" => options.read_only(true),
        "rw" => options.read_only(false),
        "norecovery" | "noload" => options.recovery(false),
        "sync" => options.sync(true),
        "noatime" => options.access_times(Atime::Noatime),
        "relatime" => options.access_times(Atime::Relatime),
        "strictatime" => options.access_times(Atime::Strict),
        "defaults" | "async" => options,
        _ if NAMES.contains(&name) || low::is_option(name) => return Err("needs a value".into()),
        _ => return Err(unknown(name)),
    };
    Ok(())
}

fn valued(
    options: &mut MountOptions,
    part: &mut (Option<u64>, Option<u64>),
    name: &str,
    value: &str,
) -> Said {
    match name {
        "journal" => options.journal(value),
        "partition" => options.partition(value),
        "journal_path" => options.journal_path(value),
        "nvm" => options.nvm(value),
        "commit" => options.commit_interval(Duration::from_secs(number(value)?)),
        "cache" => options.cache(size::bytes(value)?),
        "epoch" => options.epoch(number(value)?),
        "umask" => options.umask(octal(value)?),
        "owner" => {
            let (uid, gid) = value.split_once(':').ok_or("must be UID:GID")?;
            options.owner(id(uid)?, id(gid)?)
        }
        "offset" => {
            part.0 = Some(size::bytes(value)?);
            options
        }
        "size" => {
            part.1 = Some(size::bytes(value)?);
            options
        }
        _ if low::is_option(name) => {
            low::check_option(name, value).map_err(|why| why.to_string())?;
            options.journal_option(name, value)
        }
        _ if NAMES.contains(&name) => return Err("takes no value".into()),
        _ => return Err(unknown(name)),
    };
    Ok(())
}

fn number(value: &str) -> std::result::Result<u64, String> {
    value.parse().map_err(|_| "must be a number".to_owned())
}

fn id(value: &str) -> std::result::Result<u32, String> {
    value.parse().map_err(|_| "must be two numbers".to_owned())
}

fn octal(value: &str) -> std::result::Result<u32, String> {
    u32::from_str_radix(value, 8).map_err(|_| "must be an octal number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_mount_and_what_is_none_is_told() {
        for sound in [
            "",
            "ro,norecovery",
            "journal=ldj,compress=zstd,commit=30,cache=64M",
            "sync,sync=file,journal=data",
            "offset=1M,size=64M,owner=1000:100,umask=077,epoch=1700000000",
        ] {
            assert!(read(sound).is_ok(), "{sound}");
        }
        for senseless in [
            "jounal=ldj",
            "ro=1",
            "cache",
            "owner=me",
            "compress=best",
            "x",
        ] {
            assert!(read(senseless).is_err(), "{senseless}");
        }
    }
}
