//! Figures 2-4, 2-6, 2-7, 2-8 and 2-9: all workloads, policies and cache sizes.

use anyhow::Result;
use stetfs_cache::PolicyKind;

use super::card::{Card, Runner, Target};
use super::compare::{Group, RIVALS, Says, Value, below, beyond, nearness, row};
use super::panel::{Panel, Parts, Series};
use super::points::{Point, Source, points, runs};
use super::scale::Scale;
use crate::generate::Workload;

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

pub(super) const HELD_OUT: &str = "nothing: these traces are ours";

/// The difference in percent up to which results count as alike; our choice for the paper's word.
const ALIKE: f64 = 5.0;

pub(super) fn elapsed(point: &Point) -> f64 {
    point.elapsed
}

pub(super) fn erased(point: &Point) -> f64 {
    point.erases as f64
}

/// A panel of the results with the first seed and whole traces.
fn panel(
    workload: &str,
    target: Target,
    groups: &[Group<'_>],
    seed: u64,
    (what, value): (&str, Value),
) -> Panel {
    let shown =
        |g: &&Group<'_>| g.place.workload == workload && g.place.seed == seed && g.place.is_whole();
    let mut groups: Vec<&Group<'_>> = groups.iter().filter(shown).collect();
    groups.sort_by_key(|g| g.place.cache);
    let series = PolicyKind::ALL.map(|policy| Series {
        name: policy.name().to_owned(),
        points: groups
            .iter()
            .map(|g| (g.place.cache as f64, g.of(policy, value)))
            .collect(),
    });
    Panel {
        title: format!("{workload}, {}: {what}", target.layer()),
        axes: ["cache, MiB".into(), what.to_owned()],
        series: series.into(),
        joined: true,
        logarithmic: true,
    }
}

/// A row over the groups of a workload, or of all workloads.
fn over(
    groups: &[Group<'_>],
    workload: Option<Workload>,
    what: &str,
    says: Says,
    percent: impl Fn(&Group<'_>) -> f64,
) -> [String; 3] {
    let name = workload.map_or("all", Workload::name);
    let mine = groups
        .iter()
        .filter(|g| workload.is_none() || g.place.workload == name);
    row(format!("{name}: {what}"), says, mine.map(percent))
}

/// Figures 2-4 and 2-6.
pub(super) fn times(target: Target, scale: &Scale) -> Result<Parts> {
    let points = points(target, &Workload::ALL, scale)?;
    let groups = Group::all(&points);
    let hits = |p: &Point| 100.0 * p.hit_ratio;
    let mut panels = Vec::new();
    for workload in Workload::ALL {
        let one = |what: (&str, Value)| panel(workload.name(), target, &groups, scale.seed, what);
        panels.push(one(("elapsed time, s", elapsed)));
        panels.push(one(("hit ratio, %", hits)));
    }
    let mut claims = time_claims(target.card, &groups);
    claims.extend(nearness(&groups, "time", elapsed));
    Ok((named(target, claims), panels))
}

/// The rows of a layer, with its name.
pub(super) fn named(target: Target, rows: Vec<[String; 3]>) -> Vec<[String; 3]> {
    let name =
        |[what, paper, ours]: [String; 3]| [format!("{}, {what}", target.layer()), paper, ours];
    rows.into_iter().map(name).collect()
}

/// The paper's claims about times.
pub(super) fn time_claims(card: Card, groups: &[Group<'_>]) -> Vec<[String; 3]> {
    let ours = |g: &Group<'_>| g.of(PolicyKind::TsClock, elapsed);
    let sp_clock = |g: &Group<'_>| below(ours(g), g.of(PolicyKind::SpClock, elapsed));
    let mean = |g: &Group<'_>| below(ours(g), g.mean(&RIVALS, elapsed));
    let best = |g: &Group<'_>| below(ours(g), g.best(&RIVALS, elapsed));
    let slowest = |g: &Group<'_>| below(ours(g), g.worst(&RIVALS, elapsed));
    let paged: Vec<PolicyKind> = RIVALS
        .into_iter()
        .filter(|p| !matches!(p, PolicyKind::Fab | PolicyKind::LbClock))
        .collect();
    let slowest_paged = |g: &Group<'_>| below(ours(g), g.worst(&paged, elapsed));
    let spread = |g: &Group<'_>| beyond(g.best(&RIVALS, elapsed), g.worst(&RIVALS, elapsed));
    let [video, mixed, dbench, tpcc] = Workload::ALL.map(Some);
    let than_sp_clock = "TS-CLOCK's time below Sp.Clock's";
    let than_mean = "TS-CLOCK's time below the others' mean";
    let than_best = "TS-CLOCK's time below the best other's";
    let than_slowest = "TS-CLOCK's time below the slowest other's";
    let but = "TS-CLOCK's time below the slowest other's but FAB and LB-CLOCK";
    let alike = "the slowest's time beyond the best's, without ours";
    let mut claims = match card {
        Card::Microsd => vec![
            over(groups, None, than_sp_clock, Says::UpTo(30.0), sp_clock),
            over(groups, None, than_sp_clock, Says::Always, sp_clock),
            over(groups, video, than_mean, Says::OnAverage(12.8), mean),
            over(groups, mixed, than_slowest, Says::UpTo(89.5), slowest),
            over(groups, dbench, but, Says::UpTo(78.1), slowest_paged),
            over(groups, tpcc, but, Says::UpTo(65.6), slowest_paged),
        ],
        Card::Ssd => vec![
            over(groups, None, than_sp_clock, Says::Always, sp_clock),
            over(groups, video, than_sp_clock, Says::UpTo(11.8), sp_clock),
            over(groups, mixed, alike, Says::Alike(ALIKE), spread),
            over(groups, dbench, than_best, Says::Always, best),
            over(groups, dbench, than_mean, Says::OnAverage(9.3), mean),
            over(groups, tpcc, than_best, Says::Always, best),
            over(groups, tpcc, than_mean, Says::OnAverage(14.2), mean),
        ],
    };
    for workload in Workload::ALL {
        let name = Some(workload);
        claims.push(over(groups, name, than_sp_clock, Says::Nothing, sp_clock));
    }
    claims
}

/// Figure 2-7.
pub(super) fn requests(scale: &Scale) -> Result<Parts> {
    let target = Target::usual(Card::Ssd);
    let points = points(target, &[Workload::Dbench], scale)?;
    let groups = Group::all(&points);
    let read = |p: &Point| p.read as f64 / 256.0;
    let written = |p: &Point| p.written as f64 / 256.0;
    let name = Workload::Dbench.name();
    let one = |what: (&str, Value)| panel(name, target, &groups, scale.seed, what);
    let panels = vec![one(("read, MiB", read)), one(("written, MiB", written))];
    let whole = |g: &&Group<'_>| g.place.seed == scale.seed && g.place.is_whole();
    let order = groups.iter().filter(whole).map(|group| {
        let mut order = PolicyKind::ALL.map(|p| (group.of(p, written), p.name()));
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        [
            format!(
                "{} MiB: from the least written to the most",
                group.place.cache
            ),
            "ts-clock and cflru … fab and lb-clock".into(),
            order.map(|(_, name)| name).join(" "),
        ]
    });
    Ok((order.collect(), panels))
}

/// Figures 2-8 and 2-9.
pub(super) fn erases(target: Target, scale: &Scale) -> Result<Parts> {
    let points = points(target, &Workload::ALL, scale)?;
    let groups = Group::all(&points);
    let what: (&str, Value) = ("erases", erased);
    let one = |workload: Workload| panel(workload.name(), target, &groups, scale.seed, what);
    let panels = Workload::ALL.map(one).into();
    let mut claims = life_claims(target.card, &groups);
    claims.extend(nearness(&groups, "erases", erased));
    Ok((named(target, claims), panels))
}

/// The paper's claims about a device's life, which is proportional to one over the erasures.
pub(super) fn life_claims(card: Card, groups: &[Group<'_>]) -> Vec<[String; 3]> {
    let ours = |g: &Group<'_>| g.of(PolicyKind::TsClock, erased);
    let life = |theirs: PolicyKind| {
        move |g: &Group<'_>| beyond(g.of(PolicyKind::TsClock, erased), g.of(theirs, erased))
    };
    let longest = |g: &Group<'_>| beyond(ours(g), g.best(&RIVALS, erased));
    let (rival, strongest, most) = match card {
        Card::Microsd => (PolicyKind::Cflru, Workload::Mixed, 29.0),
        Card::Ssd => (PolicyKind::Fab, Workload::Tpcc, 53.0),
    };
    let than_longest = "TS-CLOCK's life beyond the longest other's";
    let mut claims = vec![over(groups, None, than_longest, Says::Always, longest)];
    for workload in Workload::ALL {
        let says = match workload == strongest {
            true => Says::UpTo(most),
            false => Says::Nothing,
        };
        let what = format!("TS-CLOCK's life beyond {rival}'s");
        claims.push(over(groups, Some(workload), &what, says, life(rival)));
    }
    for workload in Workload::ALL {
        let what = "TS-CLOCK's life beyond lru's";
        let lru = life(PolicyKind::Lru);
        claims.push(over(groups, Some(workload), what, Says::Nothing, lru));
    }
    claims
}

/// The distance of each policy from the best one, on traces that nothing was fitted to, or on
/// recorded traces.
pub(super) fn held_out(scale: &Scale) -> Result<Parts> {
    let sources = match &scale.recorded {
        Some(dir) => Source::recorded(dir)?,
        None => Source::made(&Workload::HELD_OUT),
    };
    let (mut claims, mut panels) = (Vec::new(), Vec::new());
    for target in scale.targets() {
        let points = runs(
            target,
            &sources,
            &Runner::all(),
            &scale.sizes(target),
            scale,
        )?;
        let groups = Group::all(&points);
        let what: (&str, Value) = ("elapsed time, s", elapsed);
        let one = |source: &Source| panel(source.name(), target, &groups, scale.seed, what);
        panels.extend(sources.iter().map(one));
        claims.extend(named(target, nearness(&groups, "time", elapsed)));
    }
    Ok((claims, panels))
}
