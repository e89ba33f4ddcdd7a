//! What is under test: a journal preset with its options, on a volume of some shape.

mod spec;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, ensure};
use stetfs::low::{Atime, FsOptions, PolicyKind, Preset, check_region};

pub use self::spec::{JournalSpec, Shape};
use crate::canary::find;
use crate::volume::{Base, able, options};
use crate::work::Work;
use crate::workload::{Case, Script};

/// The options of a [`JournalSpec`], for messages.
pub const OPTIONS: &str = "\
async_commit, nobarrier, discard, sync, dirsync, lazytime, strictatime, commit=SECONDS, dirty_expire=SECONDS, cache=MIB, cache_policy=NAME, the journal's options (`stetfs mount --help` lists them), \
and deliberate faults that the lab must find: canary=NAME (`stetfs crash canaries --list` names them)";

impl FromStr for JournalSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<JournalSpec, String> {
        JournalSpec::read(text, &options)
    }
}

impl JournalSpec {
    /// What is not said in `text` is as `defaults` has it.
    ///
    /// # Errors
    /// What is wrong in it, and what there is.
    pub fn read(text: &str, defaults: &dyn Fn(Preset) -> FsOptions) -> Result<JournalSpec, String> {
        let mut parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        let name = parts.next().unwrap_or_default();
        let preset: Preset = name.parse().map_err(|e| format!("{e}"))?;
        let mut spec = JournalSpec {
            options: defaults(preset),
            ..JournalSpec::of(preset)
        };
        for part in parts {
            let (option, value) = match part.split_once('=') {
                Some((o, v)) => (o, Some(v)),
                None => (part, None),
            };
            let number = || {
                value
                    .and_then(|v| v.parse::<u32>().ok())
                    .filter(|n| (1..=100_000).contains(n))
                    .ok_or_else(|| format!("{option} needs a number: {option}=N"))
            };
            let o = &mut spec.options;
            match (option, value) {
                ("async_commit" | "journal_async_commit", None) => o.async_commit = true,
                ("nobarrier", None) => o.barrier = false,
                ("discard", None) => o.discard = true,
                ("sync", None) => o.sync = true,
                ("dirsync", None) => o.dirsync = true,
                ("lazytime", None) => o.lazytime = true,
                ("strictatime", None) => o.atime = Atime::Strict,
                ("commit", _) => o.commit_secs = number()?,
                ("dirty_expire", Some("0")) => o.dirty_expire = Duration::ZERO,
                ("dirty_expire", _) => o.dirty_expire = Duration::from_secs(number()?.into()),
                ("cache", _) => o.cache_bytes = u64::from(number()?) << 20,
                ("cache_policy", Some(name)) => {
                    let policy: Result<PolicyKind, _> = name.parse();
                    o.cache_policy = policy.map_err(|e| e.to_string())?;
                }
                ("canary", Some(name)) => {
                    (find(name)?.set)(&mut spec);
                }
                (_, Some(value)) if stetfs::low::is_option(option) => {
                    o.journal = o.journal.with(option, value).map_err(|e| e.to_string())?;
                }
                _ => {
                    return Err(format!(
                        "there is no journal option {part:?}; there are {OPTIONS}"
                    ));
                }
            }
            spec.text = format!("{},{part}", spec.text);
        }
        Ok(spec)
    }
}

/// Largest region, bytes: each crash state has a copy.
const REGION_MAX: u64 = 64 << 20;

/// A case as work on a copy of `base`.
///
/// # Errors
/// The journal has no use for the region, or it is too large.
pub fn work_on(base: &Base, journal: &JournalSpec, shape: Shape, case: &Case) -> Result<Work> {
    let scripts = case
        .scripts
        .iter()
        .map(|ops| {
            Script::of(
                ops.iter().cloned(),
                shape.block.into(),
                journal.options.journal.data(),
            )
        })
        .collect();
    if let Some(bytes) = shape.region {
        check_region(&journal.options.journal).map_err(Error::msg)?;
        ensure!(
            bytes <= REGION_MAX,
            "a region has at most {REGION_MAX} bytes here"
        );
    }
    Ok(Work {
        region: shape.region,
        base: Base {
            image: Arc::new(able(base.image.fork(), shape.batches, shape.fua)),
            ..base.clone()
        },
        options: journal.options.clone(),
        before: vec![0; case.scripts.len()],
        scripts,
        promise: journal.promise,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use stetfs::low::{Composition, preset};

    use super::*;

    #[test]
    fn a_specification_is_read_and_shown() {
        let spec: JournalSpec = "data,async_commit,cache=8".parse().unwrap();
        assert_eq!(spec.options.journal.preset(), preset::DATA);
        assert!(spec.options.async_commit);
        assert_eq!(spec.options.cache_bytes, 8 << 20);
        assert_eq!(spec.to_string().parse(), Ok(spec));
        let spec: JournalSpec = "ldj,compress=zstd,chunk=64K".parse().unwrap();
        let journal: Composition = "ldj,compress=zstd,chunk=64K".parse().unwrap();
        assert_eq!(spec.options.journal, journal);
        assert_eq!(spec.to_string().parse(), Ok(spec));
        let wrong = |text: &str| text.parse::<JournalSpec>().unwrap_err();
        assert!(wrong("fast").contains("the presets are"));
        assert!(wrong("ordered,warp").contains("async_commit"));
        assert!(wrong("ordered,codec=jbd2,compress=lz4").contains("needs codec=frames"));
        assert!(wrong("ldj,compress=zip").contains("none, lz4, zstd or auto"));
        assert!(wrong("ldj,chunk=1").contains("from 4K"));
        assert!(wrong("ordered,canary=none").contains("canaries --list"));
        assert!(wrong("ordered,commit=x").contains("commit=N"));
    }
}
