//! Tests of simulated SSDs as block devices.
use std::time::{Duration, Instant};

use stetfs_block::{BlockDevice, BlockError, Share, suite};
use stetfs_flash::ftl::{FtlKind, Geometry, PAGE, PageMap, ShareLimits};
use stetfs_flash::{Kept, Model, PowerCut, Ssd};

fn geometry(capacity: u64, block: u64) -> Geometry {
    Geometry::new(capacity, block, 15).unwrap()
}

fn ssd(kind: FtlKind, capacity: u64, block: u64, volatile: bool) -> Ssd {
    Ssd::new(kind.make(geometry(capacity, block)), volatile)
}

#[test]
fn every_layer_is_a_device() {
    for kind in FtlKind::ALL {
        for volatile in [false, true] {
            for block in [16 << 10, 256 << 10] {
                let device = ssd(kind, 2 << 20, block, volatile);
                suite::check_all(&device, 7);
                assert_eq!(device.share().is_some(), kind == FtlKind::Page);
                let report = device.report();
                assert!(report.counters.erases > 0 && report.waf > 0.0, "{report:?}");
            }
        }
    }
}

#[test]
fn content_stands_as_it_was_flushed() {
    for kind in FtlKind::ALL {
        for seed in 0..30 {
            let device = ssd(kind, 64 * PAGE, 4 * PAGE, true);
            let mut rng = fastrand::Rng::with_seed(seed);
            // The possible content of each sector.
            let sectors = device.size() / 512;
            let mut may = vec![vec![0u8]; sectors as usize];
            for round in 1..200 {
                let (first, n) = (rng.u64(..sectors), rng.u64(1..40));
                let n = n.min(sectors - first);
                let range = first as usize..(first + n) as usize;
                match rng.u8(..20) {
                    0..12 => {
                        let data = vec![round; (n * 512) as usize];
                        device.write(first * 512, &data).unwrap();
                        may[range].iter_mut().for_each(|m| m.push(round));
                    }
                    12 => {
                        device.zero(first * 512..(first + n) * 512).unwrap();
                        may[range].iter_mut().for_each(|m| m.push(0));
                    }
                    13 if device.share().is_some() => {
                        let (dst, src) = (rng.u64(..64), rng.u64(..64));
                        if device
                            .share()
                            .unwrap()
                            .share_range(dst * PAGE, src * PAGE, PAGE)
                            .is_ok()
                        {
                            // The destination is durable, and so is the source.
                            for i in 0..8 {
                                let now = *may[(src * 8 + i) as usize].last().unwrap();
                                may[(src * 8 + i) as usize] = vec![now];
                                may[(dst * 8 + i) as usize] = vec![now];
                            }
                        }
                    }
                    14..18 => {
                        device.flush().unwrap();
                        may.iter_mut().for_each(|m| *m = vec![*m.last().unwrap()]);
                    }
                    _ => {
                        let kept = match rng.u8(..3) {
                            0 => Kept::Nothing,
                            1 => Kept::All,
                            _ => Kept::Some(rng.u64(..)),
                        };
                        device.cut_power(kept).unwrap();
                        let mut now = vec![0; device.size() as usize];
                        device.read(0, &mut now).unwrap();
                        for (sector, (bytes, may)) in now.chunks(512).zip(&mut may).enumerate() {
                            let is = bytes[0];
                            assert!(bytes.iter().all(|b| *b == is), "sector {sector} is torn");
                            assert!(may.contains(&is), "sector {sector} is {is}, not of {may:?}");
                            assert!(
                                kept != Kept::All || may.last() == Some(&is),
                                "sector {sector}"
                            );
                            *may = vec![is];
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_cut_loses_what_was_not_flushed() {
    let device = ssd(FtlKind::Page, 1 << 20, 64 << 10, true);
    device.write(0, &[1; 8192]).unwrap();
    device.flush().unwrap();
    device.write(0, &[2; 4096]).unwrap();
    device
        .write_batch(&[stetfs_block::Write::new(4096, &[3; 512]).fua()])
        .unwrap();
    device.cut_power(Kept::Nothing).unwrap();
    let mut bytes = [0; 8192];
    device.read(0, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[4096], bytes[4096 + 512]), (1, 3, 1));
}

#[test]
fn errors_say_which_limit() {
    let limits = ShareLimits {
        pairs: 4,
        references: 2,
    };
    let layer = PageMap::new(geometry(1 << 20, 64 << 10)).with_limits(limits);
    let device = Ssd::new(Box::new(layer), false);
    assert_eq!(
        (
            Share::limits(&device).pairs,
            Share::limits(&device).references
        ),
        (4, 2)
    );
    device.write(0, &[1; 8 * 4096]).unwrap();
    let share = |dst, pages| {
        device
            .share()
            .unwrap()
            .share_range(dst * PAGE, 0, pages * PAGE)
    };
    assert!(matches!(
        share(20, 5),
        Err(BlockError::ShareBatch { units: 5, limit: 4 })
    ));
    share(20, 4).unwrap();
    let e = share(30, 1).unwrap_err();
    assert!(
        matches!(
            e,
            BlockError::ShareReferences {
                offset: 0,
                limit: 2
            }
        ),
        "{e}"
    );
    assert_eq!((e.errno(), device.report().references), (libc::EMLINK, 4));
}

#[test]
fn what_is_moved_takes_time() {
    let [sata, ..] = Model::ALL;
    // The device is full, and random writes make it move pages.
    let took = |spare| {
        let geometry = Geometry::new(16 << 20, 256 << 10, spare).unwrap();
        let device = Ssd::new(FtlKind::Page.make(geometry), false).timed(sata);
        device.write(0, &vec![1; 16 << 20]).unwrap();
        device.flush().unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        let begin = Instant::now();
        for _ in 0..32 {
            let places: Vec<u64> = (0..256).map(|_| rng.u64(..4096) * PAGE).collect();
            let data = [2; PAGE as usize];
            let writes: Vec<_> = places
                .iter()
                .map(|at| stetfs_block::Write::new(*at, &data))
                .collect();
            device.write_batch(&writes).unwrap();
        }
        device.flush().unwrap();
        let report = device.report();
        let least = sata.beside(
            &stetfs_flash::ftl::Tally {
                copies: report.counters.moved,
                ..Default::default()
            },
            64,
        );
        assert!(
            begin.elapsed() >= Duration::from_nanos(least),
            "moving takes {least} ns"
        );
        report.waf
    };
    assert!(
        took(6) > 2.0 * took(300),
        "more spare space, fewer pages to move"
    );
}

/// Simulated time advances only with requests: as long as the model says, and always the same.
#[test]
fn simulated_time_is_the_models() {
    let [_, model, _] = Model::ALL;
    let take = || {
        let device = ssd(FtlKind::Page, 4 << 20, 256 << 10, true).simulated(model);
        let mut random = fastrand::Rng::with_seed(1);
        for n in 1..5000u64 {
            let page = random.u64(..device.size() / PAGE);
            device.write(page * PAGE, &[1; PAGE as usize]).unwrap();
            if n.is_multiple_of(50) {
                device.flush().unwrap();
            }
        }
        assert!(device.report().counters.moved > 0);
        device.now()
    };
    let took = take();
    // 99 flushes of 600 µs and 4999 writes of 16 µs; moved pages take more time.
    let least = Duration::from_micros(99 * 600 + 4999 * 16);
    assert!(Duration::from_nanos(took) > least, "{took}");
    assert_eq!(took, take());
}
