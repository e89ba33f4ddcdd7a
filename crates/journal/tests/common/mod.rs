//! A volume in memory with a log at its start, and the schemes to run it with.
#![allow(unreachable_pub)]

pub mod frame;
pub mod lanes;

use std::sync::Arc;

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::jbd2::{Features, Jbd2Log, LogArea};
use stetfs_journal::policy::Scheme;
use stetfs_journal::stet::{Compression, StetLog, StetOptions, Trim};
use stetfs_journal::{
    Cache, Canary, Journal, JournalConfig, RecoveryOptions, RecoveryReport, recover,
};
use stetfs_ondisk::jbd2::block::{BlockHeader, BlockType, MAGIC};
use stetfs_ondisk::jbd2::{CompatFlags, IncompatFlags, JournalSuperblock};
use zerocopy::{FromZeros, IntoBytes};

pub const BS: usize = 1024;
/// The number of log blocks; the rest of the volume is home locations.
pub const LOG: u64 = 256;
pub const BLOCKS: u64 = 1024;

/// The journals of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Jbd2,
    Jbd2NoChecksum,
    /// Checksum v1, as with the kernel's mount option `journal_checksum`.
    Jbd2V1,
    /// Checksum v2, as older tools make it; StetFS makes v3.
    Jbd2V2,
    Jbd2Async,
    /// Without metadata checksums, so with v1.
    Jbd2AsyncV1,
    Frame,
    Stet,
    StetLz4,
    StetZstd,
    StetDiscard,
    StetZero,
}

pub const ALL: [Kind; 12] = [
    Kind::Jbd2,
    Kind::Jbd2NoChecksum,
    Kind::Jbd2V1,
    Kind::Jbd2V2,
    Kind::Jbd2Async,
    Kind::Jbd2AsyncV1,
    Kind::Frame,
    Kind::Stet,
    Kind::StetLz4,
    Kind::StetZstd,
    Kind::StetDiscard,
    Kind::StetZero,
];

pub fn area(device: Arc<dyn BlockDevice>) -> LogArea {
    LogArea::new(device, BS as u32, &[(0, LOG)])
}

/// The superblock of an empty log of `blocks` blocks, without its checksum.
pub fn superblock(block: u32, blocks: u32) -> JournalSuperblock {
    let mut sb = JournalSuperblock::new_zeroed();
    sb.header = BlockHeader {
        h_magic: MAGIC.into(),
        h_blocktype: (BlockType::SuperblockV2 as u32).into(),
        h_sequence: 0.into(),
    };
    sb.s_blocksize = block.into();
    sb.s_maxlen = blocks.into();
    sb.s_first = 1.into();
    sb.s_sequence = 1.into();
    sb.s_uuid = *b"0123456789abcdef";
    sb.set_incompat(IncompatFlags::empty());
    sb
}

/// A formatted, empty volume.
pub fn format(kind: Kind) -> MemDevice {
    let device = MemDevice::new(BLOCKS * BS as u64);
    if kind == Kind::Frame {
        return device;
    }
    let mut sb = superblock(BS as u32, LOG as u32);
    sb.set_incompat(match kind {
        Kind::Jbd2V2 => IncompatFlags::CSUM_V2 | IncompatFlags::BIT64,
        _ => IncompatFlags::empty(),
    });
    if kind == Kind::Jbd2V1 {
        sb.s_feature_compat = CompatFlags::CHECKSUM.bits().into();
    }
    sb.update_checksum();
    device.write(0, sb.as_bytes()).unwrap();
    device
}

fn stet_options(kind: Kind) -> Option<StetOptions> {
    let (compression, trim) = match kind {
        Kind::Stet => (Compression::None, Trim::Off),
        Kind::StetLz4 => (Compression::Lz4, Trim::Off),
        Kind::StetZstd => (Compression::Zstd, Trim::Off),
        Kind::StetDiscard => (Compression::None, Trim::Discard),
        Kind::StetZero => (Compression::Lz4, Trim::Zero),
        _ => return None,
    };
    Some(StetOptions {
        compression,
        trim,
        chunk: 4096,
        ..StetOptions::default()
    })
}

fn stet(
    device: &Arc<dyn BlockDevice>,
    options: &StetOptions,
    barrier: bool,
    canary: Canary,
    fresh: bool,
) -> Scheme {
    let area = area(device.clone());
    let bytes = area.read(std::iter::once(0)).unwrap();
    let sb = JournalSuperblock::decode(&bytes[0], BS as u32, LOG).unwrap();
    let log = if fresh && !sb.incompat().contains(IncompatFlags::STET) {
        StetLog::make(area, sb, options, None, canary)
    } else {
        StetLog::open(area, sb, canary)
    };
    log.unwrap().scheme(options, barrier)
}

pub fn scheme(kind: Kind, device: &Arc<dyn BlockDevice>, canary: Canary, fresh: bool) -> Scheme {
    if kind == Kind::Frame {
        return frame::scheme(device, 2);
    }
    if let Some(options) = stet_options(kind) {
        return stet(device, &options, true, canary, fresh);
    }
    let log = Jbd2Log::open(area(device.clone()), canary).unwrap();
    if !fresh || kind == Kind::Jbd2V2 {
        return log.scheme();
    }
    log.prepare(Features {
        checksums: matches!(kind, Kind::Jbd2 | Kind::Jbd2Async),
        wide: true,
        async_commit: matches!(kind, Kind::Jbd2Async | Kind::Jbd2AsyncV1),
    })
    .unwrap()
}

/// Starts a journal on a clean volume.
pub fn start(kind: Kind, device: Arc<dyn BlockDevice>) -> (Arc<Cache>, Arc<Journal>) {
    let config = JournalConfig {
        commit_secs: 3600,
        ..JournalConfig::default()
    };
    start_with(kind, device, config)
}

/// Starts a journal with these settings on a clean volume.
pub fn start_with(
    kind: Kind,
    device: Arc<dyn BlockDevice>,
    config: JournalConfig,
) -> (Arc<Cache>, Arc<Journal>) {
    let JournalConfig {
        barrier, canary, ..
    } = config;
    let scheme = match stet_options(kind) {
        Some(options) => stet(&device, &options, barrier, canary, true),
        None => scheme(kind, &device, canary, true),
    };
    let cache = CacheConfig {
        block_size: BS,
        capacity: 64 << 10,
        policy: PolicyKind::Clock,
    };
    let cache = Arc::new(Cache::new(device, cache));
    let journal = Journal::start(cache.clone(), scheme, config);
    (cache, journal.unwrap())
}

/// Recovers a crashed volume in place.
pub fn recover_at(kind: Kind, device: &Arc<dyn BlockDevice>, canary: Canary) -> RecoveryReport {
    let scheme = scheme(kind, device, canary, false);
    let how = RecoveryOptions {
        canary,
        ..RecoveryOptions::default()
    };
    recover(&scheme, &**device, BLOCKS, how, &mut |_, _| {})
        .unwrap()
        .report
}

/// A copy of `device` after a crash now, recovered.
pub fn crashed(kind: Kind, device: &MemDevice) -> MemDevice {
    let copy = device.fork();
    let as_device: Arc<dyn BlockDevice> = Arc::new(copy.fork());
    let report = recover_at(kind, &as_device, Canary::default());
    tracing::debug!("{report:?}");
    let mut bytes = vec![0; (BLOCKS * BS as u64) as usize];
    as_device.read(0, &mut bytes).unwrap();
    MemDevice::from_image(&bytes)
}

pub fn block(device: &dyn BlockDevice, nr: u64) -> Vec<u8> {
    let mut bytes = vec![0; BS];
    device.read(nr * BS as u64, &mut bytes).unwrap();
    bytes
}

/// Fills a block with one value, in a handle of its own.
pub fn put(cache: &Cache, journal: &Journal, nr: u64, value: u8) -> stetfs_journal::CommitPoint {
    let handle = journal.begin(1).unwrap();
    let block = cache.get(nr);
    handle.create(&block).unwrap().fill(value);
    handle.stop()
}

/// The first log blocks of the StetFS frames, in order.
pub fn frames(device: &MemDevice) -> Vec<u64> {
    (1..LOG)
        .filter(|nr| block(device, *nr).starts_with(b"stetfrm1"))
        .collect()
}
