//! The system under test: a journal preset with its options, on a volume of some shape.

mod options;
mod spec;

use std::sync::{Arc, OnceLock};

use anyhow::{Error, Result, ensure};
use stetfs::low::check_region;

pub use self::options::usages;
pub use self::spec::{JournalSpec, Shape};
use crate::volume::{Base, able};
use crate::work::Work;
use crate::workload::{Case, Script};

/// Largest region, bytes; each crash state has a copy of it.
const REGION_MAX: u64 = 64 << 20;

/// Work on a copy of `base` for a case.
///
/// # Errors
/// The journal cannot use a region, or the region is too large.
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
        rest: OnceLock::new(),
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
        assert!(wrong("ordered,commit=x").contains("commit must be a number of seconds"));
        assert!(wrong("ordered,cache=0").contains("MiB"));
        assert!(wrong("ordered,errors=panic").contains("errors must be continue or remount-ro"));
        assert!(wrong("ordered,strictatim").contains("did you mean strictatime?"));
        for decided_here in ["ro", "epoch=5", "offset=1M", "journal=ldj"] {
            let why = wrong(&format!("ordered,{decided_here}"));
            assert!(why.contains("there is no journal option"), "{why}");
        }
    }

    /// Options of a journal go together whatever their order, as on a mount.
    #[test]
    fn the_journal_is_put_together_at_the_end() {
        let one: JournalSpec = "ordered,codec=frames,sync=file".parse().unwrap();
        let other: JournalSpec = "ordered,sync=file,codec=frames".parse().unwrap();
        assert_eq!(one.options, other.options);
        // On the way there, file records would be in jbd2's log.
        let back: JournalSpec = "ordered,codec=jbd2,sync=file,codec=frames".parse().unwrap();
        assert_eq!(back.options, one.options);
    }
}
