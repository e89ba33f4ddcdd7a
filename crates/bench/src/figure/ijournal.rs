//! iJournaling: Park and Shin, USENIX ATC 2017.

use super::Spec;
use super::ldj::peer;
use crate::compare::Workload;

pub(super) const FSYNC: &str = "\
figure 6 (a), fsync of 80 KB beside a writer at 400 MB/s on an SSD: p95 above 3.5 s with normal journaling, below 0.2 s with \
iJournaling; figure 7: it stays short whatever the writer's rate; figure 9, 4 KiB and fsync in 1 to 8 threads: one lane per core \
scales with the cores on a memory disk, and up to four on an NVMe SSD";

/// MiB.
const JOURNAL: u32 = 128;

pub(super) fn fsync() -> Spec {
    Spec {
        title: "",
        kernel: vec![
            peer("ext4 ordered", "data=ordered", JOURNAL),
            peer("ext4 journal", "data=journal", JOURNAL),
        ],
        stetfs: vec![
            peer("ordered", "journal=ordered,io_uring=on", JOURNAL),
            peer("ldj", "journal=ldj,io_uring=on", JOURNAL),
            peer("ijournal", "journal=ijournal,io_uring=on", JOURNAL),
            peer(
                "ijournal, 1 lane",
                "journal=ijournal,lanes=1,io_uring=on",
                JOURNAL,
            ),
            peer(
                "ldj, sync=file",
                "journal=ldj,sync=file,io_uring=on",
                JOURNAL,
            ),
        ],
        workloads: vec![
            Workload::AppendFsync,
            Workload::FsyncBeside,
            Workload::FsyncThreads,
        ],
        image_mib: 3072,
    }
}
