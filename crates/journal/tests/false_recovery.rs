//! LDJ's false recovery (TOS 2019, §4.3): a stale block completes a torn frame, and the result can
//! be decompressed.
//!
//! The stale block here is the worst case: it is from a frame of the same epoch, lane, sequence and
//! stamp, whose LZ4 stream has the same shape and other literals. Nothing is trimmed.
use std::sync::Arc;

use crate::common::{BLOCKS, BS, Kind, block, frames, recover_at, scheme, start};
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_journal::Canary;

const KIND: Kind = Kind::StetLz4;
/// The home blocks of the images.
const HOMES: std::ops::Range<u64> = 400..412;

/// The content of a home block in version `v` of the transaction: noise that LZ4 keeps as literals,
/// then a run. The bytes around the noise are the same in both versions, so that no match reaches
/// into the noise in only one of them.
fn image(v: u64, nr: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(v * 1000 + nr);
    let noise = 1..BS / 2 - 1;
    (0..BS)
        .map(|i| match i {
            _ if noise.contains(&i) => rng.u8(1..),
            _ if i < BS / 2 => nr as u8,
            _ => 0,
        })
        .collect()
}

/// An empty log in use, on which both versions are committed.
fn base() -> MemDevice {
    let device = crate::common::format(KIND);
    let shared: Arc<dyn BlockDevice> = Arc::new(device.fork());
    drop(scheme(KIND, &shared, Canary::default(), true));
    let mut bytes = vec![0; (BLOCKS * BS as u64) as usize];
    shared.read(0, &mut bytes).unwrap();
    MemDevice::from_image(&bytes)
}

/// The device right after the commit of version `v`.
fn committed(base: &MemDevice, v: u64) -> MemDevice {
    let device = Arc::new(base.fork());
    let (cache, journal) = start(KIND, device.clone());
    let handle = journal.begin(HOMES.count() as u32).unwrap();
    for nr in HOMES {
        let page = cache.get(nr);
        handle.create(&page).unwrap().copy_from_slice(&image(v, nr));
    }
    journal.commit(&handle.stop()).unwrap();
    device.fork()
}

/// The log blocks of the only frame.
fn frame(device: &MemDevice) -> std::ops::Range<u64> {
    let first = frames(device)[0];
    let head = block(device, first);
    let blocks = u32::from_le_bytes(head[52..56].try_into().unwrap());
    first..first + u64::from(blocks)
}

/// The number of transactions that a recovery accepts, and the home blocks after it.
fn recovered(device: &MemDevice, canary: Canary) -> (u64, Vec<Vec<u8>>) {
    let device: Arc<dyn BlockDevice> = Arc::new(device.fork());
    let report = recover_at(KIND, &device, canary);
    let homes = HOMES.map(|nr| block(&*device, nr)).collect();
    (report.transactions, homes)
}

#[test]
fn a_stale_block_never_completes_a_torn_frame() {
    let base = base();
    let (old, new) = (committed(&base, 1), committed(&base, 2));
    let whole = |v| HOMES.map(|nr| image(v, nr)).collect::<Vec<_>>();
    let place = frame(&new);
    assert_eq!(place, frame(&old), "the frames have the same shape");
    assert!(place.end - place.start > 4, "{place:?}");
    assert_eq!(recovered(&new, Canary::default()), (1, whole(2)));
    let careless = Canary {
        skip_checksums: true,
        ..Canary::default()
    };
    let mut fooled = 0;
    // Every set of stale blocks except none and all; CJ1 new, CJ2 stale, CJ3 new (the paper's case)
    // is one.
    let count = place.end - place.start;
    for stale in 1..(1u64 << count) - 1 {
        let torn = new.fork();
        for i in (0..count).filter(|i| stale & 1 << i != 0) {
            let nr = place.start + i;
            torn.write(nr * BS as u64, &block(&old, nr)).unwrap();
        }
        let (taken, homes) = recovered(&torn, Canary::default());
        assert_eq!(taken, 0, "stale blocks {stale:b} are taken");
        assert!(homes.iter().all(|h| h.iter().all(|b| *b == 0)));
        // Only the checksums show it: without them the frame is recovered, and is no version at
        // all.
        let (taken, homes) = recovered(&torn, careless);
        fooled += u64::from(taken == 1 && homes != whole(1) && homes != whole(2));
    }
    println!("of {} mixtures, {fooled} decompress", (1 << count) - 2);
    assert!(fooled > 1 << (count - 2));
}
