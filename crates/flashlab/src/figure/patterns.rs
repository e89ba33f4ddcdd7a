//! Figures 2-5 and 2-10: the writes of mixed applications behind the cache.

use anyhow::Result;
use stetfs_cache::PolicyKind;
use stetfs_flash::ftl::Geometry;

use super::panel::{Panel, Parts, Series};
use super::parallel::parallel;
use super::scale::Scale;
use crate::device::Device;
use crate::generate::Workload;
use crate::run::{Outcome, Setup, run};
use crate::trace::{Op, Trace};

pub(super) const SETUP: &str =
    "mixed, as the cache writes it (before any translation layer); cache and erase block 4 MiB";

pub(super) const UTILISATION: &str = "\
cache and erase block 4 MB: TS-CLOCK writes least, and most of it in groups of high utilisation";

pub(super) const PATTERNS: &str = "\
LRU and CFLRU write at random places; FAB and TS-CLOCK erase block by erase block, TS-CLOCK more in sequence; \
Sp.Clock nearly all in sequence, \
over the whole range";

/// Size of the cache in bytes.
const CACHE: u64 = 4 << 20;

fn trace(scale: &Scale) -> Trace {
    Workload::Mixed.generate(scale.seed, if scale.quick { 0.25 } else { 1.0 })
}

/// Runs a trace on a device that is never full; only the written pages are used.
fn one(trace: &Trace, policy: PolicyKind) -> Result<(Outcome, Vec<u64>)> {
    let setup = Setup {
        capacity: 1 << 30,
        ageing: None,
        ..Setup::microsd(policy, CACHE)
    };
    let geometry = Geometry::new(setup.capacity, setup.erase_block, setup.spare)?;
    let mut device = Device::new(setup.ftl.make(geometry), setup.medium);
    device.keep_log();
    let outcome = run(trace, &setup, &mut device, &mut |_| ())?;
    let log = device.log().to_vec();
    Ok((outcome, log))
}

pub(super) fn utilisation(scale: &Scale) -> Result<Parts> {
    let trace = trace(scale);
    let outcomes = parallel(&PolicyKind::ALL, |policy| Ok(one(&trace, *policy)?.0))?;
    let series = outcomes.iter().map(|o| Series {
        name: o.policy.to_owned(),
        points: (1..)
            .zip(o.device.utilisation)
            .map(|(tenth, pages)| (f64::from(10 * tenth), pages as f64 / 1000.0))
            .collect(),
    });
    let panel = Panel {
        title: "mixed: pages written in groups of a utilisation".into(),
        axes: ["utilisation up to, %".into(), "thousand pages".into()],
        series: series.collect(),
        joined: true,
        logarithmic: false,
    };
    let claims = outcomes.iter().map(|o| {
        [
            format!("{}: pages written, pages a group", o.policy),
            "-".into(),
            format!(
                "{}, {:.1}",
                o.cache.writes,
                o.cache.writes as f64 / o.device.groups.max(1) as f64
            ),
        ]
    });
    Ok((claims.collect(), vec![panel]))
}

/// Points of a cloud. Consecutive pages show sequential writes; an equally spaced sample would not.
const POINTS: usize = 4000;

pub(super) fn patterns(scale: &Scale) -> Result<Parts> {
    let trace = trace(scale);
    let cloud = |name: &str, pages: &[u64]| {
        let first = pages.len().saturating_sub(POINTS) / 2;
        let points = pages.iter().enumerate().skip(first).take(POINTS);
        Panel {
            title: format!("{name}: {POINTS} of {} pages", pages.len()),
            axes: ["pages written".into(), "place, MiB".into()],
            series: vec![Series {
                name: name.to_owned(),
                points: points
                    .map(|(i, page)| (i as f64, *page as f64 / 256.0))
                    .collect(),
            }],
            joined: false,
            logarithmic: false,
        }
    };
    let writes = trace.requests.iter().filter(|r| r.op == Op::Write);
    let before: Vec<u64> = writes
        .flat_map(|r| r.page..r.page + u64::from(r.pages))
        .collect();
    let mut panels = vec![cloud("before the cache", &before)];
    let mut claims = vec![pattern("before the cache", &before)];
    let policies = [
        PolicyKind::Lru,
        PolicyKind::Cflru,
        PolicyKind::Fab,
        PolicyKind::SpClock,
        PolicyKind::TsClock,
    ];
    for (policy, (_, log)) in policies
        .iter()
        .zip(parallel(&policies, |policy| one(&trace, *policy))?)
    {
        panels.push(cloud(policy.name(), &log));
        claims.push(pattern(policy.name(), &log));
    }
    Ok((claims, panels))
}

/// The sequential part of the pages, as a row.
fn pattern(name: &str, pages: &[u64]) -> [String; 3] {
    let pairs = pages.windows(2);
    let part = |n: usize| 100.0 * n as f64 / pages.len().max(1) as f64;
    let next = part(pairs.clone().filter(|p| p[1] == p[0] + 1).count());
    let rising = part(pairs.filter(|p| p[1] > p[0]).count());
    [
        format!("{name}: pages written, next to the one before, above it"),
        "-".into(),
        format!("{}, {next:.0} %, {rising:.0} %", pages.len()),
    ]
}
