//! The gain of TS-CLOCK over other policies, by translation layer of the card. The paper measured
//! times on cards whose layer is not known.

use anyhow::Result;
use stetfs_cache::PolicyKind;
use stetfs_flash::ftl::FtlKind;

use super::card::{Card, Runner, Target};
use super::compare::{Group, Says, below, beyond, median, nearness, row};
use super::matrix::{elapsed, erased, life_claims, named, time_claims};
use super::panel::{Panel, Parts, Series};
use super::points::{Point, Source, runs};
use super::scale::Scale;
use crate::generate::Workload;

pub(super) const SETUP: &str =
    "microSD card of 16 GiB, FAST and BAST with 1 to 8 log blocks, erase blocks of 4 MiB";

pub(super) const PAPER: &str = "\
times of two cards whose layer is not known: TS-CLOCK up to 30 % faster than Sp.Clock, with mixed up to 89.5 % (90.0 %) \
faster than the others; erase counts with FAST: its life up to 29 % longer than CFLRU's (mixed)";

/// The layers that are compared.
const LAYERS: [FtlKind; 5] = [
    FtlKind::Fast,
    FtlKind::Bast { logs: 1 },
    FtlKind::Bast { logs: 2 },
    FtlKind::Bast { logs: 4 },
    FtlKind::Bast { logs: 8 },
];

/// A gain of TS-CLOCK over another policy in percent.
#[derive(Clone, Copy)]
struct Gain {
    what: &'static str,
    of: fn(&Group<'_>) -> f64,
    /// Whether it has a panel.
    shown: bool,
}

fn less_time(group: &Group<'_>, than: PolicyKind) -> f64 {
    below(
        group.of(PolicyKind::TsClock, elapsed),
        group.of(than, elapsed),
    )
}

fn more_life(group: &Group<'_>, than: PolicyKind) -> f64 {
    beyond(
        group.of(PolicyKind::TsClock, erased),
        group.of(than, erased),
    )
}

const GAINS: [Gain; 5] = [
    Gain {
        what: "TS-CLOCK's time below Sp.Clock's",
        of: |g| less_time(g, PolicyKind::SpClock),
        shown: true,
    },
    Gain {
        what: "TS-CLOCK's time below lru's",
        of: |g| less_time(g, PolicyKind::Lru),
        shown: false,
    },
    Gain {
        what: "TS-CLOCK's time below fab's",
        of: |g| less_time(g, PolicyKind::Fab),
        shown: false,
    },
    Gain {
        what: "TS-CLOCK's time below lb-clock's",
        of: |g| less_time(g, PolicyKind::LbClock),
        shown: false,
    },
    Gain {
        what: "TS-CLOCK's life beyond cflru's",
        of: |g| more_life(g, PolicyKind::Cflru),
        shown: true,
    },
];

/// A layer, and the runs of all policies on it.
struct Measured<'a> {
    target: Target,
    groups: Vec<Group<'a>>,
}

impl<'a> Measured<'a> {
    fn new(target: Target, points: &'a [Point]) -> Measured<'a> {
        let groups = Group::all(points);
        Measured { target, groups }
    }

    /// The runs of a trace.
    fn of(&self, source: &Source) -> impl Iterator<Item = &Group<'a>> {
        let mine = |g: &&Group<'a>| g.place.workload == source.name();
        self.groups.iter().filter(mine)
    }
}

/// A panel of a gain on a trace: for each layer the medians of the seeds, of whole traces.
fn panel(source: &Source, gain: Gain, measured: &[Measured<'_>]) -> Panel {
    let series = measured.iter().map(|layer| {
        let groups: Vec<_> = layer.of(source).filter(|g| g.place.is_whole()).collect();
        let mut caches: Vec<u64> = groups.iter().map(|g| g.place.cache).collect();
        caches.sort_unstable();
        caches.dedup();
        let at = |cache: u64| {
            let same = groups.iter().filter(|g| g.place.cache == cache);
            let mut gains: Vec<f64> = same.map(|g| (gain.of)(g)).collect();
            gains.sort_by(f64::total_cmp);
            (cache as f64, median(&gains))
        };
        Series {
            name: layer.target.layer(),
            points: caches.into_iter().map(at).collect(),
        }
    });
    Panel {
        title: format!("{}: {}", source.name(), gain.what),
        axes: ["cache, MiB".into(), "by layer, %".into()],
        series: series.collect(),
        joined: true,
        logarithmic: true,
    }
}

/// The rows of a layer: the paper's claims on its traces, then the gains on each trace, then the
/// distance of each policy from the best.
fn rows(layer: &Measured<'_>, sources: &[Source]) -> Vec<[String; 3]> {
    let papers = Source::made(&Workload::ALL);
    let papers = papers.iter().flat_map(|source| layer.of(source));
    let papers: Vec<Group<'_>> = papers.cloned().collect();
    let mut rows: Vec<[String; 3]> = Vec::new();
    if !papers.is_empty() {
        rows.extend(time_claims(Card::Microsd, &papers));
        rows.extend(life_claims(Card::Microsd, &papers));
    }
    for source in sources {
        for gain in GAINS {
            let what = format!("{}: {}", source.name(), gain.what);
            // Some are claims of the paper.
            if rows.iter().all(|[told, ..]| *told != what) {
                rows.push(row(what, Says::Nothing, layer.of(source).map(gain.of)));
            }
        }
    }
    rows.extend(nearness(&layer.groups, "time", elapsed));
    named(layer.target, rows)
}

pub(super) fn compute(scale: &Scale) -> Result<Parts> {
    let mut sources = match scale.traces.as_slice() {
        [] => Source::made(&[&Workload::ALL[..], &Workload::HELD_OUT[..]].concat()),
        some => Source::made(some),
    };
    if let Some(dir) = &scale.recorded {
        sources.extend(Source::recorded(dir)?);
    }
    let mut points = Vec::new();
    for target in LAYERS.map(Target::card) {
        let sizes = scale.sizes(target);
        points.push((
            target,
            runs(target, &sources, &Runner::all(), &sizes, scale)?,
        ));
    }
    let measured = points
        .iter()
        .map(|(target, points)| Measured::new(*target, points));
    let measured: Vec<Measured<'_>> = measured.collect();
    let claims = measured.iter().flat_map(|layer| rows(layer, &sources));
    let shown = GAINS.into_iter().filter(|gain| gain.shown);
    let panels = sources
        .iter()
        .flat_map(|source| shown.clone().map(|gain| panel(source, gain, &measured)));
    Ok((claims.collect(), panels.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::points::timed;

    /// A panel has a curve for each layer, of the medians of the seeds.
    #[test]
    fn a_curve_is_of_medians() {
        let points = |times: [f64; 3]| {
            let mut points = Vec::new();
            for (seed, time) in (1..).zip(times) {
                for (policy, time) in [("ts-clock", time), ("sp-clock", 100.0)] {
                    let mut point = timed("mixed", 8, policy.into(), time);
                    point.place.seed = seed;
                    points.push(point);
                }
            }
            points
        };
        let measured = [
            (LAYERS[0], [90.0, 120.0, 110.0]),
            (LAYERS[1], [60.0, 80.0, 70.0]),
        ];
        let points = measured.map(|(layer, times)| (Target::card(layer), points(times)));
        let measured: Vec<Measured<'_>> = points
            .iter()
            .map(|(target, points)| Measured::new(*target, points))
            .collect();
        let sources = Source::made(&[Workload::Mixed]);
        let panel = panel(&sources[0], GAINS[0], &measured);
        let curves: Vec<(&str, i64)> = panel
            .series
            .iter()
            .map(|s| (s.name.as_str(), s.points[0].1.round() as i64))
            .collect();
        assert_eq!(curves, [("FAST", -10), ("BAST, 1 log block", 30)]);
        let rows = rows(&measured[1], &sources);
        let is =
            |r: &&[String; 3]| r[0] == "BAST, 1 log block, mixed: TS-CLOCK's time below Sp.Clock's";
        let found = rows.iter().find(is).map(|r| r[2].as_str());
        assert_eq!(found, Some("30.0 % (20.0 to 40.0; above 0 in 3 of 3)"));
    }
}
