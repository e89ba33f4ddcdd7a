//! The figures of iJournaling: Park and Shin, USENIX ATC 2017.

use super::args::Spec;
use super::ldj::peer;
use crate::compare::{Beside, KernelFs, PeerSpec, Workload};

pub(super) const FSYNC: &str = "\
figure 6 (a), fsync of 80 KB beside a writer at 400 MB/s on an SSD: p95 above 3.5 s with normal journaling, below 0.2 s with \
iJournaling; figure 7: it stays short whatever the writer's rate";

pub(super) const THREADS: &str = "\
figure 9, 4 KiB and fsync in 1 to 8 threads: one lane per core scales with the cores on a memory disk, and up to four on an NVMe SSD";

pub(super) const APPLICATIONS: &str = "\
figure 10 (phone): Mobibench's thousand SQLite transactions gain in WAL mode, more in rollback mode, most beside a writer at 30 MB/s; \
figure 11 (d): TPC-C, YCSB A (56 % less written to the journal) and varmail gain alone, varmail more beside a writer at 200 MB/s";

/// Size of the journal, MiB.
const JOURNAL: u32 = 128;

/// The kernel's peers.
fn kernel() -> Vec<PeerSpec> {
    [KernelFs::Ordered, KernelFs::FastCommit, KernelFs::Xfs]
        .map(|fs| PeerSpec {
            journal_mib: Some(JOURNAL),
            ..fs.into()
        })
        .into()
}

/// StetFS's presets, over io_uring.
fn presets(options: &[&str]) -> Vec<PeerSpec> {
    let spec = |o: &&str| {
        peer(
            &o.replace(',', ", "),
            &format!("journal={o},io_uring=on"),
            JOURNAL,
        )
    };
    options.iter().map(spec).collect()
}

pub(super) fn fsync() -> Spec {
    Spec {
        kernel: kernel(),
        stetfs: presets(&[
            "ordered",
            "ldj",
            "ijournal",
            "ijournal,direct_io",
            "ldj,sync=file",
        ]),
        workloads: vec![Workload::PausedFsync],
        beside: vec![
            Beside::ALONE,
            Beside::in_place(200),
            Beside::in_place(500),
            Beside::appending(200),
            Beside::appending(500),
        ],
        image_mib: 3072,
        profile_seconds: None,
        threads: None,
        flash: false,
    }
}

pub(super) fn threads() -> Spec {
    Spec {
        kernel: kernel(),
        stetfs: presets(&["ordered", "ijournal,records=1", "ijournal", "ldj,sync=file"]),
        workloads: vec![Workload::AppendFsync, Workload::FsyncThreads],
        beside: vec![Beside::ALONE],
        image_mib: 2048,
        profile_seconds: None,
        threads: None,
        flash: false,
    }
}

pub(super) fn applications() -> Spec {
    Spec {
        kernel: kernel(),
        stetfs: presets(&["ordered", "ijournal", "ldj,sync=file"]),
        workloads: vec![
            Workload::SqliteDelete,
            Workload::SqliteTruncate,
            Workload::SqliteWal,
            Workload::Ycsb,
            Workload::Tpcc,
            Workload::Varmail,
        ],
        beside: vec![Beside::ALONE, Beside::appending(200)],
        image_mib: 3072,
        profile_seconds: None,
        threads: None,
        flash: false,
    }
}
