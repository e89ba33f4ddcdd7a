//! Recordings: a volume, the requests to its device, and the answers that the workload got
//! meanwhile.
//!
//! The file holds a magic number, a header in JSON, the pages of the volume that are not zero, the
//! device's events, the region's events if there is a region, and a checksum (XXH3) of all that.
//! Numbers are little-endian.

mod log;
mod pages;
mod region;
mod stream;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use stetfs::low::{BlockDevice, MemDevice};
use stetfs_block::{Event, Log};
use stetfs_nvm::{MemRegion, RegionLog};
use xxhash_rust::xxh3::Xxh3;

use self::stream::{In, Out};
use crate::machine::Crashed;
use crate::setup::{JournalSpec, Shape, work_on};
use crate::state::{Arrival, StateId, Why};
use crate::volume::{Base, Batches, able, base_with};
use crate::walk::{Place, Walk, places};
use crate::work::Work;
use crate::workload::script::DeviceFailure;
use crate::workload::{Case, text};

const MAGIC: &[u8; 8] = b"StetRec1";
/// Largest header in bytes; this and the next bound limit what a damaged file can ask for.
const HEADER_MAX: u64 = 64 << 20;
/// Largest volume, bytes.
const VOLUME_MAX: u64 = 1 << 40;
/// The description of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the workload.
    pub workload: String,
    /// The journal, as `PRESET[,option…]`.
    pub journal: String,
    /// Bytes in a block.
    pub block: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// The device's promise for batches that it shares.
    #[serde(default)]
    pub batches: Batches,
    /// Whether the device has FUA.
    #[serde(default)]
    pub fua: bool,
    /// Bytes of the region for sync records; `None` without one.
    #[serde(default)]
    pub region: Option<u64>,
    /// The seed of the workload.
    pub seed: u64,
    /// Number of operations of the first script before which no crash is tried.
    pub setup: usize,
    /// Number of operations of each script that earlier recordings hold.
    #[serde(default)]
    pub before: Vec<usize>,
    /// Whether the sums of blocks and of inodes, free and used, may change.
    #[serde(default)]
    is_open: bool,
    /// Number of the flush that fails, counted from 0.
    #[serde(default)]
    pub fail_flush: Option<u64>,
    /// The device failure that each script met.
    #[serde(default)]
    failures: Vec<Option<DeviceFailure>>,
    /// The scripts, as text.
    pub script: String,
    /// Size of the volume in bytes.
    volume: u64,
    /// Sums of blocks and of inodes, free and used.
    sums: (u64, u64),
}

impl Header {
    /// The shape of the volume.
    pub fn shape(&self) -> Shape {
        Shape {
            block: self.block,
            journal_blocks: self.journal_blocks,
            batches: self.batches,
            fua: self.fua,
            region: self.region,
        }
    }
}

/// A recording with the work that it holds.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its description.
    pub header: Header,
    /// The work, with the options for opening the volume again.
    pub work: Work,
    /// The events of the device.
    pub log: Log,
    /// The events of the region; empty without one.
    pub region: RegionLog,
}

impl Recording {
    /// Runs a case on a fresh volume over a recording device.
    ///
    /// # Errors
    /// The workload failed on a sound device.
    pub fn make(journal: &JournalSpec, shape: Shape, case: &Case, seed: u64) -> Result<Recording> {
        let base = base_with(shape.block, shape.journal_blocks)?;
        Recording::make_on(&base, journal, shape, case, seed)
    }

    /// Runs a case on a copy of `base` over a recording device. Such a recording must not be saved,
    /// because loading puts it on a fresh volume.
    ///
    /// # Errors
    /// The workload failed on a sound device.
    pub fn make_on(
        base: &Base,
        journal: &JournalSpec,
        shape: Shape,
        case: &Case,
        seed: u64,
    ) -> Result<Recording> {
        let work = work_on(base, journal, shape, case)?;
        let (log, region) = work
            .record(case.fail_flush)
            .with_context(|| format!("recording {} on {journal}", case.name))?;
        Ok(Recording::of(
            work,
            (log, region),
            journal,
            shape,
            case,
            seed,
        ))
    }

    /// The recording of finished work.
    pub(crate) fn of(
        work: Work,
        (log, region): (Log, RegionLog),
        journal: &JournalSpec,
        shape: Shape,
        case: &Case,
        seed: u64,
    ) -> Recording {
        let header = Header {
            workload: case.name.clone(),
            journal: journal.to_string(),
            block: shape.block,
            journal_blocks: shape.journal_blocks,
            batches: shape.batches,
            fua: shape.fua,
            region: shape.region,
            seed,
            setup: case.setup,
            before: work.before.clone(),
            is_open: !work.base.is_closed,
            fail_flush: case.fail_flush,
            failures: work.scripts.iter().map(|s| s.failure.clone()).collect(),
            script: text::write(&case.scripts),
            volume: work.base.image.size(),
            sums: (work.base.blocks, work.base.inodes),
        };
        Recording {
            header,
            work,
            log,
            region,
        }
    }

    /// The first event after the setup.
    pub fn start(&self) -> usize {
        self.work.event_after(&self.log, self.header.setup)
    }

    /// A walk through the recording, from the machine before the work ([`Work::machine`]).
    pub fn walk<'l>(&'l self, base: &Crashed) -> Walk<'l> {
        Walk::new(base, &self.log, &self.region)
    }

    /// The places to crash at, from this event on.
    pub fn places(&self, from: usize) -> Vec<(Place, Why)> {
        places(&self.log, &self.region, from)
    }

    /// The machine that a crash leaves.
    pub fn crashed(&self, state: &StateId) -> Crashed {
        self.walk(&self.work.machine()).make(state)
    }

    /// Number of batches that the device shared.
    pub fn shares(&self) -> u64 {
        let shares = |e: &&Event| matches!(e, Event::Share { .. });
        self.log.events.iter().filter(shares).count() as u64
    }

    /// The region with all stores.
    pub fn left_in_region(&self) -> Option<MemRegion> {
        let all = StateId {
            event: self.log.len(),
            arrival: Arrival::All,
            region: None,
        };
        let left = self.crashed(&all).region?;
        Some(left.fork())
    }

    /// The event that reports the first failed change or flush.
    pub fn failure(&self) -> Option<usize> {
        let failed = |e: &Event| matches!(e, Event::Done { ok: false, .. });
        self.log.events.iter().position(failed)
    }

    /// The case that was recorded.
    ///
    /// # Errors
    /// The header is not one that [`Recording::make`] made.
    pub fn case(&self) -> Result<Case> {
        Ok(Case {
            name: self.header.workload.clone(),
            scripts: text::parse(&self.header.script).map_err(|e| anyhow!("the script: {e}"))?,
            setup: self.header.setup,
            fail_flush: self.header.fail_flush,
        })
    }

    /// Saves the recording to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        let mut out = Out {
            file: BufWriter::new(file),
            sum: Xxh3::new(),
        };
        self.write(&mut out)
            .and_then(|()| out.finish())
            .with_context(|| format!("writing {}", path.display()))
    }

    fn write(&self, out: &mut Out) -> std::io::Result<()> {
        out.bytes(MAGIC)?;
        out.slice(&serde_json::to_vec(&self.header)?)?;
        pages::write(&self.work.base.image, out)?;
        log::write(&self.log, out)?;
        match self.header.region {
            Some(_) => region::write(&self.region, out),
            None => Ok(()),
        }
    }

    /// Loads a recording from a file.
    ///
    /// # Errors
    /// The file is no recording, or it is damaged.
    pub fn load(path: &Path) -> Result<Recording> {
        let file = File::open(path).with_context(|| {
            format!(
                "opening the recording {}; `stetfs crash record` makes one",
                path.display()
            )
        })?;
        let mut input = In {
            left: file.metadata()?.len(),
            file: BufReader::new(file),
            sum: Xxh3::new(),
        };
        Recording::read(&mut input)
            .with_context(|| format!("{} is not a usable recording", path.display()))
    }

    fn read(input: &mut In) -> Result<Recording> {
        ensure!(
            input.bytes(MAGIC.len() as u64)? == MAGIC,
            "wrong magic number"
        );
        let header: Header =
            serde_json::from_slice(&input.slice(HEADER_MAX)?).context("the header")?;
        ensure!(header.volume <= VOLUME_MAX, "the volume is too large");
        let image = able(MemDevice::new(header.volume), header.batches, header.fua);
        pages::read(input, &image)?;
        let log = log::read(input, header.volume)?;
        let size = header.region;
        let region = size.map(|size| region::read(input, size)).transpose()?;
        let sum = input.sum.digest();
        ensure!(input.number()? == sum, "wrong checksum");
        let journal: JournalSpec = header.journal.parse().map_err(anyhow::Error::msg)?;
        let case = Case {
            name: header.workload.clone(),
            scripts: text::parse(&header.script).map_err(|e| anyhow!("the script: {e}"))?,
            setup: header.setup,
            fail_flush: header.fail_flush,
        };
        let base = Base {
            image: Arc::new(image),
            block: header.block,
            blocks: header.sums.0,
            inodes: header.sums.1,
            is_closed: !header.is_open,
        };
        let mut work = work_on(&base, &journal, header.shape(), &case)?;
        let before = header.before.iter().zip(&work.scripts);
        for (slot, (n, script)) in work.before.iter_mut().zip(before) {
            ensure!(
                *n <= script.ops.len(),
                "the header counts more finished operations than the script has"
            );
            *slot = *n;
        }
        for (script, failure) in work.scripts.iter_mut().zip(&header.failures) {
            script.failure.clone_from(failure);
        }
        Ok(Recording {
            header,
            work,
            log,
            region: region.unwrap_or_default(),
        })
    }
}

/// Every case once for each of its flushes, with that flush failing.
///
/// # Errors
/// The workload failed on a sound device.
pub fn failing(
    journal: &JournalSpec,
    shape: Shape,
    cases: &[Case],
    seed: u64,
) -> Result<Vec<Case>> {
    let count = |events: &[Event]| {
        let flushes = events.iter().filter(|e| matches!(e, Event::Flush { .. }));
        flushes.count() as u64
    };
    let mut all = Vec::new();
    for case in cases {
        let sound = Recording::make(journal, shape, case, seed)?;
        let flushes = count(&sound.log.events[..sound.start()])..count(&sound.log.events);
        all.extend(flushes.map(|n| Case {
            name: format!("{}/flush-{n}", case.name),
            fail_flush: Some(n),
            ..case.clone()
        }));
    }
    Ok(all)
}
