//! The figures of LDJ: Kang and others, ACM Transactions on Storage 2019; Kang's dissertation,
//! chapter 4.

use super::args::Spec;
use crate::compare::{Beside, PeerSpec, Workload};

pub(super) const SERVERS: &str = "\
figure 4, throughput by ordered mode's (OJ): varmail up to 8.3 (and up to 7.4 by data journaling's, DJ), all profiles faster on \
the disk; figure 5, PostMark (which it changed to sync the pool it starts with): LDJ as fast as OJ or faster on all devices; \
table 1, GB written, OJ / DJ / +async+lazy / LDJ: varmail NVMe 15.5 / 17.7 / 28.1 / 52.9, SSD 8.1 / 10.5 / 16.0 / 21.7, \
disk 0.9 / 1.8 / 2.3 / 1.8 (at different speeds), PostMark, the same work everywhere, SSD 16.4 / 31.1 / 30.8 / 29.8, disk \
16.2 / 31.2 / 30.9 / 29.8; table 2, packed to: varmail 0.12 in 107 µs a transaction, fileserver 0.007 in 109 ms, PostMark 0.59 \
in 169 µs";

pub(super) const APPLICATIONS: &str = "\
figure 6: LDJ faster than OJ on all devices in git (up to 51 %) and OLTP (up to 9.6 times; Sysbench on MySQL, with its double \
writes under OJ only), slower only when copying files that do not compress; table 1, GB written on the SSD, OJ / DJ / LDJ: git \
20.3 / 39.9 / 25.2, OLTP 12.1 / 11.8 / 9.0, copying 20.3 / 40.7 / 40.7; table 2, packed to: git 0.39 in 1.4 s a transaction, \
OLTP 0.37 in 153 µs, copying 0.94 in 393 ms";

pub(super) const JOURNAL_SIZE: &str = "\
figures 7 and 8: DJ and LDJ gain with the size of the journal, for checkpoints come later and bring each block home once; \
5 GB is the paper's size for LDJ, 128 MB the default";

pub(super) const RECOVERY: &str = "\
figure 9: a recovery under LDJ takes up to 47 times that of the other modes (126 times that of OJ), for it unpacks everything";

/// Journals of the default size, and of a size that makes checkpoints lazy, MiB.
const DEFAULT: u32 = 128;
const LARGE: u32 = 1024;

/// Seconds of a server profile: in shorter rounds checkpoints of the profile's initial files are
/// much of what is written.
const STEADY: u32 = 15;

pub(super) fn peer(name: &str, options: &str, journal_mib: u32) -> PeerSpec {
    PeerSpec {
        name: name.into(),
        options: options.into(),
        journal_mib: Some(journal_mib),
        ..PeerSpec::default()
    }
}

/// A mount of StetFS, over io_uring. Images that wait for a checkpoint take half the cache at most:
/// a large journal needs a large cache to be useful.
fn stetfs(name: &str, options: &str, journal_mib: u32) -> PeerSpec {
    let cache = if journal_mib >= LARGE {
        ",cache=1G"
    } else {
        ""
    };
    peer(name, &format!("{options},io_uring=on{cache}"), journal_mib)
}

/// OJ and DJ of the kernel, and the features of LDJ, added one after the other.
fn steps(workloads: Vec<Workload>) -> Spec {
    Spec {
        kernel: vec![
            peer("OJ: ext4 ordered", "data=ordered", DEFAULT),
            peer("DJ: ext4 journal", "data=journal", DEFAULT),
            peer("+lazy: ext4 journal", "data=journal", LARGE),
        ],
        stetfs: vec![
            stetfs("DJ: stetfs data", "journal=data", DEFAULT),
            stetfs("+async: one flush", "journal=ldj,compress=none", DEFAULT),
            stetfs("+lazy: large journal", "journal=ldj,compress=none", LARGE),
            stetfs("+CMP: LZ4", "journal=ldj,compress=lz4", DEFAULT),
            stetfs("LDJ: ldj", "journal=ldj,compress=lz4", LARGE),
            stetfs("ldj auto", "journal=ldj,compress=auto", LARGE),
        ],
        workloads,
        beside: vec![Beside::ALONE],
        image_mib: 3072,
        profile_seconds: Some(STEADY),
        threads: None,
        flash: false,
    }
}

pub(super) fn servers() -> Spec {
    steps(vec![
        Workload::Varmail,
        Workload::Fileserver,
        Workload::FileserverMf,
        Workload::Postmark,
    ])
}

pub(super) fn applications() -> Spec {
    steps(vec![
        Workload::GitClone,
        Workload::SqliteDelete,
        Workload::SqliteWal,
        Workload::Copy,
    ])
}

/// The OLTP comparison, with `direct_io`: whole page writes are promised to a database only if they
/// bypass the kernel's page cache; then its server need not write them twice or log images of them.
pub(super) fn oltp() -> Spec {
    let mut oltp = steps(vec![Workload::Oltp, Workload::Sysbench]);
    let by_file = stetfs(
        "+CMP, sync=file",
        "journal=ldj,compress=lz4,sync=file",
        DEFAULT,
    );
    oltp.stetfs.push(by_file);
    for peer in &mut oltp.stetfs {
        peer.options.push_str(",direct_io");
    }
    oltp
}

pub(super) fn journal_size() -> Spec {
    let sizes = [64, 256, 1024];
    Spec {
        kernel: [peer("ext4 ordered", "data=ordered", DEFAULT)]
            .into_iter()
            .chain(sizes.map(|mib| peer(&format!("ext4 journal {mib}"), "data=journal", mib)))
            .collect(),
        stetfs: sizes
            .map(|mib| stetfs(&format!("ldj {mib}"), "journal=ldj", mib))
            .into(),
        workloads: vec![Workload::Fileserver, Workload::Varmail],
        beside: vec![Beside::ALONE],
        image_mib: 3072,
        profile_seconds: Some(STEADY),
        threads: None,
        flash: false,
    }
}
