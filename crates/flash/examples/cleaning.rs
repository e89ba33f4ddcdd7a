//! Segments cleaned by copies and by SHARE (dissertation, figure 3-10): half full, random writes over 40 % of the device, a flush
//! each so many blocks.
//!
//! `cleaning [MIB] [BLOCKS]`: size of the device (512), and blocks written (twice what 40 % of it has).

use std::sync::Arc;
use std::time::Instant;

use stetfs_block::BlockDevice;
use stetfs_flash::ftl::{FtlKind, Geometry};
use stetfs_flash::segments::{Cleaner, LogDevice, LogOptions, LogReport};
use stetfs_flash::{Model, Ssd};

const BLOCK: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let size = args.next().transpose()?.unwrap_or(512) << 20;
    let area = size * 4 / 10 / BLOCK;
    let blocks = args.next().transpose()?.unwrap_or(2 * area);
    println!("flush each   copied: moved    MB/s   WAF   shared: moved    MB/s   WAF   faster");
    for interval in [8, 16, 32, 64, 128] {
        let (copied, slow, waf) = run(size, area, blocks, interval, Cleaner::Copy)?;
        let (shared, fast, less) = run(size, area, blocks, interval, Cleaner::Share)?;
        println!(
            "{interval:10} {:15} {slow:7.1} {waf:5.2} {:15} {fast:7.1} {less:5.2} {:+7.1} %",
            copied.moved,
            shared.moved,
            (fast / slow - 1.0) * 100.0
        );
    }
    Ok(())
}

/// What the log did, megabytes a second, and the flash's write amplification.
fn run(
    size: u64,
    area: u64,
    blocks: u64,
    interval: u64,
    cleaner: Cleaner,
) -> Result<(LogReport, f64, f64), Box<dyn std::error::Error>> {
    let [_, nvme, _] = Model::ALL;
    let geometry = Geometry::new(size, 4 << 20, 15)?;
    let ssd = Arc::new(Ssd::new(FtlKind::Page.make(geometry), true).timed(nvme));
    let options = LogOptions {
        cleaner,
        ..LogOptions::new(size / 2)
    };
    let device = LogDevice::format(Arc::clone(&ssd), options)?;
    // Half of the device is full.
    let one = vec![1; 1 << 20];
    for at in (0..device.size()).step_by(1 << 20) {
        let end = (at + (1 << 20)).min(device.size());
        device.write(at, &one[..(end - at) as usize])?;
    }
    device.flush()?;
    let before = device.report();
    let mut random = fastrand::Rng::with_seed(interval);
    let begin = Instant::now();
    for n in 1..=blocks {
        device.write(random.u64(..area) * BLOCK, &[n as u8; BLOCK as usize])?;
        if n % interval == 0 {
            device.flush()?;
        }
    }
    device.flush()?;
    let rate = (blocks * BLOCK) as f64 / 1e6 / begin.elapsed().as_secs_f64();
    let mut report = device.report();
    report.moved -= before.moved;
    Ok((report, rate, ssd.report().waf))
}
