//! The places of images, at a checkpoint and at recovery: only an image that is in the log byte for
//! byte has one.
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::common::{BLOCKS, BS, Kind};
use parking_lot::Mutex;
use stetfs_block::BlockDevice;
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::policy::{CopyHome, Home, HomeImage, Place, Scheme, Sent, Standing};
use stetfs_journal::{Cache, Canary, Journal, JournalConfig, RecoveryOptions, Result, recover};

type Places = BTreeMap<u64, Option<Place>>;

/// A home policy that checks and records the images it gets.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Places>>);

impl Home for Spy {
    fn send(&self, device: &dyn BlockDevice, images: &[HomeImage]) -> Result<Sent> {
        for image in images {
            if let Some(place) = image.place {
                let mut stored = vec![0; image.page.len()];
                device.read(place.offset(), &mut stored)?;
                assert_eq!(stored, image.page[..], "block {}", image.nr);
            }
            self.0.lock().insert(image.nr, image.place);
        }
        CopyHome.send(device, images)
    }

    fn send_standing(
        &self,
        device: &dyn BlockDevice,
        block: u64,
        images: &[Standing],
    ) -> Result<HashSet<u64>> {
        CopyHome.send_standing(device, block, images)
    }
}

const PLAIN: u64 = 300;
const NOISE: u64 = 301;
const MAGIC: u64 = 302;

fn content(nr: u64) -> Vec<u8> {
    let mut bytes = match nr {
        NOISE => {
            let mut rng = fastrand::Rng::with_seed(1);
            (0..BS).map(|_| rng.u8(..)).collect()
        }
        _ => vec![nr as u8; BS],
    };
    if nr == MAGIC {
        bytes[..4].copy_from_slice(&stetfs_ondisk::jbd2::MAGIC.to_be_bytes());
    }
    bytes
}

fn spied(kind: Kind, device: &Arc<dyn BlockDevice>, fresh: bool) -> (Spy, Scheme) {
    let spy = Spy::default();
    let scheme = Scheme {
        home: Box::new(spy.clone()),
        ..crate::common::scheme(kind, device, Canary::default(), fresh)
    };
    (spy, scheme)
}

/// The places at a checkpoint, and at the recovery after a crash before it.
fn places(kind: Kind) -> (Places, Places) {
    let mem = crate::common::format(kind);
    let device: Arc<dyn BlockDevice> = Arc::new(mem.fork());
    let (at_home, scheme) = spied(kind, &device, true);
    let config = CacheConfig {
        block_size: BS,
        capacity: 64 << 10,
        policy: PolicyKind::Clock,
    };
    let cache = Arc::new(Cache::new(device.clone(), config));
    let config = JournalConfig {
        commit_secs: 3600,
        ..JournalConfig::default()
    };
    let journal = Journal::start(cache.clone(), scheme, config).unwrap();
    // Several laps of the ring, with older images of each block.
    for round in 0..98 {
        for nr in [PLAIN, NOISE, MAGIC] {
            let handle = journal.begin(1).unwrap();
            let block = cache.get(nr);
            handle.create(&block).unwrap().copy_from_slice(&content(nr));
            journal.commit(&handle.stop()).unwrap();
        }
        if round % 9 == 0 {
            journal.checkpoint().unwrap();
        }
    }
    let mut bytes = vec![0; (BLOCKS * BS as u64) as usize];
    device.read(0, &mut bytes).unwrap();
    journal.checkpoint().unwrap();
    let crashed: Arc<dyn BlockDevice> = Arc::new(stetfs_block::MemDevice::from_image(&bytes));
    let (at_recovery, scheme) = spied(kind, &crashed, false);
    recover(
        &scheme,
        &*crashed,
        BLOCKS,
        RecoveryOptions::default(),
        &mut |_, _| {},
    )
    .unwrap();
    for nr in [PLAIN, NOISE, MAGIC] {
        assert_eq!(crate::common::block(&*crashed, nr), content(nr), "{kind:?}");
    }
    let taken = |spy: Spy| spy.0.lock().clone();
    (taken(at_home), taken(at_recovery))
}

/// share.S1
#[test]
fn only_what_stands_in_the_log_as_it_is_has_a_place() {
    for kind in crate::common::ALL {
        let (at_home, at_recovery) = places(kind);
        assert_eq!(at_home, at_recovery, "{kind:?}");
        let has_place = [PLAIN, NOISE, MAGIC].map(|nr| at_home[&nr].is_some());
        let expected = match kind {
            // Packed, except for noise, which would not shrink.
            Kind::StetLz4 | Kind::StetZstd | Kind::StetZero => [false, true, false],
            Kind::Frame | Kind::Stet | Kind::StetDiscard => [true; 3],
            // The block with the magic is escaped.
            _ => [true, true, false],
        };
        assert_eq!(has_place, expected, "{kind:?}");
    }
}
