//! AFS, figure 3-9: SQLite with a rollback journal, with a write-ahead log, and without a journal
//! on atomic files.

use anyhow::{Result, ensure};

use super::args::Spec;
use super::ldj::peer;
use super::part::Part;
use crate::compare::{
    Beside, Mark, Metric, PeerSpec, Report, SqliteJournal, Value, Workload, sqlite_is_missing,
};

pub(super) const SQLITE: &str = "\
figure 3-9: SQLite 3.8.13 under traces of Facebook, Gmail and AndroBench; without a journal on AFS about 3.3 times as fast as with a \
rollback journal on ordered mode, and 1.2 times as with a log there; 3.8 times fewer writes and 3.2 times fewer flushes than \
with the rollback journal. Its traces are not public: here are loads like them";

/// Size of the journal, MiB: it wraps several times in a run, so that checkpoints count.
const JOURNAL: u32 = 16;
/// Size of the image, MiB: for smaller ones mke2fs chooses blocks of 1 KiB, which no device shares.
const IMAGE_MIB: u64 = 1024;

const KERNEL_ROLLBACK: &str = "ext4 ordered, rollback";
const KERNEL_LOG: &str = "ext4 ordered, WAL";
const ROLLBACK: &str = "ordered, rollback";
const LOG: &str = "ordered, WAL";
/// The columns without a journal.
const ATOMIC: [&str; 3] = ["afs, none", "afs frames, none", "ldj, none"];

/// The paper's advantages over the rollback journal in ordered mode, by metric: rate, bytes,
/// flushes.
const PAPER: [f64; 3] = [3.3, 3.8, 3.2];
/// The paper's advantage over the write-ahead log, by rate.
const PAPER_LOG: f64 = 1.2;

pub(super) fn spec() -> Result<Spec> {
    if let Some(reason) = sqlite_is_missing() {
        anyhow::bail!("{reason}");
    }
    let column = |name: &str, options: &str, sqlite| PeerSpec {
        sqlite,
        ..peer(name, options, JOURNAL)
    };
    let ours = |name: &str, journal: &str, sqlite| {
        column(name, &format!("journal={journal},io_uring=on"), sqlite)
    };
    let [afs, frames, ldj] = ATOMIC;
    Ok(Spec {
        kernel: vec![
            column(KERNEL_ROLLBACK, "data=ordered", SqliteJournal::Rollback),
            column(KERNEL_LOG, "data=ordered", SqliteJournal::Wal),
        ],
        stetfs: vec![
            ours(ROLLBACK, "ordered", SqliteJournal::Rollback),
            ours(LOG, "ordered", SqliteJournal::Wal),
            ours(afs, "afs,atomic", SqliteJournal::None),
            ours(frames, "afs,codec=frames,atomic", SqliteJournal::None),
            ours(ldj, "ldj,atomic", SqliteJournal::None),
        ],
        workloads: vec![
            Workload::SqliteFacebook,
            Workload::SqliteGmail,
            Workload::SqliteAndrobench,
        ],
        beside: vec![Beside::ALONE],
        image_mib: IMAGE_MIB,
        profile_seconds: None,
        threads: None,
        flash: true,
    })
}

/// Adds the paper's values to the report: relative to the kernel's rollback journal, as in the
/// paper.
pub(super) fn mark(parts: &mut [Part]) -> Result<()> {
    for Part { report, .. } in parts {
        ensure!(
            report.skipped.is_empty(),
            "not run: {}",
            report.skipped.join("; ")
        );
        let target = |name: &str| report.targets.iter().position(|t| t == name);
        let mut marks = Vec::new();
        for (metric, measured) in report.metrics.iter().enumerate() {
            let advantage = PAPER[what(report, measured)];
            let mut mark = |name: &str, advantage| {
                marks.extend(target(name).map(|target| Mark {
                    metric,
                    target,
                    advantage,
                }));
            };
            for name in ATOMIC {
                mark(name, advantage);
            }
            // For the log's bytes and flushes the paper has only bars without numbers.
            if what(report, measured) == 0 {
                mark(KERNEL_LOG, advantage / PAPER_LOG);
                mark(LOG, advantage / PAPER_LOG);
            }
        }
        report.paper = marks;
    }
    Ok(())
}

/// The index of the metric within its workload: rate, bytes, flushes.
fn what(report: &Report, metric: &Metric) -> usize {
    let same = report
        .metrics
        .iter()
        .filter(|m| m.workload == metric.workload);
    let at = same.take_while(|m| m.title != metric.title).count();
    at.min(PAPER.len() - 1)
}

/// The claims, with goals and measured values. Goals are for devices like the paper's: simulated
/// SSDs.
pub(super) fn claims(parts: &[Part]) -> Vec<[String; 3]> {
    let mut claims = Vec::new();
    for Part { title, report, .. } in parts {
        let has_goal = title.contains("ssd");
        for metric in &report.metrics {
            let what = what(report, metric);
            let of = |name: &str| {
                let at = report.targets.iter().position(|t| t == name)?;
                metric.values.get(at)
            };
            let mut claim = |ours: &str, other: &str, goal: f64| {
                let (Some(mine), Some(theirs)) = (of(ours), of(other)) else {
                    return;
                };
                let factor = factor(what, mine, theirs);
                let sign = if what == 0 { "×" } else { "÷" };
                let (goal, missed) = match has_goal && what == 0 {
                    true => (format!("≥ ×{goal:.1}"), factor < goal),
                    false => (format!("the paper: {sign}{goal:.1}"), false),
                };
                claims.push([
                    format!("{title}: {}, {ours}, to {other}", metric.title),
                    goal,
                    format!("{sign}{factor:.2}{}", if missed { ", missed" } else { "" }),
                ]);
            };
            for ours in ATOMIC {
                claim(ours, ROLLBACK, PAPER[what]);
                claim(ours, KERNEL_ROLLBACK, PAPER[what]);
                if what == 0 {
                    claim(ours, LOG, PAPER_LOG);
                    claim(ours, KERNEL_LOG, PAPER_LOG);
                }
            }
        }
    }
    claims
}

/// The advantage as a factor.
fn factor(what: usize, mine: &Value, theirs: &Value) -> f64 {
    let (more, less) = match what {
        0 => (mine.median, theirs.median),
        _ => (theirs.median, mine.median),
    };
    if less > 0.0 { more / less } else { 0.0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::compare::{Below, Better, Measured, Outcome};

    fn outcome(rate: f64, kib: f64, flushes: f64) -> Outcome {
        let measured = |title: &str, better, value| Measured {
            title: title.into(),
            unit: String::new(),
            better,
            value,
            below: Below::default(),
        };
        vec![
            measured("load", Better::Higher, rate),
            measured("load, written", Better::Lower, kib),
            measured("load, flushes", Better::Lower, flushes),
        ]
    }

    fn part(title: &str) -> Part {
        let names = [
            KERNEL_ROLLBACK,
            KERNEL_LOG,
            ROLLBACK,
            LOG,
            ATOMIC[0],
            ATOMIC[1],
            ATOMIC[2],
        ];
        let numbers = [
            (100.0, 80.0, 4.0),
            (300.0, 20.0, 1.0),
            (100.0, 80.0, 4.0),
            (300.0, 20.0, 1.0),
            (320.0, 20.0, 1.0),
            (360.0, 16.0, 1.0),
            (400.0, 10.0, 1.0),
        ];
        let outcomes: BTreeMap<_, _> = numbers
            .into_iter()
            .map(|(rate, kib, flushes)| vec![outcome(rate, kib, flushes)])
            .enumerate()
            .collect();
        let mut report = Report::new(&names.map(str::to_owned), 1);
        report.add("sqlite-facebook", &outcomes);
        Part {
            title: title.into(),
            report,
            threads: None,
        }
    }

    #[test]
    fn claims_say_what_is_missed() {
        let claims = claims(&[part("sata-ssd")]);
        let ours = |what: &str| {
            let found = claims.iter().find(|c| c[0] == format!("sata-ssd: {what}"));
            found.unwrap().clone()
        };
        let [_, goal, is] = ours("load, afs, none, to ordered, rollback");
        assert_eq!((goal.as_str(), is.as_str()), ("≥ ×3.3", "×3.20, missed"));
        assert_eq!(ours("load, ldj, none, to ordered, rollback")[2], "×4.00");
        assert_eq!(ours("load, ldj, none, to ordered, WAL")[2], "×1.33");
        assert_eq!(
            ours("load, written, afs, none, to ordered, rollback")[1..],
            ["the paper: ÷3.8", "÷4.00"]
        );
        assert_eq!(
            ours("load, flushes, afs, none, to ordered, rollback")[1..],
            ["the paper: ÷3.2", "÷4.00"]
        );
        let elsewhere = super::claims(&[part("file")]);
        assert!(elsewhere.iter().all(|c| !c[2].contains("missed")));
    }

    #[test]
    fn the_paper_s_points_are_drawn() {
        let mut parts = [part("sata-ssd")];
        mark(&mut parts).unwrap();
        let marks = &parts[0].report.paper;
        // Three columns for each metric, and the rate of both logs.
        assert_eq!(marks.len(), 3 * 3 + 2);
        let of = |metric, target| {
            let found = marks
                .iter()
                .find(|m| (m.metric, m.target) == (metric, target));
            found.unwrap().advantage
        };
        assert!((of(0, 1) - 2.75).abs() < 1e-9);
        assert!((of(1, 4) - 3.8).abs() < 1e-9);
        parts[0].report.skipped.push("a reason".into());
        assert!(
            mark(&mut parts)
                .unwrap_err()
                .to_string()
                .contains("a reason")
        );
    }
}
