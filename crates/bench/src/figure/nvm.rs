//! The figures of Han, "Design and Evaluation of a High-performance Journaling Scheme for
//! Non-volatile Memory", KCA 2020, figures 4 and 5: varmail, and creating files, with increasing
//! numbers of threads.

use std::path::Path;

use anyhow::Result;
use stetfs_testkit::Scratch;

use super::args::{FigureArgs, Spec};
use super::by_threads::{self, Library, Whole};
use super::ldj::peer;
use super::part::Part;
use crate::compare::{Beside, InMemory, KernelFs, PeerSpec, Work, Workload};

pub(super) const VARMAIL: &str = "\
figure 4 (24 cores, an NVMe SSD, 256 MB of memory as NVM): at 16 threads 2.9 times ext4 and 2.4 times inodes logged with a lock";

pub(super) const FILES: &str = "\
figure 5 (the same, 3 million files of 4 KiB): at most 157 MB/s for ext4, 184 for inodes logged with a lock, 310 for the paper's. \
Here threads have 2 cores.";

const JOURNAL: u32 = 128;
const THREADS: &[u32] = &[1, 2, 4, 8, 16];
const FEW_THREADS: &[u32] = &[1, 2, 4];
const SECONDS: u32 = 2;
const IMAGE_MIB: u64 = 2048;
/// 100,000 files of 16 KiB are 1.6 GB, 3 million of 4 KiB are 12 GB, and their inodes 0.8 GB.
const MAIL: Whole = Whole {
    image_mib: 4 << 10,
    mail_files: 100_000,
    made_files: 0,
    seconds: 5,
};
const MADE: Whole = Whole {
    image_mib: 16 << 10,
    mail_files: 0,
    made_files: 3_000_000,
    seconds: 600,
};

const ORDERED: &str = "ordered";
/// Journaling of blocks, in the same memory.
const BLOCKS: &str = "nvm,unit=block,sync=compound";
/// Journaling of inodes, written by one thread.
const INODES: &str = "nvm,unit=256,sync=compound";
/// Journaling of words, without records of files.
const WORDS: &str = "nvm,sync=compound";
const NVM: &str = "nvm";
const COLUMNS: [&str; 5] = [ORDERED, BLOCKS, INODES, WORDS, NVM];
/// The columns that are also mounted.
const MOUNTED: [&str; 3] = [ORDERED, BLOCKS, NVM];

/// The kernel's ext4: on the device; with its journal in memory; all in memory.
const KERNEL: [(&str, InMemory); 3] = [
    ("ext4 ordered", InMemory::Nothing),
    ("ext4, journal in memory", InMemory::Journal),
    ("ext4 in memory", InMemory::All),
];

/// A figure: the work, in the library and mounted.
#[derive(Clone, Copy)]
pub(super) struct Figure {
    works: &'static [Work],
    workload: Workload,
    whole: Whole,
}

pub(super) const FIGURE_4: Figure = Figure {
    works: &[Work::Varmail],
    workload: Workload::VarmailThreads,
    whole: MAIL,
};

pub(super) const FIGURE_5: Figure = Figure {
    works: &[Work::Files],
    workload: Workload::FilesThreads,
    whole: MADE,
};

/// The mounts, with regions of their own in `memory`.
fn spec(figure: Figure, memory: &Path, quick: bool) -> Result<Spec> {
    let mut stetfs = Vec::new();
    for (n, name) in MOUNTED.into_iter().enumerate() {
        let region = memory.join(n.to_string());
        std::fs::File::create(&region)?.set_len(256 << 20)?;
        let place = match name {
            ORDERED => String::new(),
            _ => format!(",nvm={}", region.display()),
        };
        stetfs.push(peer(
            name,
            &format!("journal={name}{place},io_uring=on"),
            JOURNAL,
        ));
    }
    Ok(Spec {
        kernel: KERNEL
            .map(|(name, memory)| PeerSpec {
                name: name.into(),
                journal_mib: Some(JOURNAL),
                memory,
                ..KernelFs::Ordered.into()
            })
            .into(),
        stetfs,
        workloads: vec![figure.workload],
        beside: vec![Beside::ALONE],
        image_mib: IMAGE_MIB,
        profile_seconds: Some(SECONDS),
        threads: Some(if quick { FEW_THREADS } else { THREADS }),
        flash: false,
    })
}

pub(super) fn measure(figure: Figure, args: &FigureArgs, stetfs: &Path) -> Result<Vec<Part>> {
    let memory = Scratch::in_memory("nvm")?;
    let spec = spec(figure, memory.path(), args.quick)?;
    let what = Library {
        columns: &COLUMNS,
        works: figure.works,
        journal_mib: JOURNAL,
        whole: Some(figure.whole),
    };
    by_threads::measure(args, stetfs, spec, &what)
}

/// The paper's claims at the most threads, with measured values.
pub(super) fn claims(figure: Figure, parts: &[Part]) -> Vec<[String; 3]> {
    let goals = [(ORDERED, 2.9), (INODES, 2.3)];
    let mut claims = Vec::new();
    for part in parts {
        let most = part.threads.and_then(|threads| threads.last());
        for (work, threads) in figure.works.iter().zip(most) {
            for (other, goal) in goals {
                let of = format!("{NVM} to {other}");
                let columns = [NVM, other];
                claims.extend(by_threads::claim(part, *work, *threads, columns, goal, &of));
            }
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

    use super::super::by_threads::{by_threads, named};
    use super::*;
    use crate::compare::{Report, Sizes};

    #[test]
    fn files_are_made_with_each_log() {
        let image = Image::make(64 << 20, &Mkfs::new().journal_mib(16)).unwrap();
        let fresh = MemDevice::load(image.path()).unwrap();
        let sizes = Sizes {
            threads: &[1, 2],
            names: 5,
            profile_seconds: 60,
            ..Sizes::quick()
        };
        let outcome =
            |journal: &&str| by_threads(Work::Files, &fresh, None, journal, &sizes).unwrap();
        let outcomes: BTreeMap<_, _> = COLUMNS
            .iter()
            .enumerate()
            .map(|(i, journal)| (i, vec![outcome(journal)]))
            .collect();
        let mut report = Report::new(&named(&COLUMNS), 1);
        report.add(Work::Files.title(), &outcomes);
        let part = Part {
            title: "library on memory".into(),
            report,
            threads: Some(&[1, 2]),
        };
        let claims = claims(FIGURE_5, &[part]);
        assert_eq!(claims.len(), 2);
        assert!(
            claims[0][0].contains("2 threads, nvm to ordered"),
            "{claims:?}"
        );
    }
}
