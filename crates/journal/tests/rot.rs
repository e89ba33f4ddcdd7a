//! Damage of the log after it was durable: an error, not an early end of the log.
use std::sync::Arc;

use crate::common::{BLOCKS, BS, Kind, block, frames, put, recover_at, scheme, start, start_with};
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_journal::{Canary, JournalConfig, RecoveryOptions, recover};
use stetfs_ondisk::jbd2::BlockType;
use stetfs_ondisk::jbd2::block::read_header;
use stetfs_ondisk::stet::header::copy_at;

/// Three transactions of one block each: blocks 300, 301 and 302.
fn volume(kind: Kind) -> MemDevice {
    let device = Arc::new(crate::common::format(kind));
    let (cache, journal) = start(kind, device.clone());
    for nr in 300..303 {
        journal.commit(&put(&cache, &journal, nr, 7)).unwrap();
    }
    device.fork()
}

/// The log blocks of this type, in order.
fn find(device: &MemDevice, kind: BlockType) -> Vec<u64> {
    (1..crate::common::LOG)
        .filter(|nr| read_header(&block(device, *nr)).is_some_and(|(k, _)| k == kind))
        .collect()
}

/// Flips a bit of this log block.
fn rot(device: &MemDevice, nr: u64, byte: u64) {
    let at = nr * BS as u64 + byte;
    let mut old = [0];
    device.read(at, &mut old).unwrap();
    device.write(at, &[old[0] ^ 4]).unwrap();
}

/// Recovers. Returns which of the three blocks are home, and what was left out.
fn recovered(
    kind: Kind,
    device: &Arc<MemDevice>,
    salvage: bool,
) -> Result<(Vec<bool>, Vec<String>), String> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let scheme = scheme(kind, &device, Canary::default(), false);
    let how = RecoveryOptions {
        salvage,
        ..RecoveryOptions::default()
    };
    let found =
        recover(&scheme, &*device, BLOCKS, how, &mut |_, _| {}).map_err(|e| e.to_string())?;
    scheme.media.iter().for_each(|m| m.retire().unwrap());
    let home = |nr| block(&*device, nr) == [7; BS];
    Ok(((300..303).map(home).collect(), found.report.damage.lines()))
}

/// The blocks that a recovery writes home after a bit of this log block is flipped, or its error.
fn with_rot(kind: Kind, nr: u64, byte: u64) -> Result<Vec<bool>, String> {
    let device = Arc::new(volume(kind));
    rot(&device, nr, byte);
    let (home, damage) = recovered(kind, &device, false)?;
    assert_eq!(damage, [""; 0]);
    Ok(home)
}

/// Salvage writes intact images home, and content that the damage hid does not come back later.
#[test]
fn a_damaged_log_is_salvaged() {
    for kind in [Kind::Jbd2, Kind::Stet, Kind::StetLz4] {
        let whole = volume(kind);
        let (second, image) = match kind {
            Kind::Jbd2 => (
                find(&whole, BlockType::Commit)[1],
                find(&whole, BlockType::Descriptor)[1] + 1,
            ),
            _ => (frames(&whole)[1], frames(&whole)[1] + 1),
        };
        // The end or head of a transaction, and its content.
        for (nr, byte, home) in [
            (second, 20, [true, false, false]),
            (image, 3, [true, false, true]),
        ] {
            let device = Arc::new(volume(kind));
            rot(&device, nr, byte);
            recovered(kind, &device, false).unwrap_err();
            let (found, damage) = recovered(kind, &device, true).unwrap();
            assert_eq!(
                (&found[..], damage.is_empty()),
                (&home[..], false),
                "{kind:?} {nr}: {damage:?}"
            );

            // The log is empty now, and no older transaction follows a new one in it.
            assert_eq!(recovered(kind, &device, false).unwrap().1, [""; 0]);
            let (cache, journal) = start(kind, device.clone());
            let point = put(&cache, &journal, 300, 9);
            journal.commit(&point).unwrap();
            let (now, _) = recovered(kind, &Arc::new(device.fork()), false).unwrap();
            assert_eq!(now, [false, found[1], found[2]], "{kind:?} {nr}");
        }
    }
}

#[test]
fn rot_in_what_was_committed_is_an_error() {
    for kind in [Kind::Jbd2, Kind::Jbd2V2] {
        let whole = volume(kind);
        let commits = find(&whole, BlockType::Commit);
        let descriptors = find(&whole, BlockType::Descriptor);
        assert_eq!((commits.len(), descriptors.len()), (3, 3));
        // The magic number, the type, the transaction's number, the content.
        for byte in [0, 7, 11, 20] {
            for nr in descriptors.iter().chain(&commits[..2]) {
                let why = with_rot(kind, *nr, byte)
                    .expect_err(&format!("{kind:?}, log block {nr}, byte {byte}"));
                assert!(why.contains("was committed, but"), "{why}");
            }
            let newest = with_rot(kind, commits[2], byte);
            if byte < 12 {
                // Without anything behind it, the newest commit block may as well not have been
                // written.
                assert_eq!(newest, Ok(vec![true, true, false]));
            } else {
                // The commit block was written: its contents are in one sector.
                assert!(newest.unwrap_err().contains("was committed, but"));
            }
        }
        // The rest of the block behind the record's sector has no meaning.
        assert_eq!(with_rot(kind, commits[2], 600), Ok(vec![true; 3]));
        for nr in descriptors.iter().map(|d| d + 1) {
            let why = with_rot(kind, nr, 100).unwrap_err();
            assert!(why.contains("checksum of log block"), "{why}");
        }
    }
}

/// One checksum for the whole transaction, in its commit block.
#[test]
fn rot_under_a_transactions_sum_is_an_error() {
    let kind = Kind::Jbd2V1;
    let whole = volume(kind);
    let commits = find(&whole, BlockType::Commit);
    let descriptors = find(&whole, BlockType::Descriptor);
    assert_eq!((commits.len(), descriptors.len()), (3, 3));
    for i in 0..3 {
        // The UUID behind the first tag, the image, the checksum itself and its kind.
        let places = [
            (descriptors[i], 30),
            (descriptors[i] + 1, 3),
            (commits[i], 18),
            (commits[i], 12),
        ];
        for (nr, byte) in places {
            let why = with_rot(kind, nr, byte).expect_err(&format!("log block {nr}, byte {byte}"));
            assert!(why.contains("was committed, but"), "{why}");
        }
    }
    // A commit block without a checksum was written while the log had none.
    let device = Arc::new(volume(kind));
    let at = commits[1] * BS as u64 + 12;
    device.write(at, &[0; 8]).unwrap();
    assert_eq!(recovered(kind, &device, false).unwrap().0, [true; 3]);
}

/// A revoke block without valid contents: without it, freed blocks would come back.
#[test]
fn a_senseless_revoke_block_is_an_error() {
    for kind in [Kind::Jbd2NoChecksum, Kind::Jbd2V1] {
        let device = Arc::new(crate::common::format(kind));
        let (cache, journal) = start(kind, device.clone());
        journal.commit(&put(&cache, &journal, 300, 7)).unwrap();
        let handle = journal.begin(1).unwrap();
        handle.revoke(300, 1).unwrap();
        journal.commit(&handle.stop()).unwrap();
        let crashed = Arc::new(device.fork());
        let revokes = find(&crashed, BlockType::Revoke);
        assert_eq!(revokes.len(), 1, "{kind:?}");
        crashed
            .write(revokes[0] * BS as u64 + 12, &5000u32.to_be_bytes())
            .unwrap();
        let why = recovered(kind, &crashed, false).unwrap_err();
        assert!(why.contains("was committed, but"), "{why}");
        assert!(why.contains("r_count"), "{why}");
    }
}

#[test]
fn rot_in_a_frame_that_others_follow_is_an_error() {
    for kind in [Kind::Stet, Kind::StetLz4, Kind::StetZstd] {
        let whole = volume(kind);
        let frames = frames(&whole);
        assert_eq!(frames.len(), 3, "{kind:?}");
        // The magic number, the checksum, the epoch, the sequence, the lane, the length, the table.
        for byte in [0, 9, 17, 24, 48, 52, 53, 56, 90] {
            for nr in &frames[..2] {
                let why = with_rot(kind, *nr, byte)
                    .expect_err(&format!("{kind:?}, log block {nr}, byte {byte}"));
                assert!(why.contains("was committed (frame"), "{why}");
            }
            // Without anything behind it, the newest frame may as well have been torn.
            let last = with_rot(kind, frames[2], byte);
            assert_eq!(last, Ok(vec![true, true, false]), "{kind:?}, byte {byte}");
        }
        // The copy of the header that says that the log is in use.
        let newest = copy_at(3, BS as u32);
        let why = with_rot(kind, newest, 64).unwrap_err();
        assert!(why.contains("the header's newer copy is damaged"), "{why}");
        let older = with_rot(kind, copy_at(2, BS as u32), 64);
        assert_eq!(older, Ok(vec![true; 3]), "{kind:?}");
        // The chunk of the frame.
        for nr in &frames[..2] {
            let why = with_rot(kind, nr + 1, 3).unwrap_err();
            assert!(why.contains("does not match its checksum"), "{why}");
        }
    }
}

/// Without barriers a frame may be complete before the one in front of it.
#[test]
fn without_barriers_a_hole_ends_the_log() {
    let device = Arc::new(crate::common::format(Kind::Stet));
    let config = JournalConfig {
        barrier: false,
        ..JournalConfig::default()
    };
    let (cache, journal) = start_with(Kind::Stet, device.clone(), config);
    for nr in 300..303 {
        journal.commit(&put(&cache, &journal, nr, 7)).unwrap();
    }
    let crashed = device.fork();
    let second = frames(&crashed)[1];
    crashed.write(second * BS as u64, &[0; BS]).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(crashed);
    let report = recover_at(Kind::Stet, &device, Canary::default());
    assert_eq!(report.transactions, 1);
}

#[test]
fn with_async_commit_the_next_transaction_tells() {
    for kind in [Kind::Jbd2Async, Kind::Jbd2AsyncV1] {
        let whole = volume(kind);
        let commits = find(&whole, BlockType::Commit);
        let descriptors = find(&whole, BlockType::Descriptor);
        assert_eq!((commits.len(), descriptors.len()), (3, 3));
        for i in 0..2 {
            for (nr, byte) in [
                (descriptors[i], 30),
                (descriptors[i] + 1, 20),
                (commits[i], 18),
            ] {
                let why = with_rot(kind, nr, byte).expect_err(&format!("{kind:?} {nr}"));
                assert!(why.contains("was committed, but"), "{why}");
            }
        }
        for (nr, byte) in [
            (descriptors[2], 30),
            (descriptors[2] + 1, 20),
            (commits[2], 18),
        ] {
            assert_eq!(
                with_rot(kind, nr, byte),
                Ok(vec![true, true, false]),
                "{kind:?} {nr}"
            );
        }
    }
}

/// Damage behind a torn transaction is damage if committed content follows it.
#[test]
fn a_torn_transaction_hides_no_damage() {
    let kind = Kind::Jbd2Async;
    let device = Arc::new(volume(kind));
    let descriptors = find(&device, BlockType::Descriptor);
    rot(&device, descriptors[0] + 1, 20);
    rot(&device, descriptors[1], 20);
    let why = recovered(kind, &device, false).unwrap_err();
    assert!(why.contains("was committed, but"), "{why}");
}

/// A commit block of an older log in the same place: its time is before that of the transaction in
/// front of it, so the log ends there.
#[test]
fn a_commit_block_of_an_older_log_ends_the_log() {
    let kind = Kind::Jbd2;
    let device = Arc::new(volume(kind));
    let commits = find(&device, BlockType::Commit);
    // The seconds of its time; its checksum no longer matches.
    let at = commits[2] * BS as u64 + 48;
    device.write(at, &1000u64.to_be_bytes()).unwrap();
    assert_eq!(
        recovered(kind, &device, false).unwrap().0,
        [true, true, false]
    );
    // A dry run reports damage, too.
    let shared: Arc<dyn BlockDevice> = Arc::new(volume(kind));
    let image = find(&volume(kind), BlockType::Descriptor)[1] + 1;
    shared.write(image * BS as u64, &[9; 3]).unwrap();
    let scheme = scheme(kind, &shared, Canary::default(), false);
    let how = RecoveryOptions {
        dry_run: true,
        ..RecoveryOptions::default()
    };
    recover(&scheme, &*shared, BLOCKS, how, &mut |_, _| {}).unwrap_err();
}
