//! The conformance suite: checks of every [`BlockDevice`] implementation, called by the tests of
//! each backend.
//!
//! A check panics when the device is wrong. All are repeatable: the same seed makes the same
//! requests.

mod random;
mod rng;
mod sharing;

pub use random::random_requests;
pub use rng::Rng;
pub use sharing::shares;

use std::io::{IoSlice, IoSliceMut};

use crate::{AlignedBuf, BlockDevice, BlockError, Read, ReadList, Write, WriteList};

/// Runs all checks. The content before and after is unspecified. The device should have at least 64
/// KiB and not more than some MiB, as all of it is read often.
pub fn check_all(dev: &dyn BlockDevice, seed: u64) {
    random_requests(dev, seed, 300);
    neighbours_merge(dev, seed);
    more_segments_than_one_call_takes(dev, seed);
    bounds_are_kept(dev);
    empty_requests_do_nothing(dev);
    zeros_are_read_back(dev);
    parallel_writers(dev, seed);
    bytes_are_counted(dev);
    if dev.share().is_some() {
        shares(dev, seed);
    }
}

/// Adjacent blocks pushed in order go out as few gathered requests, and are read back the same way.
pub fn neighbours_merge(dev: &dyn BlockDevice, seed: u64) {
    let mut rng = Rng::new(seed);
    let block = 1024;
    let numbers: Vec<u64> = (0..dev.size() / block as u64)
        .filter(|n| n % 11 != 3)
        .take(400)
        .collect();
    let pages: Vec<AlignedBuf> = numbers
        .iter()
        .map(|_| {
            let mut page = AlignedBuf::scratch(block);
            rng.fill(&mut page);
            page
        })
        .collect();
    let list: WriteList<'_> = numbers
        .iter()
        .zip(&pages)
        .map(|(n, p)| (n * block as u64, &**p))
        .collect();
    assert!(
        list.len() <= numbers.len() / 10 + 2,
        "{} requests for {} blocks",
        list.len(),
        numbers.len()
    );
    assert_eq!(list.bytes(), (numbers.len() * block) as u64);
    list.submit_flush(dev).unwrap();
    let mut back: Vec<AlignedBuf> = numbers.iter().map(|_| AlignedBuf::zeroed(block)).collect();
    let mut reads = ReadList::new();
    for (n, page) in numbers.iter().zip(&mut back) {
        reads.push(n * block as u64, page);
    }
    reads.submit(dev).unwrap();
    assert!(back == pages);
}

/// A request with more segments than the kernel takes at once (1024), beside another one, is done
/// whole.
pub fn more_segments_than_one_call_takes(dev: &dyn BlockDevice, seed: u64) {
    const SEGMENTS: usize = 1300;
    // Whole sectors if they fit, as O_DIRECT passes on nothing less.
    let unit = if dev.size() > SEGMENTS as u64 * 512 + 8192 {
        512
    } else {
        40
    };
    let mut bytes = AlignedBuf::scratch(SEGMENTS * unit);
    Rng::new(seed).fill(&mut bytes);
    let other = AlignedBuf::from_slice(&[seed as u8; 4096]);
    let behind = dev.size() / 4096 * 4096 - 4096;
    let slices: Vec<_> = bytes.chunks(unit).map(IoSlice::new).collect();
    dev.write_batch(&[Write::gathered(0, &slices), Write::new(behind, &other)])
        .unwrap();
    let (mut all, mut last) = (
        AlignedBuf::zeroed(SEGMENTS * unit),
        AlignedBuf::zeroed(4096),
    );
    dev.read(0, &mut all).unwrap();
    assert!(
        all == bytes,
        "written in one request of {SEGMENTS} segments"
    );
    all.fill(0);
    let mut slices: Vec<_> = all.chunks_mut(unit).map(IoSliceMut::new).collect();
    dev.read_batch(&mut [
        Read::scattered(0, &mut slices),
        Read::new(behind, &mut last),
    ])
    .unwrap();
    assert!(all == bytes, "read in one request of {SEGMENTS} segments");
    assert!(last == other);
}

/// Requests beyond the end fail and change nothing; the last byte is accessible.
pub fn bounds_are_kept(dev: &dyn BlockDevice) {
    let size = dev.size();
    let mut two = [7; 2];
    dev.write(size - 2, &[1, 2]).unwrap();
    for offset in [size - 1, size, size + 1, u64::MAX - 1, u64::MAX] {
        let beyond = |r: crate::Result<()>| matches!(r, Err(BlockError::OutOfRange { .. }));
        assert!(beyond(dev.read(offset, &mut two)), "read at {offset}");
        assert!(beyond(dev.write(offset, &[9; 2])), "write at {offset}");
        assert!(beyond(dev.write_batch(&[
            Write::new(0, &[9]),
            Write::new(offset, &[9; 2])
        ])));
        assert!(beyond(dev.discard(size - 1..size + 1)));
    }
    dev.read(size - 2, &mut two).unwrap();
    assert_eq!(two, [1, 2]);
    assert_eq!(dev.size(), size);
}

/// Empty requests succeed.
pub fn empty_requests_do_nothing(dev: &dyn BlockDevice) {
    let size = dev.size();
    dev.read_batch(&mut []).unwrap();
    dev.write_batch(&[]).unwrap();
    dev.write_batch_flush(&[]).unwrap();
    dev.read(size, &mut []).unwrap();
    dev.write(size, &[]).unwrap();
    dev.write_batch(&[
        Write::gathered(3, &[]),
        Write::gathered(5, &[IoSlice::new(&[])]),
    ])
    .unwrap();
    dev.discard(8..8).unwrap();
    #[allow(clippy::reversed_empty_ranges)]
    dev.discard(8..4).unwrap();
}

/// A zeroed range reads as zeros, and the bytes beside it stay.
pub fn zeros_are_read_back(dev: &dyn BlockDevice) {
    for range in [4096..12288, 512..1024, 5000..9001, 16384..16384] {
        dev.write(0, &[7; 32 << 10]).unwrap();
        dev.zero(range.clone()).unwrap();
        let mut back = vec![0; 32 << 10];
        dev.read(0, &mut back).unwrap();
        for (at, byte) in (0..).zip(back) {
            let want = if range.contains(&at) { 0 } else { 7 };
            assert_eq!(byte, want, "byte {at} after zeroing {range:?}");
        }
    }
    assert!(dev.zero(dev.size() - 1..dev.size() + 1).is_err());
}

/// Threads that write adjacent, unaligned ranges do not overwrite each other.
pub fn parallel_writers(dev: &dyn BlockDevice, seed: u64) {
    const THREADS: u64 = 4;
    const CHUNK: u64 = 700;
    let chunks = (dev.size() / CHUNK).min(80);
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            scope.spawn(move || {
                for i in (t..chunks).step_by(THREADS as usize) {
                    let mut data = vec![0; CHUNK as usize];
                    Rng::new(seed + i).fill(&mut data);
                    let (a, b) = data.split_at(300);
                    // Two parts of one sector in one batch.
                    let parts = [Write::new(i * CHUNK + 300, b), Write::new(i * CHUNK, a)];
                    dev.write_batch(&parts).unwrap();
                    let mut back = vec![0; CHUNK as usize];
                    dev.read(i * CHUNK, &mut back).unwrap();
                    assert!(back == data, "chunk {i} right after it was written");
                }
            });
        }
    });
    for i in 0..chunks {
        let (mut back, mut want) = (vec![0; CHUNK as usize], vec![0; CHUNK as usize]);
        dev.read(i * CHUNK, &mut back).unwrap();
        Rng::new(seed + i).fill(&mut want);
        assert!(back == want, "chunk {i} after all writers");
    }
}

/// The counters count requests and bytes.
pub fn bytes_are_counted(dev: &dyn BlockDevice) {
    let before = dev.stats();
    dev.write_batch(&[Write::new(0, &[1; 4096]), Write::new(8192, &[2; 512])])
        .unwrap();
    dev.read(0, &mut [0; 1024]).unwrap();
    dev.flush().unwrap();
    let seen = dev.stats().since(&before);
    assert_eq!((seen.writes, seen.bytes_written), (2, 4608));
    assert_eq!((seen.reads, seen.bytes_read), (1, 1024));
    assert_eq!(seen.flushes, 1);
}
