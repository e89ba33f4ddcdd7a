//! A flush that fails concerns everybody.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use stetfs_block::{
    BlockDevice, BlockError, FailStop, Fault, FaultInjector, MemDevice, Op, Read, Result,
    SharePair, Stats, Write, sharing_of,
};

const SIZE: u64 = 1 << 20;

fn eio() -> BlockError {
    let source = std::io::Error::from_raw_os_error(libc::EIO);
    BlockError::io(Op::Flush, 0, 0, source)
}

/// After a failure nothing changes any more, though the device would take it; reads pass.
/// (block.F1)
#[test]
fn nothing_follows_a_failed_flush() {
    let fua = [Write::new(0, &[3; 512]).fua()];
    type Request<'r> = &'r dyn Fn(&dyn BlockDevice) -> Result<()>;
    let durable: [(Op, Request<'_>); 3] = [
        (Op::Flush, &|d| d.flush()),
        (Op::Flush, &|d| {
            d.write_batch_flush(&[Write::new(0, &[2; 512])])
        }),
        (Op::Write, &|d| d.write_batch(&fua)),
    ];
    for (op, request) in durable {
        let below = Arc::new(FaultInjector::new(MemDevice::new(SIZE)));
        let device = FailStop::new(below.clone());
        device.write(4096, &[1; 512]).unwrap();
        device.flush().unwrap();
        // Else there is nothing to flush.
        device.write(8192, &[1; 512]).unwrap();
        below.add(Fault::fail(op, libc::EIO).once());
        assert_eq!(request(&device).unwrap_err().errno(), libc::EIO);
        let refused = [
            device.flush(),
            device.write(0, &[9; 512]),
            device.write_batch(&[Write::new(0, &[9; 512])]),
            device.write_batch_flush(&[]),
            device.discard(0..4096),
            device.zero(0..4096),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().errno(), libc::EIO);
        }
        let mut bytes = [0; 512];
        device.read(4096, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 512]);
        below.read(0, &mut bytes).unwrap();
        assert_ne!(bytes, [9; 512], "it was written all the same");
    }
}

/// A plain write that fails is its caller's business.
#[test]
fn a_write_that_promises_nothing_may_fail() {
    let below = Arc::new(FaultInjector::new(MemDevice::new(SIZE)));
    let device = FailStop::new(below.clone());
    below.add(Fault::fail(Op::Write, libc::EIO).once());
    assert!(device.write(0, &[1; 512]).is_err());
    device.write(0, &[1; 512]).unwrap();
    device.flush().unwrap();
}

/// A device whose cache is full: each change flushes first, and that fails once.
struct Full {
    inner: MemDevice,
    is_failing: AtomicBool,
}

impl Full {
    fn make_room(&self) -> Result<()> {
        match self.is_failing.swap(false, Ordering::SeqCst) {
            true => Err(eio()),
            false => Ok(()),
        }
    }
}

impl BlockDevice for Full {
    stetfs_block::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.make_room()?;
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.make_room()?;
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: std::ops::Range<u64>) -> Result<()> {
        self.make_room()?;
        self.inner.discard(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl stetfs_block::Share for Full {
    fn limits(&self) -> stetfs_block::ShareLimits {
        stetfs_block::ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[stetfs_block::SharePair]) -> Result<()> {
        self.make_room()?;
        stetfs_block::sharing_of(&self.inner)?.share_batch(pairs)
    }
}

/// A flush that fails inside another request: the request that is tried again is refused, and so is
/// the flush that follows. A canary that looks at flushes alone is told of success. (block.F4)
#[test]
fn nothing_follows_a_flush_that_failed_inside_another_request() {
    type Request<'r> = &'r dyn Fn(&dyn BlockDevice) -> Result<()>;
    let pair = SharePair {
        dst: 8192,
        src: 0,
        len: 4096,
    };
    let requests: [(&str, Request<'_>); 6] = [
        ("write", &|d| d.write(0, &[2; 512])),
        ("batch", &|d| d.write_batch(&[Write::new(0, &[2; 512])])),
        ("discard", &|d| d.discard(0..4096)),
        ("zero", &|d| d.zero(0..4096)),
        ("share", &|d| sharing_of(d)?.share_batch(&[pair])),
        ("read", &|d| d.read(0, &mut [0; 512])),
    ];
    for (name, request) in requests {
        for is_canary in [false, true] {
            let full = Full {
                inner: MemDevice::new(SIZE).with_share(4096, false),
                is_failing: AtomicBool::new(false),
            };
            let full = Arc::new(full);
            let device: Box<dyn BlockDevice> = match is_canary {
                true => Box::new(FailStop::forgiving_within(Arc::clone(&full))),
                false => Box::new(FailStop::new(Arc::clone(&full))),
            };
            device.write(4096, &[1; 512]).unwrap();
            full.is_failing.store(true, Ordering::SeqCst);
            assert!(request(&*device).unwrap_err().is_of_flush(), "{name}");
            let again = (name != "read").then(|| request(&*device).is_ok());
            let flushed = device.flush().is_ok();
            assert_eq!(
                (again.unwrap_or(is_canary), flushed),
                (is_canary, is_canary),
                "{name}"
            );
        }
    }
}

/// A host that is full at a flush has lost what was acknowledged: that is no write that room helps.
#[test]
fn a_full_host_at_a_flush_is_a_failed_flush() {
    for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
        let e = |op| BlockError::io(op, 0, 0, std::io::Error::from_raw_os_error(errno));
        assert!(e(Op::Flush).is_of_flush() && !e(Op::Flush).is_full());
        assert!(!e(Op::Write).is_of_flush() && e(Op::Write).is_full());
        assert_eq!(e(Op::Flush).errno(), errno);
    }
}

/// Flushes that tell when they have come, and end as they are told.
struct Gate {
    inner: MemDevice,
    came: AtomicUsize,
    begins: Sender<usize>,
    ends: Vec<Mutex<Receiver<Result<()>>>>,
}

impl BlockDevice for Gate {
    stetfs_block::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> Result<()> {
        let number = self.came.fetch_add(1, Ordering::SeqCst);
        self.begins.send(number).unwrap();
        self.ends[number].lock().unwrap().recv().unwrap()
    }

    fn discard(&self, range: std::ops::Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl stetfs_block::Share for Gate {
    fn limits(&self) -> stetfs_block::ShareLimits {
        stetfs_block::ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[stetfs_block::SharePair]) -> Result<()> {
        stetfs_block::sharing_of(&self.inner)?.share_batch(pairs)
    }
}

/// Two flushes run side by side, whichever began first; the one succeeds, then the other ends.
/// (block.F2)
#[test]
fn a_flush_counts_only_when_those_beside_it_succeeded() {
    for (first, fails) in [(0, true), (1, true), (0, false), (1, false)] {
        let (begins, begun) = channel();
        let (ends, waits): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| channel())
            .map(|(end, wait)| (end, Mutex::new(wait)))
            .unzip();
        let device = FailStop::new(Gate {
            inner: MemDevice::new(SIZE),
            came: AtomicUsize::new(0),
            begins,
            ends: waits,
        });
        std::thread::scope(|scope| {
            let flushes: Vec<_> = (0..2)
                .map(|number| {
                    let flush = scope.spawn(|| device.flush());
                    assert_eq!(begun.recv().unwrap(), number);
                    flush
                })
                .collect();
            ends[first].send(Ok(())).unwrap();
            let other = if fails { Err(eio()) } else { Ok(()) };
            ends[1 - first].send(other).unwrap();
            for flush in flushes {
                assert_eq!(flush.join().unwrap().is_err(), fails, "{first}");
            }
        });
    }
}
