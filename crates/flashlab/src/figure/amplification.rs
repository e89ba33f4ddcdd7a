//! Figure 2-1: write amplification by utilisation and range of the writes.

use anyhow::Result;
use fastrand::Rng;
use stetfs_flash::ftl::{Ageing, Fast, Ftl, FtlKind, Geometry};

use super::panel::{Panel, Parts, Series};
use super::parallel::parallel;
use super::scale::Scale;
use crate::page::PAGE;

pub(super) const SETUP: &str = "16 GiB (2 GiB in a first look), 15 % spare, erase blocks of 4 MiB";

pub(super) const PAPER: &str = "\
16 GB, 15 % spare: at 100 % utilisation 1 everywhere; at 25 % and the whole range FAST 4.9, page-level 3.5; \
at 25 % in 1 GB 2.3 and 1.02";

/// Utilisations in percent.
const UTILISATIONS: [u64; 4] = [25, 50, 75, 100];

/// The layers that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// FAST with all spare blocks as log blocks.
    Fast,
    /// FAST with only a part of the spare blocks as log blocks. The paper does not give the size of
    /// its log; this part reproduces both of its numbers.
    ShortLog,
    /// Page-level mapping.
    Page,
}

/// Log blocks of [`Layer::ShortLog`] in percent of the spare blocks.
const SHORT: u32 = 60;

impl Layer {
    const ALL: [Layer; 3] = [Layer::Fast, Layer::ShortLog, Layer::Page];

    fn name(self) -> String {
        match self {
            Layer::Fast => "FAST".into(),
            Layer::ShortLog => format!("FAST, log of {SHORT} % of the spare blocks"),
            Layer::Page => "page-level".into(),
        }
    }

    fn make(self, geometry: Geometry) -> Box<dyn Ftl> {
        let log = geometry.spare_blocks() * SHORT / 100;
        match self {
            Layer::Fast => FtlKind::Fast.make(geometry),
            Layer::ShortLog => Box::new(Fast::new(geometry).with_log(log)),
            Layer::Page => FtlKind::Page.make(geometry),
        }
    }
}

struct Job {
    layer: Layer,
    /// Range of the writes in bytes.
    range: u64,
    /// Pages of an erase block that are written in a visit, in percent.
    utilisation: u64,
}

/// Writes `pages` pages: some pages of one block in ascending order, then some of another block.
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

/// The write amplification in the steady state.
fn measure(job: &Job, capacity: u64, seed: u64) -> Result<f64> {
    let mut ftl = job.layer.make(Geometry::new(capacity, 4 << 20, 15)?);
    // The device is full, and was written once in sequence.
    let full = Ageing {
        mixed: 0.0,
        ..Ageing::FULL
    };
    full.run(&mut *ftl, &mut ())?;
    let mut random = Rng::with_seed(seed);
    // First the spare blocks are used up and the range is mixed; then the measurement begins.
    let spare = u64::from(ftl.geometry().spare_blocks()) * u64::from(ftl.geometry().block_pages);
    write(&mut *ftl, job, spare + 2 * job.range / PAGE, &mut random)?;
    let before = ftl.counters();
    write(&mut *ftl, job, capacity / PAGE, &mut random)?;
    Ok(ftl.counters().since(&before).waf())
}

pub(super) fn compute(scale: &Scale) -> Result<Parts> {
    let capacity: u64 = if scale.quick { 2 << 30 } else { 16 << 30 };
    let ranges: Vec<u64> = [16, 8, 4, 2, 1].map(|part| capacity / 16 * part).to_vec();
    let mut jobs = Vec::new();
    for layer in Layer::ALL {
        for range in &ranges {
            jobs.extend(UTILISATIONS.map(|utilisation| Job {
                layer,
                range: *range,
                utilisation,
            }));
        }
    }
    let found = parallel(&jobs, |job| measure(job, capacity, scale.seed))?;
    let at = |layer: Layer, range: u64, utilisation: u64| {
        let same = |j: &&Job| j.layer == layer && j.range == range && j.utilisation == utilisation;
        let found = jobs.iter().zip(&found).find(|(job, _)| same(job));
        found.map_or(f64::NAN, |(_, waf)| *waf)
    };
    let gib = |bytes: u64| format!("{} GiB", bytes as f64 / f64::from(1 << 30));
    let panel = |layer: Layer| Panel {
        title: format!("write amplification, {}", layer.name()),
        axes: ["utilisation, %".into(), "WAF".into()],
        series: ranges
            .iter()
            .map(|range| Series {
                name: gib(*range),
                points: UTILISATIONS
                    .map(|u| (u as f64, at(layer, *range, u)))
                    .to_vec(),
            })
            .collect(),
        joined: true,
        logarithmic: false,
    };
    let mut claims = Vec::new();
    for layer in Layer::ALL {
        let paper = match layer {
            Layer::Fast | Layer::ShortLog => ["4.9", "2.3", "1"],
            Layer::Page => ["3.5", "1.02", "1"],
        };
        let whole = ("the whole range", capacity);
        let places = [
            (25, whole),
            (25, ("a 16th of it", capacity / 16)),
            (100, whole),
        ];
        for ((utilisation, (name, range)), paper) in places.into_iter().zip(paper) {
            claims.push([
                format!("{}, {utilisation} %, {name}", layer.name()),
                paper.to_owned(),
                format!("{:.2}", at(layer, range, utilisation)),
            ]);
        }
    }
    Ok((claims, Layer::ALL.map(panel).into()))
}
