//! Random requests, checked against a model in memory.

use std::io::{IoSlice, IoSliceMut};

use super::rng::Rng;
use crate::{AlignedBuf, BlockDevice, Read, Write};

/// A random range, with a size and alignment that real or hostile callers use.
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
                // Each sector is old or zero; a sector cut by the range is a mixture of the two.
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

/// Random ranges that do not overlap.
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

/// Splits a length into random pieces; multiples of 512 where possible.
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
