//! Measures the latency of requests on an image file, with io_uring and with system calls,
//! interleaved.
//!
//! `latency IMAGE [MILLISECONDS PER ROW]`: overwrites the image.

use std::time::{Duration, Instant};

use stetfs_block::suite::Rng;
use stetfs_block::{
    AlignedBuf, BlockDevice, Direct, FileDevice, OpenOptions, Read, Result, Uring, Write,
};

const PAGE: u64 = 4096;

/// Median duration of `run`, repeated for `time`, on each device in turn.
fn medians(
    devices: &[FileDevice],
    time: Duration,
    mut run: impl FnMut(&FileDevice) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut times = vec![Vec::new(); devices.len()];
    let begun = Instant::now();
    while begun.elapsed() < time * devices.len() as u32 {
        for (dev, times) in devices.iter().zip(&mut times) {
            let now = Instant::now();
            run(dev)?;
            times.push(now.elapsed());
        }
    }
    Ok(times
        .iter_mut()
        .map(|t| {
            t.sort_unstable();
            t.get(t.len() / 2).map_or(0.0, |t| t.as_secs_f64() * 1e6)
        })
        .collect())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args
        .next()
        .ok_or("usage: latency IMAGE [MILLISECONDS PER ROW]")?;
    let time = Duration::from_millis(args.next().map_or(Ok(300), |a| a.parse())?);
    // Two devices on one image would lock each other out: a second image is used.
    let second = format!("{path}.syscalls");
    let size = std::fs::metadata(&path)?.len();
    std::fs::File::create(&second)?.set_len(size)?;
    let open = |path: &str, uring| {
        FileDevice::open(
            path,
            OpenOptions {
                uring,
                direct: Direct::Required,
                ..Default::default()
            },
        )
    };
    let devices = [open(&path, Uring::Auto)?, open(&second, Uring::Off)?];
    // All blocks are allocated, and neither image is in the host's page cache.
    let zeros = AlignedBuf::zeroed(1 << 20);
    for dev in &devices {
        for at in (0..dev.size()).step_by(zeros.len()) {
            dev.write(at, &zeros[..zeros.len().min((dev.size() - at) as usize)])?;
        }
        dev.flush()?;
    }
    let blocks = devices[0].size() / PAGE;
    let mut rng = Rng::new(1);
    println!(
        "{:<34} {:>10} {:>10}  µs, median",
        "", "io_uring", "syscalls"
    );
    for n in [1usize, 2, 4, 16, 64] {
        let mut pages: Vec<_> = (0..n).map(|_| AlignedBuf::zeroed(PAGE as usize)).collect();
        let read = medians(&devices, time, |dev| {
            let mut reads: Vec<_> = pages
                .iter_mut()
                .map(|p| Read::new(rng.below(blocks) * PAGE, p))
                .collect();
            dev.read_batch(&mut reads)
        })?;
        println!(
            "{:<34} {:>10.1} {:>10.1}",
            format!("{n} reads of 4 KiB"),
            read[0],
            read[1]
        );
        for flush in [false, true] {
            let what = if flush {
                "writes of 4 KiB, then flush"
            } else {
                "writes of 4 KiB"
            };
            let write = medians(&devices, time, |dev| {
                let writes: Vec<_> = pages
                    .iter()
                    .map(|p| Write::new(rng.below(blocks) * PAGE, p))
                    .collect();
                if flush {
                    dev.write_batch_flush(&writes)
                } else {
                    dev.write_batch(&writes)
                }
            })?;
            println!(
                "{:<34} {:>10.1} {:>10.1}",
                format!("{n} {what}"),
                write[0],
                write[1]
            );
        }
    }
    drop(devices);
    std::fs::remove_file(second)?;
    Ok(())
}
