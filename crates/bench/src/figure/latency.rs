//! Latency independent of the server's running time (decisions/0014).

use super::args::Spec;
use super::ldj::peer;
use crate::compare::{Beside, KernelFs, PeerSpec, Workload};

pub(super) const GOAL: &str =
    "p99 at most 1.2 times that of the kernel's ext4, after a mount and later";

/// Size of the journal, MiB.
const JOURNAL: u32 = 128;
/// Length of "the first seconds".
const SECONDS: u32 = 10;

/// The comparison, with a cache that the work fills.
pub(super) fn steady() -> Spec {
    let stetfs = |name: &str, options: &str| {
        let options = format!("journal=ordered,cache=256M,{options}");
        peer(name, &options, JOURNAL)
    };
    Spec {
        kernel: vec![PeerSpec {
            journal_mib: Some(JOURNAL),
            ..KernelFs::Ordered.into()
        }],
        stetfs: vec![
            stetfs("io_uring", "io_uring=on"),
            stetfs("/dev/fuse", "io_uring=off"),
        ],
        workloads: vec![Workload::Steady],
        beside: vec![Beside::ALONE],
        image_mib: 3072,
        profile_seconds: Some(SECONDS),
        threads: None,
        flash: false,
    }
}
