//! What every [`BlockDevice`] has to do, as checks that any backend's tests can call.
//!
//! A check panics when the device is wrong. All are repeatable: the same seed makes the same
//! requests.

use std::io::{IoSlice, IoSliceMut};

use crate::{AlignedBuf, BlockDevice, BlockError, Read, ReadList, SharePair, Write, WriteList};

/// A small repeatable random number generator (xorshift64*).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end` (0 if `end` is 0).
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 {
            0
        } else {
            (self.number() >> 16) % end
        }
    }

    /// Fills `buf`.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let bytes = self.number().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }
}

/// All checks. The device's content before is unspecified, and after too. It should have at least
/// 64 KiB and not much more than some MiB, as all of it is read often.
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

/// A range of a size and alignment that real callers or hostile ones use.
fn range(rng: &mut Rng, size: u64) -> (u64, usize) {
    let unit = [1, 512, 1024, 4096][rng.below(4) as usize];
    let max = if rng.below(8) == 0 {
        300 << 10
    } else {
        16 << 10
    };
    let offset = rng.below(size) / unit * unit;
    let len = (rng.below(max) / unit * unit).min(size - offset);
    (offset, len as usize)
}

/// Random reads, writes and discards, single, gathered and in batches, aligned and not, against a
/// model in memory.
pub fn random_requests(dev: &dyn BlockDevice, seed: u64, rounds: u32) {
    let mut rng = Rng::new(seed);
    let size = dev.size();
    let mut model = vec![0; size as usize];
    rng.fill(&mut model);
    dev.write(0, &model).unwrap();
    for round in 0..rounds {
        match rng.below(10) {
            0..4 => write_some(dev, &mut rng, &mut model),
            4..8 => read_some(dev, &mut rng, &model, round),
            8 => {
                let (offset, len) = range(&mut rng, size);
                let span = offset as usize..offset as usize + len;
                dev.discard(offset..offset + len as u64).unwrap();
                let mut now = vec![0; len];
                dev.read(offset, &mut now).unwrap();
                // Each sector is old, zero, or, cut by the range, a mixture of the two.
                for (i, (&new, old)) in now.iter().zip(&mut model[span]).enumerate() {
                    assert!(
                        new == 0 || new == *old,
                        "round {round}: discard invented byte {i}"
                    );
                    *old = new;
                }
            }
            _ => dev.flush().unwrap(),
        }
    }
    let mut all = AlignedBuf::scratch(size as usize);
    dev.read(0, &mut all).unwrap();
    if let Some(i) = all.iter().zip(&model).position(|(a, b)| a != b) {
        panic!("seed {seed}: byte {i} differs from the model at the end");
    }
}

/// A buffer that is aligned for O_DIRECT, or off by one byte.
struct Memory {
    buf: AlignedBuf,
    skew: usize,
}

impl Memory {
    fn new(rng: &mut Rng, len: usize) -> Self {
        let skew = usize::from(rng.below(3) == 0);
        let mut buf = AlignedBuf::scratch(len + skew);
        rng.fill(&mut buf);
        Memory { buf, skew }
    }

    fn bytes(&self) -> &[u8] {
        &self.buf[self.skew..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buf[self.skew..]
    }
}

/// Ranges that do not overlap.
fn disjoint_ranges(rng: &mut Rng, size: u64) -> Vec<(u64, usize)> {
    let count = if rng.below(4) == 0 {
        200
    } else {
        1 + rng.below(6)
    };
    let mut ranges: Vec<(u64, usize)> = (0..count).map(|_| range(rng, size)).collect();
    ranges.sort_unstable();
    let mut end = 0;
    ranges.retain(|&(offset, len)| {
        let keep = offset >= end;
        if keep {
            end = offset + len as u64;
        }
        keep
    });
    ranges
}

/// Cuts a length into pieces; multiples of 512 where possible.
fn cuts(rng: &mut Rng, len: usize) -> Vec<usize> {
    let mut left = len;
    let mut parts = Vec::new();
    while left > 0 && parts.len() < 1500 {
        let unit = if rng.below(4) == 0 { 1 } else { 512 };
        let part = ((1 + rng.below(8)) as usize * unit).min(left);
        parts.push(part);
        left -= part;
    }
    parts.push(left);
    parts
}

fn write_some(dev: &dyn BlockDevice, rng: &mut Rng, model: &mut [u8]) {
    let ranges = disjoint_ranges(rng, model.len() as u64);
    let memory: Vec<Memory> = ranges.iter().map(|r| Memory::new(rng, r.1)).collect();
    let mut slices = Vec::new();
    for m in &memory {
        let mut rest = m.bytes();
        let mut mine = Vec::new();
        for n in cuts(rng, rest.len()) {
            let (part, others) = rest.split_at(n);
            mine.push(IoSlice::new(part));
            rest = others;
        }
        slices.push(mine);
    }
    let gather = rng.below(2) == 0;
    let mut writes = Vec::new();
    for ((&(offset, _), m), s) in ranges.iter().zip(&memory).zip(&slices) {
        let write = if gather {
            Write::gathered(offset, s)
        } else {
            Write::new(offset, m.bytes())
        };
        writes.push(if rng.below(8) == 0 {
            write.fua()
        } else {
            write
        });
    }
    if rng.below(4) == 0 {
        dev.write_batch_flush(&writes).unwrap();
    } else {
        dev.write_batch(&writes).unwrap();
    }
    for (&(offset, len), m) in ranges.iter().zip(&memory) {
        model[offset as usize..offset as usize + len].copy_from_slice(m.bytes());
    }
}

fn read_some(dev: &dyn BlockDevice, rng: &mut Rng, model: &[u8], round: u32) {
    // Reads may overlap.
    let count = if rng.below(4) == 0 {
        200
    } else {
        1 + rng.below(6)
    };
    let ranges: Vec<(u64, usize)> = (0..count).map(|_| range(rng, model.len() as u64)).collect();
    let mut memory: Vec<Memory> = ranges.iter().map(|r| Memory::new(rng, r.1)).collect();
    let scatter = rng.below(2) == 0;
    if scatter {
        let mut slices = Vec::new();
        for m in &mut memory {
            let mut rest = m.bytes_mut();
            let mut mine = Vec::new();
            for n in cuts(rng, rest.len()) {
                let (part, others) = rest.split_at_mut(n);
                mine.push(IoSliceMut::new(part));
                rest = others;
            }
            slices.push(mine);
        }
        let mut reads: Vec<_> = ranges
            .iter()
            .zip(&mut slices)
            .map(|(r, s)| Read::scattered(r.0, s))
            .collect();
        dev.read_batch(&mut reads).unwrap();
    } else {
        let mut reads: Vec<_> = ranges
            .iter()
            .zip(&mut memory)
            .map(|(r, m)| Read::new(r.0, m.bytes_mut()))
            .collect();
        dev.read_batch(&mut reads).unwrap();
    }
    for (&(offset, len), m) in ranges.iter().zip(&memory) {
        let want = &model[offset as usize..offset as usize + len];
        assert!(
            m.bytes() == want,
            "round {round}: read of {len} at {offset} gave other bytes"
        );
    }
}

/// Blocks pushed in order go out as few gathered requests, and come back the same way.
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

/// A request of more segments than the kernel takes at once (1024), beside another, is done whole.
pub fn more_segments_than_one_call_takes(dev: &dyn BlockDevice, seed: u64) {
    const SEGMENTS: usize = 1300;
    // Whole sectors where they fit, as O_DIRECT passes on nothing less.
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

/// Requests beyond the end fail and change nothing; the last byte can be reached.
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

/// Requests for nothing succeed.
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

/// What was zeroed reads as zeros, what lies beside it as it was.
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

/// Threads that write neighbouring, unaligned ranges lose nothing of each other's.
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

/// What is shared reads as its source did, and changes on its own from then on; what is refused
/// changes nothing.
pub fn shares(dev: &dyn BlockDevice, seed: u64) {
    let share = dev.share().unwrap();
    let limits = share.limits();
    let unit = u64::from(limits.unit);
    // Few enough to be read often, and to meet.
    let units = (dev.size() / unit).min(32);
    assert!(units >= 8 && limits.pairs > 0 && limits.references > 1);
    let mut rng = Rng::new(seed);
    let mut model = vec![0; (units * unit) as usize];
    rng.fill(&mut model);
    dev.write(0, &model).unwrap();
    let (mut done, mut before) = (0, dev.stats());
    for round in 0..200 {
        let pairs: Vec<SharePair> = (0..1 + rng.below(4))
            .map(|_| {
                let (dst, src) = (rng.below(units), rng.below(units));
                let len = (1 + rng.below(3)).min(units - dst.max(src));
                SharePair {
                    dst: dst * unit,
                    src: src * unit,
                    len: len * unit,
                }
            })
            .collect();
        let old = model.clone();
        let (written, seen) = (rng.below(units * unit - 1) as usize, dev.stats());
        match share.share_batch(&pairs) {
            Ok(()) => {
                for p in &pairs {
                    let src = p.src as usize..(p.src + p.len) as usize;
                    model[p.dst as usize..(p.dst + p.len) as usize].copy_from_slice(&old[src]);
                }
                done += 1;
                let bytes: u64 = pairs.iter().map(|p| p.len).sum();
                let since = dev.stats().since(&seen);
                assert_eq!((since.shares, since.bytes_shared), (1, bytes));
            }
            Err(e) => {
                let refused = matches!(
                    e,
                    BlockError::ShareOverlap { .. }
                        | BlockError::ShareBatch { .. }
                        | BlockError::ShareReferences { .. }
                );
                assert!(refused, "round {round}: {e}");
                assert_eq!(dev.stats().since(&seen).shares, 0);
            }
        }
        if rng.below(3) == 0 {
            model[written] = round as u8;
            dev.write(written as u64, &[round as u8]).unwrap();
        }
        let mut now = vec![0; model.len()];
        dev.read(0, &mut now).unwrap();
        assert!(now == model, "round {round}: after {pairs:?}");
    }
    assert!(done > 20, "{done} batches were shared");
    before = dev.stats().since(&before);
    assert_eq!(before.shares, done);
    let odd = |dst, src, len| share.share_range(dst, src, len).unwrap_err();
    assert!(matches!(odd(1, unit, unit), BlockError::ShareUnit { .. }));
    assert!(matches!(
        odd(0, unit, unit / 2),
        BlockError::ShareUnit { .. }
    ));
    let end = dev.size() / unit * unit;
    assert!(matches!(
        odd(end, end - unit, unit),
        BlockError::OutOfRange { .. }
    ));
    assert!(matches!(
        odd(end - unit, u64::MAX - unit + 1, unit),
        BlockError::OutOfRange { .. }
    ));
    share.share_batch(&[]).unwrap();
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
