//! Figures 2-4, 2-6, 2-7, 2-8 and 2-9: every workload, policy and size of the cache.

use anyhow::Result;
use stetfs_cache::PolicyKind;

use super::{Panel, Parts, Scale, Series, parallel};
use crate::command::bar;
use crate::device::Device;
use crate::generate::Workload;
use crate::run::{Outcome, Setup, run};
use crate::trace::Trace;

pub(super) const MICROSD: &str = "\
TS-CLOCK outperforms the others by 12.8 % (15.3 %) on average with video, by up to 89.5 % (90.0 %) with \
mixed; all but FAB and LB-CLOCK, \
which are slightly faster with lower hit ratios, by up to 78.1 % with the file server and 65.6 % with TPC-C; \
hit ratios like the \
traditional ones'. In the abstract: up to 30 % faster than Sp.Clock";

pub(super) const SSD: &str = "\
TS-CLOCK up to 11.8 % faster than Sp.Clock with video; all alike with mixed; TS-CLOCK best in all cases with \
the file server (9.3 % on average) \
and TPC-C (14.2 %), CFLRU near, FAB and LB-CLOCK much worse";

pub(super) const REQUESTS: &str =
    "FAB and LB-CLOCK have the most requests in all cases; TS-CLOCK and CFLRU write least";

pub(super) const ERASES_FAST: &str =
    "TS-CLOCK's life is longest in all cases: up to 29 % longer than CFLRU's (mixed)";

pub(super) const ERASES_PAGE: &str =
    "TS-CLOCK's life is longest in all cases: up to 53 % longer than FAB's (TPC-C)";

/// The devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Card {
    Microsd,
    Ssd,
}

impl Card {
    fn setup(self, policy: PolicyKind, cache: u64) -> Setup {
        match self {
            Card::Microsd => Setup::microsd(policy, cache),
            Card::Ssd => Setup::ssd(policy, cache),
        }
    }

    /// Sizes of the cache, MiB.
    fn sizes(self, quick: bool) -> Vec<u64> {
        let sizes = match self {
            Card::Microsd => [4, 8, 16, 32, 64],
            Card::Ssd => [32, 64, 128, 256, 512],
        };
        match quick {
            false => sizes.to_vec(),
            true => vec![sizes[0], sizes[2]],
        }
    }
}

/// What came out of one workload, by policy and size.
pub(super) struct Column {
    workload: Workload,
    sizes: Vec<u64>,
    outcomes: Vec<(PolicyKind, u64, Outcome)>,
}

impl Column {
    fn of(&self, policy: PolicyKind, size: u64) -> Option<&Outcome> {
        let mut all = self.outcomes.iter();
        all.find(|(p, s, _)| *p == policy && *s == size)
            .map(|(_, _, o)| o)
    }

    fn panel(&self, what: &str, value: impl Fn(&Outcome) -> f64) -> Panel {
        let series = PolicyKind::ALL.map(|policy| Series {
            name: policy.name().to_owned(),
            points: self
                .sizes
                .iter()
                .filter_map(|size| Some((*size as f64, value(self.of(policy, *size)?))))
                .collect(),
        });
        Panel {
            title: format!("{}: {what}", self.workload.name()),
            axes: ["cache, MiB".into(), what.to_owned()],
            series: series.into(),
            joined: true,
            logarithmic: true,
        }
    }

    /// By how much less of `value` `ours` has than `theirs`, at the size where it is most: percent, and that size.
    fn gain(
        &self,
        ours: PolicyKind,
        theirs: PolicyKind,
        value: impl Fn(&Outcome) -> f64,
    ) -> Option<(f64, u64)> {
        let at = |size: &u64| {
            let (ours, theirs) = (value(self.of(ours, *size)?), value(self.of(theirs, *size)?));
            Some((100.0 * (1.0 - ours / theirs), *size))
        };
        let gains = self.sizes.iter().filter_map(at);
        gains.max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// The part of the paper's length that a first look runs.
fn part(workload: Workload) -> f64 {
    match workload {
        Workload::Video | Workload::Mixed => 0.5,
        Workload::Dbench => 0.05,
        Workload::Tpcc => 0.1,
    }
}

fn columns(card: Card, workloads: &[Workload], scale: Scale) -> Result<Vec<Column>> {
    let sizes = card.sizes(scale.quick);
    let aged = card.setup(PolicyKind::default(), 0).device()?;
    let mut columns = Vec::new();
    for workload in workloads.iter().copied() {
        let part = if scale.quick { part(workload) } else { 1.0 };
        let trace = workload.generate(scale.seed, part);
        let outcomes = column(card, &trace, workload, &sizes, &aged)?;
        columns.push(Column {
            workload,
            sizes: sizes.clone(),
            outcomes,
        });
    }
    Ok(columns)
}

fn column(
    card: Card,
    trace: &Trace,
    workload: Workload,
    sizes: &[u64],
    aged: &Device,
) -> Result<Vec<(PolicyKind, u64, Outcome)>> {
    let jobs: Vec<(PolicyKind, u64)> = sizes
        .iter()
        .flat_map(|size| PolicyKind::ALL.map(|policy| (policy, *size)))
        .collect();
    let bar = bar(trace.pages() * jobs.len() as u64, workload.name());
    let outcomes = parallel(&jobs, |(policy, size)| {
        let setup = card.setup(*policy, size << 20);
        let outcome = run(trace, &setup, &mut aged.duplicate(), &mut |n| bar.inc(n))?;
        Ok((*policy, *size, outcome))
    });
    bar.finish_and_clear();
    outcomes
}

fn elapsed(outcome: &Outcome) -> f64 {
    outcome.device.elapsed as f64 / 1e9
}

fn erased(outcome: &Outcome) -> f64 {
    outcome.device.flash.erases as f64
}

/// Figures 2-4 and 2-6.
pub(super) fn times(card: Card, scale: Scale) -> Result<Parts> {
    let columns = columns(card, &Workload::ALL, scale)?;
    let mut panels = Vec::new();
    for column in &columns {
        panels.push(column.panel("elapsed time, s", elapsed));
        panels.push(column.panel("hit ratio, %", |o| 100.0 * o.hit_ratio));
    }
    let mut claims = Vec::new();
    for column in &columns {
        let gain = column.gain(PolicyKind::TsClock, PolicyKind::SpClock, elapsed);
        let paper = match (card, column.workload) {
            (Card::Ssd, Workload::Video) => "11.8 %",
            (Card::Ssd, _) => "-",
            (Card::Microsd, _) => "30 % on one",
        };
        claims.push(claim(
            format!(
                "{}: TS-CLOCK's time below Sp.Clock's, at most",
                column.workload.name()
            ),
            paper,
            gain,
        ));
    }
    claims.extend(nearness(&columns, "time", elapsed));
    Ok((claims, panels))
}

fn claim(what: String, paper: &str, gain: Option<(f64, u64)>) -> [String; 3] {
    let ours = gain.map_or_else(String::new, |(percent, size)| {
        format!("{percent:.1} % at {size} MiB")
    });
    [what, paper.to_owned(), ours]
}

/// How far each policy is from the best one at worst.
fn nearness(columns: &[Column], what: &str, value: impl Fn(&Outcome) -> f64) -> Vec<[String; 3]> {
    let of = |policy: PolicyKind| {
        let mut worst = (0.0, String::new());
        for column in columns {
            for size in &column.sizes {
                let values = PolicyKind::ALL.map(|p| column.of(p, *size).map(&value));
                let best = values.into_iter().flatten().fold(f64::INFINITY, f64::min);
                let ours = column.of(policy, *size).map_or(f64::NAN, &value);
                let behind = 100.0 * (ours / best - 1.0);
                if behind > worst.0 {
                    worst = (behind, format!("{}, {size} MiB", column.workload.name()));
                }
            }
        }
        [
            format!("{policy}: {what} behind the best, at worst"),
            "-".into(),
            format!("{:.1} % {}", worst.0, worst.1),
        ]
    };
    PolicyKind::ALL.map(of).into()
}

/// Figure 2-7.
pub(super) fn requests(scale: Scale) -> Result<Parts> {
    let columns = columns(Card::Ssd, &[Workload::Dbench], scale)?;
    let mib = |pages: u64| pages as f64 / 256.0;
    let mut panels = Vec::new();
    let mut claims = Vec::new();
    for column in &columns {
        panels.push(column.panel("read, MiB", |o| mib(o.cache.reads)));
        panels.push(column.panel("written, MiB", |o| mib(o.cache.writes)));
        for size in &column.sizes {
            let mut order: Vec<(u64, PolicyKind)> = PolicyKind::ALL
                .into_iter()
                .filter_map(|p| Some((column.of(p, *size)?.cache.writes, p)))
                .collect();
            order.sort_by_key(|(writes, _)| *writes);
            let names: Vec<&str> = order.iter().map(|(_, p)| p.name()).collect();
            claims.push([
                format!("{size} MiB: from the least written to the most"),
                "ts-clock and cflru … fab and lb-clock".into(),
                names.join(" "),
            ]);
        }
    }
    Ok((claims, panels))
}

/// Figures 2-8 and 2-9.
pub(super) fn erases(card: Card, scale: Scale) -> Result<Parts> {
    let columns = columns(card, &Workload::ALL, scale)?;
    let panels = columns.iter().map(|c| c.panel("erases", erased)).collect();
    let (rival, best, paper) = match card {
        Card::Microsd => (PolicyKind::Cflru, Workload::Mixed, "29 %"),
        Card::Ssd => (PolicyKind::Fab, Workload::Tpcc, "53 %"),
    };
    let mut claims = Vec::new();
    for column in &columns {
        // Life goes with one over the erasures.
        let life = |size: &u64| {
            let [ours, theirs] =
                [PolicyKind::TsClock, rival].map(|p| column.of(p, *size).map(erased));
            Some((100.0 * (theirs? / ours? - 1.0), *size))
        };
        let gain = column.sizes.iter().filter_map(life);
        claims.push(claim(
            format!(
                "{}: TS-CLOCK's life beyond {rival}'s, at most",
                column.workload.name()
            ),
            if column.workload == best {
                paper
            } else {
                "less"
            },
            gain.max_by(|a, b| a.0.total_cmp(&b.0)),
        ));
    }
    claims.extend(nearness(&columns, "erases", erased));
    Ok((claims, panels))
}
