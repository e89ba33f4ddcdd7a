//! A device with a volatile write cache, whose flushes fail on command: it stands for real disks in
//! tests.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use stetfs_sync::plain::{
    Condvar, Mutex, RwLock,
    atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use crate::fault::refused;
use crate::{BlockDevice, MemDevice, Op, Read, Result, Stats, Write};

/// A device in memory that keeps only the content that a flush made durable. A failed flush drops
/// everything written since the last successful one, as disks and page caches do: later reads
/// return the old content, and a later flush does not bring the new one back.
///
/// A flush covers the writes that had returned before it began, and no later ones. When one fails,
/// all concurrent flushes fail, and new ones wait for it. A slow failing flush
/// ([`Volatile::failing_for`]) differs: all other flushes run beside it and succeed. Those that ran
/// already keep the writes that they cover; later writes are dropped.
///
/// With a cache of limited size ([`Volatile::with_room`]) a write that finds it full flushes first,
/// and fails if that flush fails.
pub struct Volatile {
    /// The content that reads see.
    now: RwLock<MemDevice>,
    state: Mutex<State>,
    /// Signals that a failing flush has returned.
    failed: Condvar,
    /// Duration of a flush.
    delay: Duration,
    /// Duration of a failing flush beside which others run, if set.
    failing_for: Option<Duration>,
    /// Size of the cache in bytes.
    room: u64,
    /// Bytes written since a flush began.
    unflushed: AtomicU64,
}

struct State {
    /// The durable content, and the number of the flush that made it so.
    kept: (u64, MemDevice),
    /// Flushes in flight: the number, and the content that each makes durable.
    running: Vec<(u64, MemDevice)>,
    /// Number of flushes begun.
    begun: u64,
    /// Number of flushes that still have to fail.
    to_fail: u64,
    failing: bool,
    dropped: u64,
}

impl fmt::Debug for Volatile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volatile").finish_non_exhaustive()
    }
}

impl Volatile {
    /// A device that holds the content of `inner`; a flush takes `delay`.
    pub fn new(inner: MemDevice, delay: Duration) -> Volatile {
        Volatile {
            state: Mutex::new(State {
                kept: (0, inner.fork()),
                running: Vec::new(),
                begun: 0,
                to_fail: 0,
                failing: false,
                dropped: 0,
            }),
            now: RwLock::new(inner),
            failed: Condvar::new(),
            delay,
            failing_for: None,
            room: u64::MAX,
            unflushed: AtomicU64::new(0),
        }
    }

    /// Gives the device a cache of `bytes`.
    #[must_use]
    pub fn with_room(mut self, bytes: u64) -> Volatile {
        self.room = bytes;
        self
    }

    /// Lets a failing flush take `time` after it has dropped writes, as on a device that retries;
    /// other flushes do not wait for it.
    #[must_use]
    pub fn failing_for(mut self, time: Duration) -> Volatile {
        self.failing_for = Some(time);
        self
    }

    /// Lets the next `n` flushes fail with EIO.
    pub fn fail_flushes(&self, n: u64) {
        self.state.lock().to_fail = n;
    }

    /// Number of times that writes were dropped.
    pub fn drops(&self) -> u64 {
        self.state.lock().dropped
    }

    /// The content that a power failure now would leave.
    pub fn kept(&self) -> MemDevice {
        self.state.lock().kept.1.fork()
    }

    /// The content that reads see now.
    pub fn now(&self) -> MemDevice {
        self.now.read().fork()
    }

    /// Changes the content that reads see; durable at once if `durable`, else with the next flush
    /// that begins.
    fn change(&self, durable: bool, change: impl Fn(&MemDevice) -> Result<()>) -> Result<()> {
        if !durable {
            return change(&self.now.read());
        }
        let state = self.state.lock();
        change(&self.now.write())?;
        let running = state.running.iter().map(|(_, device)| device);
        running.chain([&state.kept.1]).try_for_each(change)
    }
}

impl BlockDevice for Volatile {
    fn size(&self) -> u64 {
        self.now.read().size()
    }

    fn sector_size(&self) -> u32 {
        self.now.read().sector_size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.now.read().read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        if self.unflushed.load(Relaxed) > self.room {
            self.flush()?;
        }
        let bytes = writes.iter().map(|write| write.len()).sum();
        self.unflushed.fetch_add(bytes, Relaxed);
        writes.iter().try_for_each(|write| {
            self.change(write.fua, |device| {
                device.write_batch(std::slice::from_ref(write))
            })
        })
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.state.lock();
        while state.failing {
            self.failed.wait(&mut state);
        }
        self.unflushed.store(0, Relaxed);
        state.begun += 1;
        let mine = state.begun;
        let mut takes = self.delay;
        if state.to_fail > 0 {
            state.to_fail -= 1;
            state.dropped += 1;
            match self.failing_for {
                Some(time) => takes = time,
                None => {
                    state.failing = true;
                    state.running.clear();
                }
            }
            let all = state.running.iter().chain([&state.kept]);
            if let Some((_, left)) = all.max_by_key(|(id, _)| *id) {
                *self.now.write() = left.fork();
            }
        } else {
            let all = self.now.write().fork();
            state.running.push((mine, all));
        }
        drop(state);
        thread::sleep(takes);
        let mut state = self.state.lock();
        let place = state.running.iter().position(|(id, _)| *id == mine);
        let Some(place) = place else {
            // This flush fails, or a concurrent one has dropped the writes of this one.
            if state.failing {
                state.failing = false;
                self.failed.notify_all();
            }
            return Err(refused(Op::Flush, 0, 0, libc::EIO));
        };
        let flushed = state.running.swap_remove(place);
        if flushed.0 > state.kept.0 {
            state.kept = flushed;
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.change(false, |device| device.discard(range.clone()))
    }

    fn stats(&self) -> Stats {
        self.now.read().stats()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn byte(device: &impl BlockDevice, at: u64) -> u8 {
        let mut byte = [0];
        device.read(at, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn only_what_was_flushed_is_kept() {
        let device = Volatile::new(MemDevice::new(8192), Duration::ZERO);
        device.write(0, &[1]).unwrap();
        device.write_batch(&[Write::new(1, &[2]).fua()]).unwrap();
        let bytes = |d: &MemDevice| [byte(d, 0), byte(d, 1)];
        assert_eq!((byte(&device, 0), bytes(&device.kept())), (1, [0, 2]));
        device.flush().unwrap();
        device.write(0, &[3]).unwrap();
        assert_eq!((byte(&device, 0), bytes(&device.kept())), (3, [1, 2]));
    }

    #[test]
    fn what_a_failed_flush_dropped_does_not_come_back() {
        let device = Volatile::new(MemDevice::new(8192), Duration::ZERO);
        device.write(0, &[1]).unwrap();
        device.flush().unwrap();
        device.write(0, &[2]).unwrap();
        device.fail_flushes(1);
        device.flush().unwrap_err();
        device.write(1, &[7]).unwrap();
        device.flush().unwrap();
        assert_eq!((byte(&device, 0), byte(&device, 1)), (1, 7));
        assert_eq!((byte(&device.kept(), 0), byte(&device.kept(), 1)), (1, 7));
        assert_eq!(device.drops(), 1);
    }

    #[test]
    fn a_write_to_a_full_cache_fails_as_its_flush_does() {
        let device = Volatile::new(MemDevice::new(8192), Duration::ZERO).with_room(100);
        device.write(0, &[1; 101]).unwrap();
        assert_eq!(byte(&device.kept(), 0), 0);
        device.write(200, &[1; 101]).unwrap();
        assert_eq!((byte(&device.kept(), 0), byte(&device.kept(), 200)), (1, 0));
        device.fail_flushes(1);
        assert!(device.write(0, &[2]).unwrap_err().is_of_flush());
        assert_eq!((byte(&device, 0), byte(&device, 200)), (1, 0));
        device.write(0, &[2]).unwrap();
        assert_eq!(device.drops(), 1);
    }

    #[test]
    fn flushes_go_on_beside_one_that_takes_its_time_to_fail() {
        let device = Volatile::new(MemDevice::new(8192), Duration::ZERO)
            .failing_for(Duration::from_millis(300));
        device.write(0, &[1]).unwrap();
        device.fail_flushes(1);
        thread::scope(|scope| {
            let fails = scope.spawn(|| device.flush());
            while device.drops() == 0 {
                thread::yield_now();
            }
            device.write(1, &[2]).unwrap();
            device.flush().unwrap();
            assert!(!fails.is_finished());
            assert_eq!((byte(&device.kept(), 0), byte(&device.kept(), 1)), (0, 2));
            fails.join().unwrap().unwrap_err();
        });
    }

    #[test]
    fn a_flush_covers_nothing_that_came_while_it_ran_but_writes_with_fua() {
        let device = Volatile::new(MemDevice::new(8192), Duration::from_millis(200));
        thread::scope(|scope| {
            let flush = scope.spawn(|| device.flush());
            while device.state.lock().running.is_empty() {
                thread::yield_now();
            }
            device.write(0, &[1]).unwrap();
            device.write_batch(&[Write::new(1, &[2]).fua()]).unwrap();
            flush.join().unwrap().unwrap();
        });
        assert_eq!((byte(&device.kept(), 0), byte(&device.kept(), 1)), (0, 2));
        assert_eq!(byte(&device, 0), 1);
    }
}
