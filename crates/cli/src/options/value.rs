//! The values of options.

use std::path::PathBuf;
use std::time::Duration;

use stetfs::low::{OnDataError, OnError, PolicyKind, did_you_mean};
use stetfs_fuse::Opens;

use crate::failure::{Code, Failure, Result};

/// A value, or what is wrong with it: a sentence without its subject, the option.
pub(super) type Read<T> = std::result::Result<T, String>;

/// What is wrong with the options.
pub(super) fn bad(message: String) -> Failure {
    Failure::new(Code::Usage, message)
        .hint("docs/mounting.md and `stetfs mount --help` list the options")
}

/// A value that there must be.
pub(super) fn required<T>(value: Option<&str>, read: impl FnOnce(&str) -> Read<T>) -> Read<T> {
    read(value.ok_or("needs a value")?)
}

/// A value that there must not be.
pub(super) fn nothing(value: Option<&str>) -> Read<()> {
    match value {
        None => Ok(()),
        Some(_) => Err("takes no value".to_owned()),
    }
}

pub(super) fn policy(text: &str) -> Read<PolicyKind> {
    text.parse().map_err(|e: stetfs::low::UnknownPolicy| {
        let names = PolicyKind::ALL.into_iter().map(PolicyKind::name);
        format!("{e}{}", did_you_mean(text, names))
    })
}

pub(super) fn absolute_path(v: &str) -> Read<PathBuf> {
    std::path::absolute(v).map_err(|e| format!("must be a path ({e})"))
}

/// The least cache; the operations that run at once need room.
const LEAST_CACHE: u64 = 1 << 20;

pub(super) fn cache_size(v: &str) -> Read<u64> {
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

pub(super) fn erase_block(v: &str) -> Read<u64> {
    // A page of flash, and more than any device has.
    const PAGE: u64 = 4096;
    const MOST: u64 = 1 << 30;
    match stetfs::low::size::bytes(v)? {
        n if (PAGE..=MOST).contains(&n) && n.is_multiple_of(PAGE) => Ok(n),
        _ => Err("must be a multiple of 4K, 1G at most: flash is erased in whole pages".into()),
    }
}

pub(super) fn whole_seconds(v: &str) -> Read<u32> {
    v.parse()
        .map_err(|_| "must be a number of seconds, such as 5".to_owned())
}

pub(super) fn epoch(v: &str) -> Read<u64> {
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
pub(super) fn seconds(v: &str) -> Read<Duration> {
    let time = v.parse().ok().map(Duration::try_from_secs_f64);
    match time {
        Some(Ok(time)) => Ok(time),
        _ => Err("must be a number of seconds, such as 30 or 0.5".to_owned()),
    }
}

pub(super) fn threads(v: &str) -> Read<usize> {
    match v.parse() {
        Ok(n @ 1..=256) => Ok(n),
        _ => Err("must be a number from 1 to 256".to_owned()),
    }
}

pub(super) fn on_error(v: &str) -> Read<OnError> {
    match v {
        "continue" => Ok(OnError::Continue),
        "remount-ro" => Ok(OnError::RemountRo),
        "panic" => Ok(OnError::Panic),
        _ => Err("must be continue, remount-ro or panic".to_owned()),
    }
}

/// A choice that may be left to the server; the name alone means on.
pub(super) fn auto_on_off<T>(value: Option<&str>, auto: T, on: T, off: T) -> Read<T> {
    match value {
        Some("auto") => Ok(auto),
        None | Some("on") => Ok(on),
        Some("off") => Ok(off),
        Some(_) => Err("must be auto, on or off".to_owned()),
    }
}

/// Whether there are no barriers.
pub(super) fn no_barrier(value: Option<&str>) -> Read<bool> {
    match value {
        None | Some("1") => Ok(false),
        Some("0") => Ok(true),
        Some(_) => Err("must be 0 or 1".to_owned()),
    }
}

/// How files are opened.
pub(super) fn opens(value: Option<&str>) -> Read<Opens> {
    match value {
        Some("stateless") => Ok(Opens::Stateless),
        Some("handles") => Ok(Opens::Handles),
        _ => Err("must be stateless or handles".to_owned()),
    }
}

/// What failures of file data do.
pub(super) fn data_err(value: Option<&str>) -> Read<OnDataError> {
    match value {
        Some("ignore") => Ok(OnDataError::Ignore),
        Some("abort") => Ok(OnDataError::Abort),
        _ => Err("must be ignore or abort".to_owned()),
    }
}
