//! The figures of Z-Journal: Kim, Kim, Hwang, Park and Lee, USENIX ATC 2021. The same work with
//! increasing numbers of threads.

use std::path::Path;

use anyhow::Result;

use super::args::{FigureArgs, Spec};
use super::by_threads::{self, Library};
use super::ldj::peer;
use super::part::Part;
use crate::compare::{Beside, KernelFs, PeerSpec, Work, Workload};

pub(super) const PAPER: &str = "\
figures 6, 9, 10 and 11 (80 cores, NVMe, data journaling): at 80 cores overwriting by 41 times, appending by 3.3 times as fast as \
ext4, fsync 70 % in the mean, creating, renaming and unlinking 24 to 42 %; fileserver by 315 %, varmail by 58 %. Here there are \
fewer processors than threads: what is seen is whether lanes cost anything, and what syncs at the same time share.";

/// Size of the journal, MiB.
const JOURNAL: u32 = 128;
const THREADS: &[u32] = &[1, 2, 4, 8, 16];
const FEW_THREADS: &[u32] = &[1, 2, 4];
/// Seconds for each number of threads.
const SECONDS: u32 = 2;
const IMAGE_MIB: u64 = 1024;

/// The columns of StetFS: values of `journal=`.
const ORDERED: &str = "ordered";
const DATA: &str = "data";
const ONE_LANE: &str = "zjournal,lanes=1";
const LANES: &str = "zjournal";
const LANES_DATA: &str = "zjournal,data=journal";
const COLUMNS: [&str; 5] = [ORDERED, DATA, ONE_LANE, LANES, LANES_DATA];

const LIBRARY: Library = Library {
    columns: &COLUMNS,
    works: &Work::ALL,
    journal_mib: JOURNAL,
    whole: None,
};

/// The goals of lanes: the lowest acceptable ratio for one client, and the gain for a few clients
/// over the kernel's ext4.
const ALONE: f64 = 0.97;
const TOGETHER: f64 = 1.5;

fn spec(quick: bool) -> Spec {
    let column = |name: &&str| peer(name, &format!("journal={name},io_uring=on"), JOURNAL);
    Spec {
        kernel: vec![PeerSpec {
            journal_mib: Some(JOURNAL),
            ..KernelFs::Ordered.into()
        }],
        stetfs: COLUMNS.iter().map(column).collect(),
        workloads: vec![
            Workload::CreateThreads,
            Workload::FsyncThreads,
            Workload::OverwriteThreads,
            Workload::VarmailThreads,
        ],
        beside: vec![Beside::ALONE],
        image_mib: IMAGE_MIB,
        profile_seconds: Some(SECONDS),
        threads: Some(if quick { FEW_THREADS } else { THREADS }),
        flash: false,
    }
}

pub(super) fn measure(args: &FigureArgs, stetfs: &Path) -> Result<Vec<Part>> {
    by_threads::measure(args, stetfs, spec(args.quick), &LIBRARY)
}

/// The claims about lanes, with goals and measured values.
pub(super) fn claims(parts: &[Part]) -> Vec<[String; 3]> {
    let mut claims = Vec::new();
    let mut claim = |part: &Part, work: Work, threads, columns: [&str; 2], goal: f64| {
        let of = format!("to {}", columns[1]);
        claims.extend(by_threads::claim(part, work, threads, columns, goal, &of));
    };
    for part in parts {
        for work in Work::ALL {
            claim(part, work, 1, [LANES, ORDERED], ALONE);
            claim(part, work, 1, [LANES_DATA, DATA], ALONE);
        }
        for threads in [2, 4] {
            claim(
                part,
                Work::Append,
                threads,
                [LANES, "ext4 ordered"],
                TOGETHER,
            );
        }
    }
    claims
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use stetfs::low::MemDevice;
    use stetfs_testkit::{Image, Mkfs};

    use super::super::by_threads::{by_threads, curves, named};
    use super::super::part::Figure;
    use super::*;
    use crate::compare::{Report, Sizes};

    #[test]
    fn files_made_in_the_library_give_curves_and_claims() {
        let image = Image::make(64 << 20, &Mkfs::new().journal_mib(16)).unwrap();
        let fresh = MemDevice::load(image.path()).unwrap();
        let sizes = Sizes {
            threads: &[1, 2],
            names: 5,
            profile_seconds: 60,
            ..Sizes::quick()
        };
        let mut outcomes = BTreeMap::new();
        for (i, journal) in COLUMNS.into_iter().enumerate() {
            let outcome = by_threads(Work::Create, &fresh, None, journal, &sizes).unwrap();
            assert_eq!(outcome.len(), 2, "{journal}");
            assert_eq!(outcome[1].title, "create, 2 threads");
            assert!(
                outcome
                    .iter()
                    .all(|m| m.value > 0.0 && m.below.waits.is_some())
            );
            outcomes.insert(i, vec![outcome]);
        }
        let mut report = Report::new(&named(&COLUMNS), 1);
        report.add(Work::Create.title(), &outcomes);
        let part = Part {
            title: "library on memory".into(),
            report,
            threads: Some(&[1, 2]),
        };
        let claims = claims(std::slice::from_ref(&part));
        assert_eq!(claims.len(), 2, "{claims:?}");
        assert_eq!(
            claims[0][0],
            "library on memory: create, 1 thread, to ordered"
        );
        let figure = Figure {
            name: "zjournal".into(),
            paper: PAPER,
            quick: true,
            claims,
            parts: vec![part],
        };
        let curves = curves(&figure, &figure.parts[0], &[1, 2]).unwrap();
        for said in ["create, /s", LANES_DATA, "does not count"] {
            assert!(curves.contains(said), "{said}");
        }
        let text = figure.text();
        assert!(
            text.contains("≥ ×0.97") && text.contains("does not count"),
            "{text}"
        );
    }
}
