//! LDJ: Kang and others, ACM Transactions on Storage 2019; Kang's dissertation, chapter 4.

use super::Spec;
use crate::compare::{PeerSpec, Workload};

pub(super) const SERVERS: &str = "\
figure 4, throughput by ordered mode's (OJ): varmail up to 8.3 (and up to 7.4 by data journaling's, DJ), all profiles faster on \
the disk; table 1, GB written, OJ / DJ / +async+lazy / LDJ: varmail NVMe 15.5 / 17.7 / 28.1 / 52.9, SSD 8.1 / 10.5 / 16.0 / 21.7, \
disk 0.9 / 1.8 / 2.3 / 1.8 (at different speeds); table 2, packed to: varmail 0.12 in 107 µs a transaction, fileserver 0.007 in 109 ms";

pub(super) const APPLICATIONS: &str = "\
figure 6: LDJ faster than OJ on all devices in git and OLTP, slower only when copying files that do not compress; table 1, GB \
written, OJ / DJ / LDJ: git 20.3 / 39.9 / 25.2, OLTP 12.1 / 11.8 / 9.0, copying 20.3 / 40.7 / 40.7; table 2, packed to: git 0.39, \
OLTP 0.37, copying 0.94";

pub(super) const JOURNAL_SIZE: &str = "\
figures 7 and 8: DJ and LDJ gain with the size of the journal, for checkpoints come later and bring each block home once; \
5 GB is the paper's size for LDJ, 128 MB the default";

pub(super) const RECOVERY: &str = "\
figure 9: a recovery under LDJ takes up to 47 times that of the other modes (126 times that of OJ), for it unpacks everything";

/// Journals of the default size and of one that makes checkpoints lazy, MiB.
const DEFAULT: u32 = 128;
const LARGE: u32 = 1024;

fn peer(name: &str, options: &str, journal_mib: u32) -> PeerSpec {
    PeerSpec {
        name: name.into(),
        options: options.into(),
        journal_mib: Some(journal_mib),
    }
}

/// OJ and DJ of the kernel, and what LDJ is made of, one after the other.
fn steps(workloads: Vec<Workload>) -> Spec {
    Spec {
        kernel: vec![
            peer("OJ: ext4 ordered", "data=ordered", DEFAULT),
            peer("DJ: ext4 journal", "data=journal", DEFAULT),
            peer("+lazy: ext4 journal", "data=journal", LARGE),
        ],
        stetfs: vec![
            peer("DJ: stetfs data", "journal=data", DEFAULT),
            peer("+async: one flush", "journal=ldj,compress=none", DEFAULT),
            peer("+lazy: large journal", "journal=ldj,compress=none", LARGE),
            peer("+CMP: LZ4", "journal=ldj,compress=lz4", DEFAULT),
            peer("LDJ: ldj", "journal=ldj,compress=lz4", LARGE),
            peer("ldj auto", "journal=ldj,compress=auto", LARGE),
        ],
        workloads,
        image_mib: 3072,
    }
}

pub(super) fn servers() -> Spec {
    steps(vec![Workload::Varmail, Workload::Fileserver])
}

pub(super) fn applications() -> Spec {
    steps(vec![
        Workload::GitClone,
        Workload::SqliteDelete,
        Workload::SqliteWal,
        Workload::Stream,
    ])
}

pub(super) fn journal_size() -> Spec {
    let sizes = [64, 256, 1024];
    Spec {
        kernel: [peer("ext4 ordered", "data=ordered", DEFAULT)]
            .into_iter()
            .chain(sizes.map(|mib| peer(&format!("ext4 journal {mib}"), "data=journal", mib)))
            .collect(),
        stetfs: sizes
            .map(|mib| peer(&format!("ldj {mib}"), "journal=ldj", mib))
            .into(),
        workloads: vec![Workload::Fileserver, Workload::Varmail],
        image_mib: 3072,
    }
}
