//! The tap: a recording of a volume's I/O, above its cache and below, for a tracing program.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use stetfs_sync::timed::{
    Instant, Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::{BlockDevice, Read, Result, Share, ShareLimits, SharePair, Stats, Write, sharing_of};

/// Maximum number of requests of a layer that are kept for the recording program; further ones are
/// lost, and counted.
const MOST: usize = 1 << 20;
/// Maximum number of requests of a layer in one answer.
const AT_ONCE: usize = 1 << 14;
/// Time without a call of `take` after which the recording program counts as gone: the recording
/// ends.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The layers at which requests are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Blocks of files that are read or written, cached or not.
    Above,
    /// Requests to the device.
    Below,
}

/// One recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Time in microseconds since the recording began.
    pub micros: u64,
    /// Whether it is a write.
    pub write: bool,
    /// The first byte on the volume.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The requests since the last call of `take`, in the order of time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Requests above the cache.
    pub above: Vec<Asked>,
    /// Requests below the cache.
    pub below: Vec<Asked>,
    /// Number of requests lost since the recording began.
    pub lost: u64,
    /// Whether more requests can be taken at once.
    pub more: bool,
}

struct Recording {
    id: u64,
    begun: Instant,
    /// Time of the last call of `take`.
    taken: Instant,
    above: VecDeque<Asked>,
    below: VecDeque<Asked>,
    lost: u64,
}

/// The point that a volume's requests pass. Without a recording a request costs one load of a flag.
#[derive(Default)]
pub struct Tap {
    on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of recordings so far.
    count: u64,
    recording: Option<Recording>,
}

impl Tap {
    /// Records a request for these `bytes` of the volume.
    pub fn note(&self, layer: Layer, write: bool, bytes: Range<u64>) {
        if self.on.load(Ordering::Relaxed) {
            self.keep(layer, write, &bytes);
        }
    }

    #[cold]
    fn keep(&self, layer: Layer, write: bool, bytes: &Range<u64>) {
        let mut state = self.state.lock();
        let Some(recording) = state.recording.as_mut() else {
            return;
        };
        // Read under the lock: requests are in the order of time.
        let now = Instant::now();
        if now.duration_since(recording.taken) > TIMEOUT {
            self.on.store(false, Ordering::Relaxed);
            state.recording = None;
            return;
        }
        let asked = Asked {
            micros: now.duration_since(recording.begun).as_micros() as u64,
            write,
            offset: bytes.start,
            len: bytes.end.saturating_sub(bytes.start),
        };
        let kept = match layer {
            Layer::Above => &mut recording.above,
            Layer::Below => &mut recording.below,
        };
        match kept.len() < MOST {
            true => kept.push_back(asked),
            false => recording.lost += 1,
        }
    }

    /// Begins a recording, and returns its number; `None` while another program records.
    pub fn begin(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let theirs = state.recording.as_ref();
        if theirs.is_some_and(|r| now.duration_since(r.taken) <= TIMEOUT) {
            return None;
        }
        state.count += 1;
        let id = state.count;
        state.recording = Some(Recording {
            id,
            begun: now,
            taken: now,
            above: VecDeque::new(),
            below: VecDeque::new(),
            lost: 0,
        });
        self.on.store(true, Ordering::Relaxed);
        Some(id)
    }

    /// The requests since the last call; `None` if the recording does not exist any more. `end`
    /// stops the recording: no further requests are kept, and it is removed when all were taken.
    pub fn take(&self, id: u64, end: bool) -> Option<Taken> {
        let mut state = self.state.lock();
        let recording = state.recording.as_mut().filter(|r| r.id == id)?;
        recording.taken = Instant::now();
        let some = |kept: &mut VecDeque<Asked>| kept.drain(..kept.len().min(AT_ONCE)).collect();
        let taken = Taken {
            above: some(&mut recording.above),
            below: some(&mut recording.below),
            lost: recording.lost,
            more: !(recording.above.is_empty() && recording.below.is_empty()),
        };
        if end {
            self.on.store(false, Ordering::Relaxed);
            if !taken.more {
                state.recording = None;
            }
        }
        Some(taken)
    }
}

/// A device whose requests pass a tap.
pub struct Tapped<D> {
    inner: D,
    tap: Arc<Tap>,
}

impl<D: BlockDevice> Tapped<D> {
    /// A wrapper around a device.
    pub fn new(inner: D, tap: Arc<Tap>) -> Self {
        Tapped { inner, tap }
    }

    fn reads(&self, reads: &[Read<'_>]) {
        for read in reads {
            let bytes = read.offset..read.offset.saturating_add(read.len());
            self.tap.note(Layer::Below, false, bytes);
        }
    }

    fn writes(&self, writes: &[Write<'_>]) {
        for write in writes {
            let bytes = write.offset..write.offset.saturating_add(write.len());
            self.tap.note(Layer::Below, true, bytes);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Tapped<D> {
    crate::shape_of_inner!();

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        self.tap.note(Layer::Below, false, offset..end);
        self.inner.read(offset, buf)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.reads(reads);
        self.inner.read_batch(reads)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        self.tap.note(Layer::Below, true, offset..end);
        self.inner.write(offset, data)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.writes(writes);
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn write_batch_flush(&self, writes: &[Write<'_>]) -> Result<()> {
        self.writes(writes);
        self.inner.write_batch_flush(writes)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.tap.note(Layer::Below, true, range.clone());
        self.inner.zero(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<D: BlockDevice> Share for Tapped<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        sharing_of(&self.inner)?.share_batch(pairs)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::MemDevice;

    fn asked(all: &[Asked]) -> Vec<(bool, u64, u64)> {
        all.iter().map(|a| (a.write, a.offset, a.len)).collect()
    }

    #[test]
    fn a_recording_has_what_came_while_it_ran_once() {
        let tap = Arc::new(Tap::default());
        let device = Tapped::new(MemDevice::new(1 << 20), Arc::clone(&tap));
        device.write(0, &[1; 512]).unwrap();
        let first = tap.begin().unwrap();
        assert_eq!(tap.begin(), None, "one at a time");
        device.write(4096, &[1; 512]).unwrap();
        device
            .write_batch(&[Write::new(8192, &[1; 1024]), Write::new(0, &[1; 512])])
            .unwrap();
        device.read(512, &mut [0; 512]).unwrap();
        device.zero(0..4096).unwrap();
        device.flush().unwrap();
        tap.note(Layer::Above, true, 7..9);
        let taken = tap.take(first, false).unwrap();
        let expected = [
            (true, 4096, 512),
            (true, 8192, 1024),
            (true, 0, 512),
            (false, 512, 512),
            (true, 0, 4096),
        ];
        assert_eq!(asked(&taken.below), expected);
        assert!(taken.below.is_sorted_by_key(|a| a.micros));
        assert_eq!(asked(&taken.above), [(true, 7, 2)]);
        assert!(!taken.more && taken.lost == 0);
        device.read(0, &mut [0; 512]).unwrap();
        let last = tap.take(first, true).unwrap();
        assert_eq!(asked(&last.below), [(false, 0, 512)]);
        assert_eq!(tap.take(first, true), None, "it is over");
        device.read(0, &mut [0; 512]).unwrap();
        let second = tap.begin().unwrap();
        assert_eq!(tap.take(first, false), None);
        assert_eq!(tap.take(second, true), Some(Taken::default()));
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let tap = Tap::default();
        let id = tap.begin().unwrap();
        for i in 0..MOST as u64 + 5 {
            tap.note(Layer::Above, false, i..i + 1);
        }
        let mut all = Vec::new();
        loop {
            let taken = tap.take(id, true).unwrap();
            assert_eq!(taken.lost, 5);
            all.extend(taken.above);
            if !taken.more {
                break;
            }
            // The recording is over: no more requests are kept.
            tap.note(Layer::Above, false, 0..1);
        }
        assert!(all.iter().map(|a| a.offset).eq(0..MOST as u64));
        assert_eq!(tap.take(id, true), None);
    }
}
