//! A device with a flash translation layer that replays the requests of a recording, and loses its
//! power at some event.

use std::collections::HashMap;
use std::io::IoSlice;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use stetfs::low::{BlockDevice, MemDevice};
use stetfs_block::{Event, Gather, Log, Replay, Write, sharing_of};
use stetfs_flash::ftl::{Ageing, Bast, Fast, Ftl, Geometry, PageMap, ShareLimits};
use stetfs_flash::segments::{LogDevice, LogOptions};
use stetfs_flash::{Kept, PowerCut, Ssd};

use crate::state::Arrival;

/// The layer below the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// An SSD with a page-level mapping and SHARE.
    Page,
    /// A card with the translation layer FAST.
    Fast,
    /// A card with the translation layer BAST.
    Bast,
    /// A log of segments on a page-level SSD.
    Log,
}

/// Bytes of an erase block; small, so that garbage collection never rests.
const ERASE_BLOCK: u64 = 64 << 10;
/// Percentage of spare blocks.
const SPARE: u32 = 15;
/// Bytes of a segment of the log.
const SEGMENT: u64 = 128 << 10;
/// Most steps of the flash until a power cut.
const STEPS: u64 = 40;
/// Bytes that are compared at a time.
const PART: u64 = 64 << 10;

enum Device {
    Ssd(Box<Ssd>),
    Log(Box<LogDevice<Ssd>>),
}

impl Device {
    /// An aged device with room for `size` bytes.
    fn make(layer: Layer, size: u64) -> Result<Device> {
        let ssd = |size: u64| -> Result<Ssd> {
            let geometry = Geometry::new(size.next_multiple_of(ERASE_BLOCK), ERASE_BLOCK, SPARE)?;
            let limits = ShareLimits {
                pairs: 508,
                references: 508,
            };
            let mut ftl: Box<dyn Ftl> = match layer {
                Layer::Fast => Box::new(Fast::new(geometry)),
                Layer::Bast => Box::new(Bast::new(geometry, Bast::LOGS)),
                Layer::Page | Layer::Log => Box::new(PageMap::new(geometry).with_limits(limits)),
            };
            Ageing::FULL.run(&mut *ftl, &mut ())?;
            Ok(Ssd::new(ftl, true))
        };
        Ok(match layer {
            Layer::Page | Layer::Fast | Layer::Bast => Device::Ssd(Box::new(ssd(size)?)),
            Layer::Log => {
                let options = LogOptions {
                    segment: SEGMENT,
                    ..LogOptions::new(size)
                };
                let below = ssd(size + size / 8 + 32 * SEGMENT)?;
                Device::Log(Box::new(LogDevice::format(below, options)?))
            }
        })
    }

    fn duplicate(&self) -> Device {
        match self {
            Device::Ssd(ssd) => Device::Ssd(Box::new(ssd.duplicate())),
            Device::Log(log) => Device::Log(Box::new(log.duplicate_on(log.inner().duplicate()))),
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        match self {
            Device::Ssd(ssd) => &**ssd,
            Device::Log(log) => &**log,
        }
    }

    fn ssd(&self) -> &Ssd {
        match self {
            Device::Ssd(ssd) => ssd,
            Device::Log(log) => log.inner(),
        }
    }

    fn cut(&self, kept: Kept) -> Result<()> {
        match self {
            Device::Ssd(ssd) => ssd.cut_power(kept)?,
            Device::Log(log) => log.cut_power(kept)?,
        }
        Ok(())
    }

    /// Repeats the request of an event.
    fn apply(&self, event: &Event) -> Result<()> {
        let device = self.device();
        match event {
            Event::Write {
                offset, data, fua, ..
            } => device.write_batch(&[Write {
                offset: *offset,
                data: Gather::One(IoSlice::new(data)),
                fua: *fua,
            }])?,
            Event::Discard { range, .. } => device.discard(range.clone())?,
            Event::Share { pairs, .. } => sharing_of(device)?.share_batch(pairs)?,
            Event::Flush { .. } => device.flush()?,
            Event::Done { .. } | Event::Mark { .. } => {}
        }
        Ok(())
    }
}

/// The number of the request that an event belongs to.
fn request(event: &Event) -> Option<u64> {
    match event {
        Event::Write { id, .. }
        | Event::Discard { id, .. }
        | Event::Share { id, .. }
        | Event::Flush { id } => Some(*id),
        Event::Done { .. } | Event::Mark { .. } => None,
    }
}

/// A device that has replayed a recording up to some event.
pub struct Below<'a> {
    base: &'a MemDevice,
    log: &'a Log,
    /// The device before the last request.
    before: Device,
    now: Device,
    /// The event of the last request.
    last: Option<usize>,
    at: usize,
}

impl<'a> Below<'a> {
    /// The device before the first event; it holds the volume, durably.
    ///
    /// # Errors
    /// No such device can be made.
    pub fn new(layer: Layer, base: &'a MemDevice, log: &'a Log) -> Result<Below<'a>> {
        let now = Device::make(layer, base.size())?;
        let empty = MemDevice::new(base.size());
        for range in empty.differences(base) {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            base.read(range.start, &mut bytes)?;
            now.device().write(range.start, &bytes)?;
        }
        now.device().flush()?;
        Ok(Below {
            base,
            log,
            before: now.duplicate(),
            now,
            last: None,
            at: 0,
        })
    }

    /// Replays the recording up to its first `event` events.
    ///
    /// # Errors
    /// The layer refused a request.
    pub fn advance_to(&mut self, event: usize) -> Result<()> {
        while self.at < event.min(self.log.len()) {
            let next = &self.log.events[self.at];
            if request(next).is_some() {
                self.before = self.now.duplicate();
                self.now
                    .apply(next)
                    .with_context(|| format!("event {}", self.at))?;
                self.last = Some(self.at);
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Whether the last request is acknowledged.
    fn is_answered(&self, last: usize) -> bool {
        let id = request(&self.log.events[last]);
        let since = self.log.events[last..self.at].iter();
        since
            .filter(|e| matches!(e, Event::Done { .. }))
            .any(|e| matches!(e, Event::Done { id: done, .. } if Some(*done) == id))
    }

    /// The content after a crash here. Nothing or everything of the caches survives; or, if
    /// `arrival` is a draw, some of their pages, and the power goes inside the last request if that
    /// is not acknowledged.
    ///
    /// # Errors
    /// The layer does not start again.
    pub fn left(&self, arrival: &Arrival) -> Result<MemDevice> {
        let inside = self.last.filter(|last| !self.is_answered(*last));
        self.left_by(arrival, inside)
    }

    /// Like [`Below::left`], with the power cut inside the request of event `inside`, which must be
    /// the last one.
    pub(super) fn left_by(&self, arrival: &Arrival, inside: Option<usize>) -> Result<MemDevice> {
        let device = match (arrival, inside) {
            (Arrival::Drawn(seed), Some(last)) => {
                let device = self.before.duplicate();
                let steps = fastrand::Rng::with_seed(*seed).u64(0..STEPS);
                device.ssd().cut_after(steps);
                // Without power the log may meet unexpected content.
                let _ = device.apply(&self.log.events[last]);
                device
            }
            _ => self.now.duplicate(),
        };
        device.cut(match arrival {
            Arrival::None => Kept::Nothing,
            Arrival::Drawn(seed) => Kept::Some(*seed),
            _ => Kept::All,
        })?;
        self.shown(device.device())
    }

    /// The content of a device, as an image that shares equal pages with the base.
    fn shown(&self, device: &dyn BlockDevice) -> Result<MemDevice> {
        let image = self.base.fork();
        let (mut ours, mut theirs) = (vec![0; PART as usize], vec![0; PART as usize]);
        let mut at = 0;
        while at < self.base.size() {
            let len = (self.base.size() - at).min(PART) as usize;
            device.read(at, &mut ours[..len])?;
            image.read(at, &mut theirs[..len])?;
            if ours[..len] != theirs[..len] {
                image.write(at, &ours[..len])?;
            }
            at += len as u64;
        }
        Ok(image)
    }
}

/// Checks each sector of an image: it must hold the content that is durable at this place of the
/// recording, or that of a request which is not durable yet.
///
/// # Errors
/// The first sector that holds neither.
pub fn check_sectors(replay: &Replay<'_>, log: &Log, image: &MemDevice) -> Result<()> {
    let sure = replay.only_durable();
    let mut pending: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut shared = false;
    for sector in replay.pending() {
        let event = &log.events[sector.event];
        shared |= matches!(event, Event::Share { .. });
        pending.entry(sector.offset).or_default().push(sector.event);
    }
    for range in sure.differences(image) {
        for at in range.step_by(512) {
            let (mut is, mut was) = ([0; 512], [0; 512]);
            image.read(at, &mut is)?;
            sure.read(at, &mut was)?;
            let wrote = |event: &usize| match &log.events[*event] {
                Event::Write { offset, data, .. } => {
                    let from = (at - offset) as usize;
                    data.get(from..from + 512).is_some_and(|bytes| bytes == is)
                }
                Event::Discard { .. } => is == [0; 512],
                _ => false,
            };
            let may = pending.get(&at).is_some_and(|all| all.iter().any(wrote));
            // Shares are not traced to their sectors: while one is pending, no sector is an error.
            ensure!(
                is == was || may || shared,
                "the sector at byte {at} is neither what was flushed nor what was written since"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::Recording;
    use crate::setup::{JournalSpec, Shape};
    use crate::state::points;
    use crate::workload::cases;

    /// The power must not go inside a flush that was acknowledged: the check finds the loss that
    /// such a cut causes.
    #[test]
    fn a_flush_that_was_answered_and_is_lost_is_seen() {
        let journal: JournalSpec = "ordered".parse().unwrap();
        let case = cases("smoke", 1).unwrap().pop().unwrap();
        let recording = Recording::make(&journal, Shape::default(), &case, 1).unwrap();
        let (base, log) = (&*recording.work.base.image, &recording.log);
        for layer in [Layer::Page, Layer::Fast, Layer::Bast, Layer::Log] {
            let mut replay = Replay::new(base, log);
            let mut below = Below::new(layer, base, log).unwrap();
            let (mut answered, mut seen) = (0, 0);
            for (event, _) in points(log, recording.start()) {
                replay.advance_to(event);
                below.advance_to(event).unwrap();
                let sound = below.left(&Arrival::Drawn(event as u64)).unwrap();
                check_sectors(&replay, log, &sound).unwrap();
                let Some(last) = below.last.filter(|last| below.is_answered(*last)) else {
                    continue;
                };
                if !matches!(log.events[last], Event::Flush { .. }) {
                    continue;
                }
                // Few draws lose a sector that matters below BAST.
                for seed in 0..200 {
                    answered += 1;
                    let lost = below.left_by(&Arrival::Drawn(seed), Some(last));
                    let checked = lost.and_then(|lost| check_sectors(&replay, log, &lost));
                    seen += u32::from(checked.is_err());
                }
            }
            assert!(seen > 0, "{layer:?}: none of {answered}");
        }
    }
}
