//! Write amplification over utilisation and range (dissertation, figure 2-1), and the speed of the
//! simulation.
//!
//! `waf [filled|new|mixed|full] [GIB…]`: the former use of the 16 GiB device, and the ranges to
//! measure; by default all. The former use is: every page written once in sequence; none; as much
//! as the device holds, in runs and single pages; or the first and then the third. Old data that is
//! never written again keeps dead pages, which greedy collection does not reach; so narrow ranges
//! do badly after `mixed` and `full`.

use std::time::Instant;

use stetfs_flash::ftl::{Ageing, FtlError, FtlKind, Geometry, Tally};

/// Bytes of the paper's devices.
const CAPACITY: u64 = 16 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ageing = match args.first().map(String::as_str) {
        Some("mixed") => Ageing::MIXED,
        Some("full") => Ageing::FULL,
        Some("new") => Ageing {
            mixed: 0.0,
            ..Ageing::MIXED
        },
        _ => Ageing {
            mixed: 0.0,
            ..Ageing::FULL
        },
    };
    let mut ranges: Vec<u64> = args.iter().filter_map(|a| a.parse().ok()).collect();
    if ranges.is_empty() {
        ranges = vec![1, 2, 4, 8, 16];
    }
    println!("layer range    25 %   50 %   75 %  100 %   requests/s");
    for (kind, erase_block) in [(FtlKind::Fast, 4 << 20), (FtlKind::Page, 24 << 20)] {
        for range in &ranges {
            let mut line = format!("{kind:5} {range:3} GiB");
            let (mut requests, begin) = (0, Instant::now());
            for percent in [25, 50, 75, 100] {
                // Whole erase blocks, so that traces which fill blocks begin at block boundaries.
                let capacity = CAPACITY / erase_block * erase_block;
                let geometry = Geometry::new(capacity, erase_block, 15)?;
                let (waf, n) = measured(kind, geometry, ageing, range << 30, percent)?;
                line += &format!(" {waf:6.2}");
                requests += n;
            }
            let rate = requests as f64 / begin.elapsed().as_secs_f64();
            println!("{line}   {rate:.2e}");
        }
    }
    Ok(())
}

/// The write amplification of a trace that writes this percentage of the pages of each erase block,
/// block after block, and the number of page requests. The first half of the trace, as many pages
/// as the device holds, is not measured.
fn measured(
    kind: FtlKind,
    geometry: Geometry,
    ageing: Ageing,
    range: u64,
    percent: u64,
) -> Result<(f64, u64), FtlError> {
    let mut ftl = kind.make(geometry);
    let mut tally = Tally::default();
    ageing.run(&mut *ftl, &mut tally)?;
    let mut random = fastrand::Rng::with_seed(percent);
    let block = u64::from(geometry.block_pages);
    let blocks = (range / 4096 / block).clamp(1, u64::from(geometry.logical_blocks()));
    let mut pages: Vec<u64> = (0..block).collect();
    let mut before = ftl.counters();
    for round in 0..2 {
        let mut left = u64::from(geometry.logical_pages);
        while left > 0 {
            let first = random.u64(..blocks) * block;
            random.shuffle(&mut pages);
            let some = &mut pages[..(block * percent / 100) as usize];
            some.sort_unstable();
            for page in &*some {
                ftl.write(first + page, 1, &mut tally)?;
            }
            left = left.saturating_sub(some.len() as u64);
        }
        if round == 0 {
            before = ftl.counters();
        }
    }
    Ok((
        ftl.counters().since(&before).waf(),
        ftl.counters().host_writes,
    ))
}
