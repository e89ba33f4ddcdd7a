//! A failed flush stops all users of a device.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stetfs_block::{
    BlockDevice, BlockError, FailStop, Fault, FaultInjector, MemDevice, Op, Read, Result,
    SharePair, Stats, Write, sharing_of,
};

const SIZE: u64 = 1 << 20;

fn eio() -> BlockError {
    let source = std::io::Error::from_raw_os_error(libc::EIO);
    BlockError::io(Op::Flush, 0, 0, source)
}

/// After a failure no request changes the device, though it would accept them; reads pass.
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
        // Otherwise there is nothing to flush.
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

/// The failure of a plain write concerns only its caller.
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

/// A flush fails inside another request: the retried request is refused, and so is the next flush.
/// A canary that counts only requested flushes reports success. (block.F4)
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

/// A flush that meets a full host has lost acknowledged data: it is no failed write that free space
/// helps.
#[test]
fn a_full_host_at_a_flush_is_a_failed_flush() {
    for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
        let e = |op| BlockError::io(op, 0, 0, std::io::Error::from_raw_os_error(errno));
        assert!(e(Op::Flush).is_of_flush() && !e(Op::Flush).is_full());
        assert!(!e(Op::Write).is_of_flush() && e(Op::Write).is_full());
        assert_eq!(e(Op::Flush).errno(), errno);
    }
}

/// A device whose flushes report their arrival, and end on command.
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

/// A device for two flushes, the numbers of those that came, and the ways to end them.
fn gate() -> (Gate, Receiver<usize>, Vec<Sender<Result<()>>>) {
    let (begins, begun) = channel();
    let (ends, waits): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| channel())
        .map(|(end, wait)| (end, Mutex::new(wait)))
        .unzip();
    let gate = Gate {
        inner: MemDevice::new(SIZE),
        came: AtomicUsize::new(0),
        begins,
        ends: waits,
    };
    (gate, begun, ends)
}

/// Two flushes run concurrently, in either order of beginning; one succeeds, then the other ends.
/// (block.F2)
#[test]
fn a_flush_counts_only_when_those_beside_it_succeeded() {
    for (first, fails) in [(0, true), (1, true), (0, false), (1, false)] {
        let (gate, begun, ends) = gate();
        let device = FailStop::new(gate);
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

/// A canary that does not wait for concurrent flushes reports success although one of them then
/// fails. (block.F2)
#[test]
fn a_flush_that_waits_for_none_beside_it_succeeds_too_early() {
    let (gate, begun, ends) = gate();
    let device = FailStop::forgiving_beside(gate);
    let (answer, answers) = channel();
    std::thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(|| answer.send(device.flush()).unwrap());
            assert_eq!(begun.recv().unwrap(), number);
        }
        ends[0].send(Ok(())).unwrap();
        let first = answers.recv_timeout(Duration::from_secs(10));
        ends[1].send(Err(eio())).unwrap();
        assert!(matches!(first, Ok(Ok(()))), "{first:?}");
    });
    assert!(answers.recv().unwrap().is_err());
    assert_eq!(device.flush().unwrap_err().errno(), libc::EIO);
}
