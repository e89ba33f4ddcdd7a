//! The byte streams of a recording's file, with a running checksum.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};

use anyhow::{Result, ensure};
use xxhash_rust::xxh3::Xxh3;

pub(super) struct Out {
    pub(super) file: BufWriter<File>,
    pub(super) sum: Xxh3,
}

impl Out {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes)
    }

    pub(super) fn number(&mut self, n: u64) -> std::io::Result<()> {
        self.bytes(&n.to_le_bytes())
    }

    pub(super) fn slice(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.number(bytes.len() as u64)?;
        self.bytes(bytes)
    }

    pub(super) fn finish(&mut self) -> std::io::Result<()> {
        let sum = self.sum.digest();
        self.number(sum)?;
        self.file.flush()
    }
}

pub(super) struct In {
    pub(super) file: BufReader<File>,
    /// Bytes of the file not yet read; no read may ask for more.
    pub(super) left: u64,
    pub(super) sum: Xxh3,
}

impl In {
    pub(super) fn bytes(&mut self, n: u64) -> Result<Vec<u8>> {
        ensure!(n <= self.left, "the file is cut off");
        self.left -= n;
        let mut bytes = vec![0; usize::try_from(n)?];
        self.file.read_exact(&mut bytes)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let bytes = self.bytes(8)?;
        Ok(u64::from_le_bytes(bytes.as_slice().try_into()?))
    }

    pub(super) fn slice(&mut self, most: u64) -> Result<Vec<u8>> {
        let n = self.number()?;
        ensure!(n <= most, "a section is longer than its limit");
        self.bytes(n)
    }
}
