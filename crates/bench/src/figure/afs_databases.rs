//! AFS, figure 3-8: MariaDB with and without its double writes, on mounts.

use super::args::Spec;
use super::ldj::peer;
use super::part::Part;
use crate::compare::{Beside, Workload};

pub(super) const DATABASES: &str = "\
figure 3-8: MySQL under SysBench and LinkBench; AFS without double writes 6.2 and 2.7 times as fast as double writes on ordered \
mode, with 16 times fewer flushes";

/// Size of the journal, MiB: it wraps in a run, as the default size does in minutes of work.
const JOURNAL: u32 = 16;
const IMAGE_MIB: u64 = 1024;

/// The column that writes pages twice, and the column that does not need to.
const TWICE: &str = "ext4 ordered, twice";
const SHARES: &str = "afs, once";

/// The goal where the relative cost of a flush is that in the paper.
const GOAL: f64 = 6.0;

pub(super) fn spec() -> Spec {
    let column = |name: &str, journal: &str, protects| {
        // A page is one transaction only if the kernel passes the write on unsplit.
        let options = format!("journal={journal},direct_io,io_uring=on");
        let mut peer = peer(name, &options, JOURNAL);
        peer.protects = protects;
        peer
    };
    Spec {
        kernel: vec![peer(TWICE, "data=ordered", JOURNAL)],
        stetfs: vec![
            column("ordered, twice", "ordered", None),
            column("data, once", "data", None),
            column("ordered, once: torn", "ordered", Some(false)),
            column(SHARES, "afs", None),
        ],
        workloads: vec![Workload::Sysbench, Workload::Linkbench],
        beside: vec![Beside::ALONE],
        image_mib: IMAGE_MIB,
        profile_seconds: None,
        threads: None,
        flash: true,
    }
}

/// The claims, with goals and measured values.
pub(super) fn claims(parts: &[Part]) -> Vec<[String; 3]> {
    let mut claims = Vec::new();
    for part in parts {
        for metric in &part.report.metrics {
            let of = |name: &str| {
                let at = part.report.targets.iter().position(|t| t == name)?;
                metric.values.get(at)
            };
            let (Some(once), Some(twice)) = (of(SHARES), of(TWICE)) else {
                continue;
            };
            let ratio = |ours: f64, other: f64| if other > 0.0 { ours / other } else { 0.0 };
            let fast = ratio(once.median, twice.median);
            let missed = if fast >= GOAL { "" } else { ", missed" };
            claims.push([
                format!("{}: {}, to {TWICE}", part.title, metric.title),
                format!("≥ ×{GOAL:.1}"),
                format!("×{fast:.2}{missed}"),
            ]);
            if let (Some(ours), Some(other)) = (once.device, twice.device) {
                claims.push([
                    format!("{}: {}, flushes, to {TWICE}", part.title, metric.title),
                    "the paper: ÷16".to_owned(),
                    format!("÷{:.2}", ratio(other.flushes, ours.flushes)),
                ]);
            }
        }
    }
    claims
}
