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
    /// The part of it, unless it is the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartInfo>,
    /// Whether it accepts no changes, by option or after an error.
    pub read_only: bool,
    /// The journal.
    pub journal: JournalStats,
    /// Latencies of commits and checkpoints, by name.
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
    /// The preset, with options that were given besides.
    pub preset: String,
    /// The part in use for each question about a journal: from the preset, from the options, or as
    /// these need it.
    pub parts: BTreeMap<&'static str, &'static str>,
    /// The way in which checkpoints write blocks to home locations.
    pub home: HomeInfo,
    /// The region of persistent memory for records of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionInfo>,
    /// Transactions committed.
    pub commits: u64,
    /// Syncs requested.
    pub syncs: u64,
    /// Syncs that needed no commit of their own.
    pub plain_syncs: u64,
    /// Bytes written to the log.
    pub bytes_logged: u64,
    /// Bytes of the images in them, before compression.
    pub bytes_packed: u64,
    /// Chunks of images that were stored uncompressed.
    pub chunks_raw: u64,
    /// Chunks compressed with LZ4.
    pub chunks_lz4: u64,
    /// Chunks compressed with Zstandard.
    pub chunks_zstd: u64,
    /// Processor time of compression, microseconds.
    pub packing_micros: u64,
    /// The measurements that `compress=auto` is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing_note: Option<String>,
    /// File-level records: syncs that needed no commit.
    pub file_records: u64,
    /// Data blocks in them.
    pub file_pages: u64,
    /// Log bytes of file-level records.
    pub file_bytes: u64,
    /// Flushes by the threads that sync files; syncs at the same time share one.
    pub file_flushes: u64,
    /// Syncs of files that needed a commit although there are records, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub file_commits: BTreeMap<&'static str, u64>,
    /// Blocks that checkpoints made the device share with their home locations.
    pub shared: u64,
    /// Blocks that checkpoints copied to their home locations.
    pub copied: u64,
    /// Bytes copied to home locations.
    pub bytes_home: u64,
    /// Checkpoint rounds.
    pub checkpoints: u64,
    /// Checkpoint rounds that a change waited for.
    pub forced_checkpoints: u64,
    /// Dependencies of committed transactions on transactions of other lanes.
    pub edges: u64,
    /// Changes in another lane than their thread's, because its log was full.
    pub borrowed: u64,
    /// Times a change waited for a transaction's snapshot.
    pub waits_locked: u64,
    /// Total time of these waits, microseconds.
    pub waiting_locked_micros: u64,
    /// Times a change waited for space in the log or in memory.
    pub waits_room: u64,
    /// Total time of these waits, microseconds.
    pub waiting_room_micros: u64,
    /// Pages copied by the thread that changed them, because a snapshot held them.
    pub copies: u64,
    /// Bytes of these pages.
    pub copies_bytes: u64,
    /// Total time of these copies, microseconds.
    pub copying_micros: u64,
    /// Pages copied by commits, before they are changed again.
    pub copies_ahead: u64,
    /// Bytes of these pages.
    pub copies_ahead_bytes: u64,
    /// Total time of these copies, microseconds.
    pub copying_ahead_micros: u64,
    /// Blocks revoked.
    pub revokes: u64,
    /// Mean time of a commit, microseconds.
    pub commit_micros_mean: u64,
}

impl JournalStats {
    /// The counters of a volume's journal.
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

/// The latencies of an operation. All times are in seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LatencyStats {
    /// Number of operations.
    pub count: u64,
    /// Sum of all times.
    pub sum: f64,
    /// The time that half of them did not exceed …
    pub p50: f64,
    /// … 90 percent, …
    pub p90: f64,
    /// … 99 percent, …
    pub p99: f64,
    /// … and 99.9 percent; each is the upper end of a bucket.
    pub p99_9: f64,
    /// The longest time.
    pub max: f64,
    /// All buckets, shortest first.
    pub buckets: Vec<LatencyBucket>,
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyBucket {
    /// The upper bound, seconds; the last bucket has none.
    pub up_to: Option<f64>,
    /// Number of operations in it.
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
    /// Batches of SHARE requests.
    pub shares: u64,
    /// Bytes shared.
    pub bytes_shared: u64,
    /// Requests bypass the host's page cache (O_DIRECT).
    pub direct: bool,
    /// Batches go through io_uring.
    pub io_uring: bool,
    /// The connection to the server of a network block device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStats>,
    /// Errors, by kind: `read`, `write`, `flush`, `discard`, `share`.
    pub errors: BTreeMap<&'static str, DeviceErrors>,
}

impl DeviceStats {
    /// The counters of a volume's device, with its errors.
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

/// The state of the connection to the server of a network block device.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkStats {
    /// Connections that are open.
    pub connections: usize,
    /// All connections use TLS.
    pub encrypted: bool,
    /// Times the server was lost.
    pub losses: u64,
    /// Bytes that were written again when the server was back.
    pub bytes_written_again: u64,
    /// Bytes that would have to be written again if the server were lost now.
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

/// Failed requests of one kind. A batch counts once.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceErrors {
    /// Number of failed requests.
    pub count: u64,
    /// The first failed request …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<DeviceError>,
    /// … and the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<DeviceError>,
}

/// A request that the device failed.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceError {
    /// Time, seconds since 1970 (UTC).
    pub time: f64,
    /// `volume`, or `journal` if that is on another device.
    pub device: &'static str,
    /// The first block of the request, in blocks of the volume from the device's beginning; `None`
    /// for a flush.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// The first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Length of the request, bytes.
    pub bytes: u64,
    /// The device's error number.
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
    /// The replacement policy.
    pub policy: &'static str,
    /// Bound of the cache, bytes.
    pub bytes_at_most: u64,
    /// Look-ups that found the block.
    pub hits: u64,
    /// Look-ups that had to read.
    pub misses: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// File blocks written back.
    pub written: u64,
    /// Number of runs of neighbouring blocks in which they were written.
    pub write_runs: u64,
    /// Bytes held now.
    pub bytes: u64,
}

impl CacheStats {
    /// The counters of a volume's cache.
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
    /// … of which this many are free for reuse.
    pub bytes_free: u64,
    /// Bytes prepared for later use.
    pub bytes_prepared: u64,
    /// Regions of 2 MiB that were prepared in time.
    pub regions_prepared: u64,
    /// Regions that were needed before they were prepared.
    pub regions_unprepared: u64,
}

impl MemoryStats {
    /// The current values.
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
    /// Inodes in memory now.
    pub in_memory: u64,
    /// Inodes that the kernel has cached.
    pub known_to_kernel: u64,
}

/// The cost of searches for free space.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SpaceStats {
    /// Groups whose bitmaps were looked into.
    pub groups_searched: u64,
    /// 64-bit words of bitmaps that were examined.
    pub words_searched: u64,
}

impl Volume {
    /// The current counters.
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
