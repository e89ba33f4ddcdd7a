//! The costs of the policy gd-erase, fitted to one half of the traces and judged by the other half.

use anyhow::Result;
use stetfs_cache::{Costs, PolicyKind};

use super::card::{Runner, Target};
use super::compare::{Group, nearness};
use super::matrix::elapsed;
use super::panel::{Panel, Parts, Series};
use super::points::{Point, Source, runs};
use super::scale::Scale;
use crate::generate::Workload;

pub(super) const PAPER: &str = "nothing: the policy is ours";

/// The costs to try, in page reads: each visit with each rest.
const VISITS: [u32; 4] = [8, 50, 400, 2000];
const RESTS: [u32; 4] = [0, 5, 12, 30];
/// Cost of a page write; only the ratios matter.
const WRITE: u32 = 6;

/// The two halves: the paper's traces, and all others.
const HALVES: [(&str, &[Workload]); 2] = [
    ("the paper's", &Workload::ALL),
    ("the others", &Workload::HELD_OUT),
];

fn runner(visit: u32, rest: u32) -> Runner {
    Runner {
        policy: PolicyKind::GdErase,
        costs: Some(Costs {
            read: 1,
            write: WRITE,
            visit,
            rest,
        }),
    }
}

/// The geometric mean of a runner's times in seconds.
fn mean(points: &[Point], runner: Runner) -> f64 {
    let name = runner.name();
    let mine = points.iter().filter(|p| p.policy == name);
    let logs: Vec<f64> = mine.map(|p| elapsed(p).ln()).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// Chooses the best of the costs that were tried on a half; also gives a panel of all.
fn fit(points: &[Point], title: String) -> (Runner, Panel) {
    let tried = VISITS.map(|visit| RESTS.map(|rest| (visit, rest)));
    let tried = tried.as_flattened().iter();
    let best = tried
        .map(|(visit, rest)| runner(*visit, *rest))
        .min_by(|a, b| mean(points, *a).total_cmp(&mean(points, *b)))
        .unwrap_or(runner(VISITS[0], RESTS[0]));
    let least = mean(points, best);
    let series = RESTS.map(|rest| Series {
        name: format!("rest {rest}"),
        points: VISITS
            .map(|visit| {
                let behind = mean(points, runner(visit, rest)) / least - 1.0;
                (f64::from(visit), 100.0 * behind)
            })
            .into(),
    });
    let panel = Panel {
        title,
        axes: ["visit, reads".into(), "behind the best costs, %".into()],
        series: series.into(),
        joined: true,
        logarithmic: true,
    };
    (best, panel)
}

/// The distance of each policy from the best of all on some traces, where gd-erase has the costs of
/// `chosen`.
fn judged(
    card: Target,
    sources: &[Source],
    chosen: Runner,
    scale: &Scale,
) -> Result<Vec<[String; 3]>> {
    let mut runners = Runner::all();
    runners.retain(|r| r.policy != PolicyKind::GdErase);
    runners.push(chosen);
    let mut points = runs(card, sources, &runners, &scale.sizes(card), scale)?;
    for point in &mut points {
        if point.policy == chosen.name() {
            point.policy = chosen.policy.name().to_owned();
        }
    }
    Ok(nearness(&Group::all(&points), "time", elapsed))
}

pub(super) fn compute(scale: &Scale) -> Result<Parts> {
    let recorded = match &scale.recorded {
        Some(dir) => Source::recorded(dir)?,
        None => Vec::new(),
    };
    let (mut claims, mut panels) = (Vec::new(), Vec::new());
    for card in scale.targets() {
        let name = format!("{}, {}", card.name(), card.layer());
        let mut judge = |how: &str, by: &str, sources: &[Source], runner: Runner| -> Result<()> {
            let named = |[row, paper, ours]: [String; 3]| {
                [format!("{name}, {how}, judged by {by}, {row}"), paper, ours]
            };
            let rows = judged(card, sources, runner, scale)?;
            claims.extend(rows.into_iter().map(named));
            Ok(())
        };
        let halves = HALVES.map(|(name, traces)| (name, Source::made(traces)));
        for ((fitted, traces), (other, unseen)) in halves.iter().zip(halves.iter().rev()) {
            let (chosen, panel) = tried(card, fitted, traces, scale)?;
            panels.push(panel);
            let how = format!("fitted to {fitted} ({})", chosen.name());
            judge(&how, other, unseen, chosen)?;
            if !recorded.is_empty() {
                judge(&how, "what was recorded", &recorded, chosen)?;
            }
        }
        if !recorded.is_empty() {
            let usual = Runner {
                policy: PolicyKind::GdErase,
                costs: None,
            };
            judge("the usual costs", "what was recorded", &recorded, usual)?;
        }
    }
    Ok((claims, panels))
}

/// Tries all costs on one half: gives the best, and a panel of the distances of the others from it.
fn tried(card: Target, name: &str, half: &[Source], scale: &Scale) -> Result<(Runner, Panel)> {
    let candidates = VISITS.map(|visit| RESTS.map(|rest| runner(visit, rest)));
    // Two sizes suffice for the choice.
    let sizes = scale.sizes(card).into_iter();
    let sizes: Vec<u64> = sizes.skip(1).step_by(2).collect();
    let points = runs(card, half, candidates.as_flattened(), &sizes, scale)?;
    Ok(fit(
        &points,
        format!("{}, {}, fitted to {name}", card.name(), card.layer()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::points::timed;

    /// The costs with the least geometric mean are the best, so that a single long trace does not
    /// decide.
    #[test]
    fn each_trace_counts_alike() {
        let mut points = Vec::new();
        for visit in VISITS {
            for rest in RESTS {
                let best = (visit, rest) == (400, 12);
                // On the long trace the best costs lose 10 %, on the short one they take half the
                // time.
                for (workload, time) in [("dbench", 1000.0), ("video", 10.0)] {
                    let factor = match (best, workload) {
                        (true, "dbench") => 1.1,
                        (true, _) => 0.5,
                        (false, _) => 1.0,
                    };
                    let name = runner(visit, rest).name();
                    points.push(timed(workload, 8, name, time * factor));
                }
            }
        }
        let (chosen, panel) = fit(&points, String::new());
        assert_eq!(chosen, runner(400, 12));
        let behind = panel.series.iter().flat_map(|s| &s.points);
        let zero = behind.filter(|(_, percent)| *percent == 0.0).count();
        assert_eq!((panel.series.len(), zero), (4, 1));
    }
}
