//! Figure 2-1: write amplification of writes of some utilisation in some range.

use anyhow::Result;
use fastrand::Rng;
use stetfs_flash::ftl::{Ageing, Ftl, FtlKind, Geometry};

use super::{Panel, Parts, Scale, Series, parallel};
use crate::PAGE;

pub(super) const PAPER: &str = "\
16 GB, 15 % spare: at 100 % utilisation 1 everywhere; at 25 % and the whole range FAST 4.9, page-level 3.5; \
at 25 % in 1 GB 2.3 and 1.02";

/// Percent.
const UTILISATIONS: [u64; 4] = [25, 50, 75, 100];

struct Job {
    ftl: FtlKind,
    /// Bytes.
    range: u64,
    /// Percent.
    utilisation: u64,
}

/// Writes `pages` pages: some of a block by number, then of another block.
fn write(ftl: &mut dyn Ftl, job: &Job, pages: u64, random: &mut Rng) -> Result<()> {
    let block_pages = u64::from(ftl.geometry().block_pages);
    let blocks = (job.range / PAGE / block_pages).max(1);
    let count = (block_pages * job.utilisation / 100).max(1);
    let mut places: Vec<u64> = (0..block_pages).collect();
    let mut done = 0;
    while done < pages {
        let first = random.u64(..blocks) * block_pages;
        random.shuffle(&mut places);
        let mut chosen = places[..count as usize].to_vec();
        chosen.sort_unstable();
        for place in chosen {
            ftl.write(first + place, 1, &mut ())?;
        }
        done += count;
    }
    Ok(())
}

/// The amplification in the steady state.
fn measure(job: &Job, capacity: u64, seed: u64) -> Result<f64> {
    let mut ftl = job.ftl.make(Geometry::new(capacity, 4 << 20, 15)?);
    // Full, written once in sequence.
    let full = Ageing {
        mixed: 0.0,
        ..Ageing::FULL
    };
    full.run(&mut *ftl, &mut ())?;
    let mut random = Rng::with_seed(seed);
    // The spare blocks are used up and what is in the range is mixed; then it counts.
    let spare = u64::from(ftl.geometry().spare_blocks()) * u64::from(ftl.geometry().block_pages);
    write(&mut *ftl, job, spare + 2 * job.range / PAGE, &mut random)?;
    let before = ftl.counters();
    write(&mut *ftl, job, capacity / PAGE, &mut random)?;
    Ok(ftl.counters().since(&before).waf())
}

pub(super) fn compute(scale: Scale) -> Result<Parts> {
    let capacity: u64 = if scale.quick { 2 << 30 } else { 16 << 30 };
    let ranges: Vec<u64> = [16, 8, 4, 2, 1].map(|part| capacity / 16 * part).to_vec();
    let mut jobs = Vec::new();
    for ftl in [FtlKind::Fast, FtlKind::Page] {
        for range in &ranges {
            jobs.extend(UTILISATIONS.map(|utilisation| Job {
                ftl,
                range: *range,
                utilisation,
            }));
        }
    }
    let found = parallel(&jobs, |job| measure(job, capacity, scale.seed))?;
    let at = |ftl: FtlKind, range: u64, utilisation: u64| {
        let same = |j: &&Job| j.ftl == ftl && j.range == range && j.utilisation == utilisation;
        let found = jobs.iter().zip(&found).find(|(job, _)| same(job));
        found.map_or(f64::NAN, |(_, waf)| *waf)
    };
    let gib = |bytes: u64| format!("{} GiB", bytes as f64 / f64::from(1 << 30));
    let panel = |ftl: FtlKind| Panel {
        title: format!("write amplification, {}", ftl.name()),
        axes: ["utilisation, %".into(), "WAF".into()],
        series: ranges
            .iter()
            .map(|range| Series {
                name: gib(*range),
                points: UTILISATIONS
                    .map(|u| (u as f64, at(ftl, *range, u)))
                    .to_vec(),
            })
            .collect(),
        joined: true,
        logarithmic: false,
    };
    let (all, narrow) = (capacity, capacity / 16);
    let claim = |what: &str, paper: &str, waf: f64| {
        [what.to_owned(), paper.to_owned(), format!("{waf:.2}")]
    };
    let claims = vec![
        claim("FAST, 25 %, whole range", "4.9", at(FtlKind::Fast, all, 25)),
        claim(
            "page-level, 25 %, whole range",
            "3.5",
            at(FtlKind::Page, all, 25),
        ),
        claim(
            "FAST, 25 %, a 16th of the range",
            "2.3",
            at(FtlKind::Fast, narrow, 25),
        ),
        claim(
            "page-level, 25 %, a 16th of the range",
            "1.02",
            at(FtlKind::Page, narrow, 25),
        ),
        claim("FAST, 100 %, whole range", "1", at(FtlKind::Fast, all, 100)),
        claim(
            "page-level, 100 %, whole range",
            "1",
            at(FtlKind::Page, all, 100),
        ),
    ];
    Ok((claims, vec![panel(FtlKind::Fast), panel(FtlKind::Page)]))
}
