//! Lists of requests that merge adjacent blocks into gathered requests.

use std::io::{IoSlice, IoSliceMut};

use crate::{BlockDevice, Read, Result, Write};

/// Maximum bytes of a merged request (a larger single slice stays whole).
const MAX_BYTES: usize = 1 << 20;
/// Maximum slices of a merged request.
const MAX_SLICES: usize = 256;

/// A run of slices that are adjacent on the device.
#[derive(Debug)]
struct Run {
    offset: u64,
    bytes: usize,
    slices: usize,
}

/// Adds a slice of `len` bytes at `offset` to the last run, or begins a new one.
fn append(runs: &mut Vec<Run>, offset: u64, len: usize) {
    if let Some(last) = runs.last_mut()
        && last.offset.checked_add(last.bytes as u64) == Some(offset)
        && last.bytes.saturating_add(len) <= MAX_BYTES
        && last.slices < MAX_SLICES
    {
        last.bytes += len;
        last.slices += 1;
        return;
    }
    runs.push(Run {
        offset,
        bytes: len,
        slices: 1,
    });
}

/// Writes to be submitted together. Adjacent slices pushed in ascending order go out as one
/// gathered request, without a copy.
#[derive(Debug, Default)]
pub struct WriteList<'a> {
    slices: Vec<IoSlice<'a>>,
    runs: Vec<Run>,
    fua: bool,
}

impl<'a> WriteList<'a> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `data` at byte `offset`.
    pub fn push(&mut self, offset: u64, data: &'a [u8]) {
        if !data.is_empty() {
            append(&mut self.runs, offset, data.len());
            self.slices.push(IoSlice::new(data));
        }
    }

    /// Writes all of it with `fua`.
    pub fn set_fua(&mut self) {
        self.fua = true;
    }

    /// Adds everything of `other` behind the present content.
    pub fn extend(&mut self, other: &WriteList<'a>) {
        let mut slices = other.slices.iter();
        for run in &other.runs {
            let mut offset = run.offset;
            for slice in slices.by_ref().take(run.slices) {
                append(&mut self.runs, offset, slice.len());
                self.slices.push(*slice);
                offset += slice.len() as u64;
            }
        }
    }

    /// The merged requests.
    pub fn writes(&self) -> Vec<Write<'_>> {
        let mut rest = self.slices.as_slice();
        let mut writes = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let (mine, others) = rest.split_at(run.slices);
            rest = others;
            writes.push(Write {
                fua: self.fua,
                ..Write::gathered(run.offset, mine)
            });
        }
        writes
    }

    /// Writes everything; see [`BlockDevice::write_batch`].
    pub fn submit(&self, dev: &(impl BlockDevice + ?Sized)) -> Result<()> {
        dev.write_batch(&self.writes())
    }

    /// Writes everything and flushes; see [`BlockDevice::write_batch_flush`].
    pub fn submit_flush(&self, dev: &(impl BlockDevice + ?Sized)) -> Result<()> {
        dev.write_batch_flush(&self.writes())
    }

    /// Number of merged requests.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of all slices.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|r| r.bytes as u64).sum()
    }
}

impl<'a> FromIterator<(u64, &'a [u8])> for WriteList<'a> {
    fn from_iter<I: IntoIterator<Item = (u64, &'a [u8])>>(items: I) -> Self {
        let mut list = WriteList::new();
        for (offset, data) in items {
            list.push(offset, data);
        }
        list
    }
}

/// Reads to be submitted together; merges like [`WriteList`].
#[derive(Debug, Default)]
pub struct ReadList<'a> {
    slices: Vec<IoSliceMut<'a>>,
    runs: Vec<Run>,
}

impl<'a> ReadList<'a> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a read of `data.len()` bytes at byte `offset`.
    pub fn push(&mut self, offset: u64, data: &'a mut [u8]) {
        if !data.is_empty() {
            append(&mut self.runs, offset, data.len());
            self.slices.push(IoSliceMut::new(data));
        }
    }

    /// Reads everything; see [`BlockDevice::read_batch`].
    pub fn submit(self, dev: &(impl BlockDevice + ?Sized)) -> Result<()> {
        let ReadList { mut slices, runs } = self;
        let mut rest = slices.as_mut_slice();
        let mut reads = Vec::with_capacity(runs.len());
        for run in &runs {
            let (mine, others) = rest.split_at_mut(run.slices);
            rest = others;
            reads.push(Read::scattered(run.offset, mine));
        }
        dev.read_batch(&mut reads)
    }

    /// Number of merged requests.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
