//! Live counters of an open volume.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use stetfs_block::{BlockDevice, Failed, FailedRequest, FileDevice, Latency};
use stetfs_ext4::FsStats;
use stetfs_journal::compose::Axis;
use stetfs_nbd::NbdDevice;

use super::home::HomeInfo;
use super::part::PartInfo;
use super::region::RegionInfo;
use super::volume::Volume;

/// Counters since the volume was opened.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeStats {
    /// The volume.
    pub volume: String,
    /// The part of that, unless it is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartInfo>,
    /// Whether it takes no changes, as asked or after an error.
    pub read_only: bool,
    /// The journal.
    pub journal: JournalStats,
    /// How long commits and checkpoints took, by name.
    pub latency: BTreeMap<&'static str, LatencyStats>,
    /// The device.
    pub device: DeviceStats,
    /// The block cache.
    pub cache: CacheStats,
    /// Inodes.
    pub inodes: InodeStats,
    /// Searches for free space.
    pub space: SpaceStats,
    /// Memory for blocks, of the whole process.
    pub memory: MemoryStats,
}

/// Counters of the journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalStats {
    /// The preset, and what was said besides.
    pub preset: String,
    /// What answers each question about a journal: of the preset, of the options, or what they
    /// need.
    pub parts: BTreeMap<&'static str, &'static str>,
    /// How checkpoints bring blocks home.
    pub home: HomeInfo,
    /// The region of persistent memory that records of files go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionInfo>,
    /// Transactions committed.
    pub commits: u64,
    /// Syncs that were asked for.
    pub syncs: u64,
    /// Syncs that needed no commit of their own.
    pub plain_syncs: u64,
    /// Bytes written to the log.
    pub bytes_logged: u64,
    /// Bytes of the images in them, before packing.
    pub bytes_packed: u64,
    /// Chunks of images that were stored as they are.
    pub chunks_raw: u64,
    /// Chunks stored as LZ4.
    pub chunks_lz4: u64,
    /// Chunks stored as Zstandard.
    pub chunks_zstd: u64,
    /// Processor time of packing, microseconds.
    pub packing_micros: u64,
    /// What `compress=auto` goes by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing_note: Option<String>,
    /// File-level records: syncs that needed no commit.
    pub file_records: u64,
    /// Data blocks in them.
    pub file_pages: u64,
    /// Bytes of them in the log.
    pub file_bytes: u64,
    /// Flushes by the threads that sync files; syncs at the same time share one.
    pub file_flushes: u64,
    /// Syncs of files that took a commit although there are records, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub file_commits: BTreeMap<&'static str, u64>,
    /// Blocks that checkpoints had the device share to their homes.
    pub shared: u64,
    /// Blocks that checkpoints wrote home.
    pub copied: u64,
    /// Bytes of those.
    pub bytes_home: u64,
    /// Checkpoint rounds.
    pub checkpoints: u64,
    /// Those that somebody waited for.
    pub forced_checkpoints: u64,
    /// Transactions of other lanes that committed ones depend on.
    pub edges: u64,
    /// Changes that went into another lane than their thread's, for its log was full.
    pub borrowed: u64,
    /// Times a change waited for a transaction's snapshot.
    pub waits_locked: u64,
    /// How long in all, microseconds.
    pub waiting_locked_micros: u64,
    /// Times a change waited for room.
    pub waits_room: u64,
    /// How long in all, microseconds.
    pub waiting_room_micros: u64,
    /// Pages copied by who changed them, because a snapshot held them.
    pub copies: u64,
    /// Bytes of those.
    pub copies_bytes: u64,
    /// How long that took in all, microseconds.
    pub copying_micros: u64,
    /// Pages copied by commits, ahead of who may change them.
    pub copies_ahead: u64,
    /// Bytes of those.
    pub copies_ahead_bytes: u64,
    /// How long that took in all, microseconds.
    pub copying_ahead_micros: u64,
    /// Blocks revoked.
    pub revokes: u64,
    /// Mean time of a commit, microseconds.
    pub commit_micros_mean: u64,
}

impl JournalStats {
    /// Those of a volume, with what its journal counted.
    fn of(volume: &Volume, fs: &FsStats) -> Self {
        let j = &fs.journal;
        Self {
            preset: volume.journal().to_string(),
            parts: Axis::ALL
                .into_iter()
                .map(|axis| (axis.name(), volume.journal().part(axis).name))
                .collect(),
            home: volume.home(),
            region: volume.region(),
            commits: j.commits,
            syncs: j.syncs,
            plain_syncs: j.plain_syncs,
            bytes_logged: j.bytes_logged,
            bytes_packed: j.bytes_packed,
            chunks_raw: j.chunks_raw,
            chunks_lz4: j.chunks_lz4,
            chunks_zstd: j.chunks_zstd,
            packing_micros: j.packing_micros,
            packing_note: fs.packing_note.clone(),
            file_records: j.file_records,
            file_pages: j.file_pages,
            file_bytes: j.file_bytes,
            file_flushes: j.file_flushes,
            file_commits: fs
                .sync_reasons
                .iter()
                .copied()
                .filter(|(_, n)| *n > 0)
                .collect(),
            shared: j.shared,
            copied: j.copied,
            bytes_home: j.bytes_home,
            checkpoints: j.checkpoints,
            forced_checkpoints: j.forced_checkpoints,
            edges: j.edges,
            borrowed: j.borrowed,
            waits_locked: j.waits_locked,
            waiting_locked_micros: j.waiting_locked_nanos / 1000,
            waits_room: j.waits_room,
            waiting_room_micros: j.waiting_room_nanos / 1000,
            copies: j.copies,
            copies_bytes: j.copies_bytes,
            copying_micros: j.copying_nanos / 1000,
            copies_ahead: j.copies_ahead,
            copies_ahead_bytes: j.copies_ahead_bytes,
            copying_ahead_micros: j.copying_ahead_nanos / 1000,
            revokes: j.revokes,
            commit_micros_mean: j.commit_micros.checked_div(j.commits).unwrap_or_default(),
        }
    }
}

/// How long something took. All times are seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LatencyStats {
    /// How often it was.
    pub count: u64,
    /// All of them together.
    pub sum: f64,
    /// Half of them took no longer …
    pub p50: f64,
    /// … 90 percent, …
    pub p90: f64,
    /// … 99 percent, …
    pub p99: f64,
    /// … and 99.9 percent; each to the width of a bucket, upwards.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
    /// All buckets, shortest first.
    pub buckets: Vec<LatencyBucket>,
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyBucket {
    /// The longest time in it, seconds; the last has no end.
    pub up_to: Option<f64>,
    /// How often it was.
    pub count: u64,
}

impl From<&Latency> for LatencyStats {
    fn from(latency: &Latency) -> Self {
        let quantile = |share| latency.quantile(share).as_secs_f64();
        let bucket = |(up_to, count): (Option<Duration>, u64)| LatencyBucket {
            up_to: up_to.map(|end| end.as_secs_f64()),
            count,
        };
        Self {
            count: latency.count(),
            sum: latency.total.as_secs_f64(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: latency.longest.as_secs_f64(),
            buckets: latency.buckets().map(bucket).collect(),
        }
    }
}

/// Counters of the device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceStats {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
    /// Batches shared.
    pub shares: u64,
    /// Bytes shared.
    pub bytes_shared: u64,
    /// Requests pass the host's page cache by.
    pub direct: bool,
    /// Batches go through io_uring.
    pub io_uring: bool,
    /// Of an NBD server's export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStats>,
    /// What failed, by kind: `read`, `write`, `flush`, `discard`, `share`.
    pub errors: BTreeMap<&'static str, DeviceErrors>,
}

impl DeviceStats {
    /// Those of a volume's device, with what it failed.
    fn of(volume: &Volume, fs: &FsStats) -> Self {
        let host = volume.host();
        let device = host.device().stats();
        let file = host.file();
        let block_size = volume.fs().statfs().block_size;
        Self {
            reads: device.reads,
            bytes_read: device.bytes_read,
            writes: device.writes,
            bytes_written: device.bytes_written,
            flushes: device.flushes,
            bytes_discarded: device.bytes_discarded,
            shares: device.shares,
            bytes_shared: device.bytes_shared,
            direct: file.is_some_and(FileDevice::is_direct),
            io_uring: file.is_some_and(FileDevice::uses_uring),
            network: host.export().map(NetworkStats::of),
            errors: fs
                .failed
                .iter()
                .cloned()
                .map(|(op, failed)| (op.name(), DeviceErrors::new(failed, block_size)))
                .collect(),
        }
    }
}

/// How the server of a network block device is doing.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkStats {
    /// Connections that are open.
    pub connections: usize,
    /// All goes through TLS.
    pub encrypted: bool,
    /// How often the server was lost.
    pub losses: u64,
    /// Bytes that were written again when it was back.
    pub bytes_written_again: u64,
    /// Bytes that would be.
    pub bytes_unflushed: u64,
}

impl NetworkStats {
    fn of(export: &NbdDevice) -> NetworkStats {
        let state = export.state();
        NetworkStats {
            connections: state.connections,
            encrypted: export.address().is_encrypted(),
            losses: state.losses,
            bytes_written_again: state.bytes_written_again,
            bytes_unflushed: state.bytes_unflushed,
        }
    }
}

/// Requests of one kind that the device failed. A batch counts once.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceErrors {
    /// How often.
    pub count: u64,
    /// The first one …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<DeviceError>,
    /// … and the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<DeviceError>,
}

/// A request that the device failed.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceError {
    /// Seconds since 1970 began (UTC).
    pub time: f64,
    /// `volume`, or `journal` if that is on a device of its own.
    pub device: &'static str,
    /// The first block of the request, counted in blocks of the volume from the device's
    /// beginning; a flush has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// The first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Bytes of the request.
    pub bytes: u64,
    /// The device's answer.
    pub errno: i32,
}

impl DeviceErrors {
    fn new(failed: Failed, block_size: u32) -> Self {
        let error = |request: FailedRequest| DeviceError {
            time: request
                .at
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64(),
            device: request.device,
            block: request.offset.map(|at| at / u64::from(block_size.max(1))),
            offset: request.offset,
            bytes: request.len,
            errno: request.errno,
        };
        Self {
            count: failed.count,
            first: failed.first.map(error),
            last: failed.last.map(error),
        }
    }
}

/// Counters of the block cache.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CacheStats {
    /// Who leaves it.
    pub policy: &'static str,
    /// Bytes that it may hold.
    pub bytes_at_most: u64,
    /// Look-ups that found the block.
    pub hits: u64,
    /// Look-ups that had to read.
    pub misses: u64,
    /// Blocks that made room.
    pub evictions: u64,
    /// File blocks written home.
    pub written: u64,
    /// In so many runs of neighbours.
    pub write_runs: u64,
    /// Bytes held now.
    pub bytes: u64,
}

impl CacheStats {
    /// Those of a volume, with what its cache counted.
    fn of(volume: &Volume, fs: &FsStats) -> Self {
        Self {
            policy: volume.options().cache_policy.name(),
            bytes_at_most: volume.fs().cache_bytes(),
            hits: fs.cache.hits,
            misses: fs.cache.misses,
            evictions: fs.cache.evictions,
            written: fs.cache.written,
            write_runs: fs.cache.write_runs,
            bytes: fs.cache.bytes,
        }
    }
}

/// Memory for blocks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryStats {
    /// Bytes taken from the kernel for blocks …
    pub bytes: u64,
    /// … of which so many are free, to be used again.
    pub bytes_free: u64,
    /// Bytes prepared for use to come.
    pub bytes_prepared: u64,
    /// Regions of 2 MiB that were prepared when they were needed.
    pub regions_prepared: u64,
    /// Regions that were needed before they were prepared.
    pub regions_unprepared: u64,
}

impl MemoryStats {
    /// Now.
    fn read() -> Self {
        let memory = stetfs_block::memory_stats();
        Self {
            bytes: memory.in_use,
            bytes_free: memory.free,
            bytes_prepared: memory.ready,
            regions_prepared: memory.prepared,
            regions_unprepared: memory.unprepared,
        }
    }
}

/// Inodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct InodeStats {
    /// In memory now.
    pub in_memory: u64,
    /// That the kernel remembers.
    pub known_to_kernel: u64,
}

/// What searches for free space cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SpaceStats {
    /// Groups whose bitmaps were looked into.
    pub groups_searched: u64,
    /// 64-bit words of bitmaps looked at.
    pub words_searched: u64,
}

impl Volume {
    /// The counters.
    pub fn stats(&self) -> VolumeStats {
        let fs = self.fs().stats();
        VolumeStats {
            volume: self.path().display().to_string(),
            part: self.span().map(PartInfo::from),
            read_only: self.fs().is_read_only(),
            journal: JournalStats::of(self, &fs),
            latency: BTreeMap::from([
                ("commit", LatencyStats::from(&fs.latency.commit)),
                ("checkpoint", LatencyStats::from(&fs.latency.checkpoint)),
            ]),
            device: DeviceStats::of(self, &fs),
            cache: CacheStats::of(self, &fs),
            inodes: InodeStats {
                in_memory: fs.inodes,
                known_to_kernel: fs.lookups,
            },
            space: SpaceStats {
                groups_searched: fs.groups_searched,
                words_searched: fs.words_searched,
            },
            memory: MemoryStats::read(),
        }
    }
}
