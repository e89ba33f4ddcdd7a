//! Partition tables: MBR with its chain of logical partitions, and GPT (UEFI specification, chapter
//! 5).
//!
//! 1. A partition without a fault lies on the disk, behind its table, and shares no byte with
//!    another one.
//! 2. What is read is bounded, whatever a table says: 4 MBR entries, 128 links of a chain, 1 MiB of
//!    GPT entries.
//! 3. A GPT counts where both its checksums do. Of a table whose first copy is damaged the one at
//!    the end of the disk is taken.

mod gpt;
mod mbr;
mod named;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use std::fmt;

pub use named::NoPartition;

use crate::error::Result as Decoded;
use crate::ext4::superblock::{MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use crate::uuid;

/// What a table is read from.
pub trait Disk {
    /// Why it cannot be read.
    type Error;

    /// Bytes in all.
    fn size(&self) -> u64;

    /// Bytes of a sector, in which an MBR counts.
    fn sector(&self) -> u32;

    /// Fills `buf` from byte `at` on, which lies inside with all of it.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// The bytes of a place; `None` if it is not on the disk.
    ///
    /// # Errors
    /// The disk's.
    fn bytes(&self, at: u64, len: usize) -> Result<Option<Vec<u8>>, Self::Error> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.size() => {
                let mut buf = vec![0; len];
                self.read(at, &mut buf)?;
                Ok(Some(buf))
            }
            _ => Ok(None),
        }
    }
}

/// What has its size, its sectors and a way to read it.
#[derive(Clone, Copy, Debug)]
pub struct ReadBy<F> {
    /// Bytes in all.
    pub size: u64,
    /// Bytes of a sector.
    pub sector: u32,
    /// [`Disk::read`].
    pub read: F,
}

impl<E, F: Fn(u64, &mut [u8]) -> Result<(), E>> Disk for ReadBy<F> {
    type Error = E;

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u32 {
        self.sector
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), E> {
        (self.read)(at, buf)
    }
}

/// Bytes in memory, with sectors of 512.
impl Disk for &[u8] {
    type Error = std::convert::Infallible;

    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn sector(&self) -> u32 {
        512
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Self::Error> {
        let there = usize::try_from(at).ok().and_then(|at| self.get(at..));
        // What lies outside is nobody's to read.
        for (to, from) in buf.iter_mut().zip(there.unwrap_or_default()) {
            *to = *from;
        }
        Ok(())
    }
}

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// `GPT` or `MBR`.
    pub table: &'static str,
    /// Its partitions, by number.
    pub all: Vec<Partition>,
    /// What is wrong with the table itself: parts of it were not read, or come from its copy.
    pub damage: Option<String>,
}

/// A partition. Offset and size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1 on; logical ones from 5 on.
    pub number: u32,
    /// Where it starts.
    pub offset: u64,
    /// Its size.
    pub size: u64,
    /// In words, or the number in the table.
    pub kind: String,
    /// Its name; empty in an MBR.
    pub name: String,
    /// Its own UUID in a GPT; in an MBR the disk's number and its own, as Linux has it. Small
    /// letters.
    pub uuid: String,
    /// The ext4 volume in it.
    pub ext4: Option<Ext4>,
    /// Whether it only holds the logical ones.
    pub extended: bool,
    /// Why it cannot be used.
    pub fault: Option<String>,
}

/// What an ext4 volume is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext4 {
    /// Its label; may be empty.
    pub label: String,
    /// Small letters.
    pub uuid: String,
}

impl Partitions {
    /// The table of a disk, if it has one.
    ///
    /// # Errors
    /// The disk's.
    pub fn read<D: Disk>(disk: &D) -> Result<Option<Partitions>, D::Error> {
        let Some(head) = disk.bytes(0, mbr::LEN)? else {
            return Ok(None);
        };
        let Some(entries) = mbr::entries(&head) else {
            return Ok(None);
        };
        let found = match mbr::is_protective(&entries) {
            true => gpt::read(disk)?,
            false => mbr::read(disk, &head, &entries)?,
        };
        let Some(mut table) = found else {
            return Ok(None);
        };
        table.find_faults(disk.size());
        for partition in &mut table.all {
            if partition.fault.is_none() && !partition.extended {
                partition.ext4 = ext4_at(disk, partition)?;
            }
        }
        Ok(Some(table))
    }

    /// Says which partitions cannot be used (1).
    fn find_faults(&mut self, disk: u64) {
        for partition in &mut self.all {
            if partition.fault.is_none() && partition.end().is_none_or(|end| end > disk) {
                let fault = format!("it is not within the {disk} bytes of the disk");
                partition.fault = Some(fault);
            }
        }
        let mut order: Vec<(u64, u64, usize)> = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, p)| !p.extended && p.size > 0)
            .map(|(i, p)| (p.offset, p.end().unwrap_or(u64::MAX), i))
            .collect();
        order.sort_unstable();
        // The one of those before that ends last.
        let mut last: Option<(u64, usize)> = None;
        for (start, end, i) in order {
            if let Some((before_ends, before)) = last
                && start < before_ends
            {
                self.overlap(before, i);
            }
            if last.is_none_or(|(before_ends, _)| before_ends < end) {
                last = Some((end, i));
            }
        }
    }

    fn overlap(&mut self, a: usize, b: usize) {
        for (one, other) in [(a, b), (b, a)] {
            let number = self.all.get(other).map_or(0, |p| p.number);
            if let Some(partition) = self.all.get_mut(one) {
                let fault = || format!("it overlaps partition {number}");
                partition.fault.get_or_insert_with(fault);
            }
        }
    }

    /// Those that hold ext4, and can be used.
    pub fn with_ext4(&self) -> impl Iterator<Item = &Partition> {
        self.all.iter().filter(|p| p.ext4.is_some())
    }
}

impl Partition {
    /// The first byte behind it.
    fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

/// The volume in a partition.
fn ext4_at<D: Disk>(disk: &D, partition: &Partition) -> Result<Option<Ext4>, D::Error> {
    if partition.size < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Ok(None);
    }
    let bytes = disk.bytes(partition.offset + SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    Ok(bytes.and_then(|bytes| volume(&bytes).ok().flatten()))
}

fn volume(bytes: &[u8]) -> Decoded<Option<Ext4>> {
    let sb = Superblock::decode_unchecked(bytes)?;
    Ok((sb.magic.get() == MAGIC).then(|| Ext4 {
        label: String::from_utf8_lossy(sb.label()).into_owned(),
        uuid: uuid::text(&sb.uuid),
    }))
}

impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it holds a partition table ({})", self.table)?;
        if let Some(damage) = &self.damage {
            write!(f, ", {damage}")?;
        }
        if self.all.is_empty() && self.damage.is_none() {
            f.write_str(" without partitions")?;
        }
        for (i, partition) in self.all.iter().enumerate() {
            write!(f, "{} {partition}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} ({}", self.number, self.kind)?;
        if !self.name.is_empty() {
            write!(f, ", {:?}", self.name)?;
        }
        write!(f, ") at byte {}, {} bytes", self.offset, self.size)?;
        match &self.ext4 {
            Some(ext4) if ext4.label.is_empty() => f.write_str(", holds ext4")?,
            Some(ext4) => write!(f, ", holds ext4 {:?}", ext4.label)?,
            None => {}
        }
        match &self.fault {
            Some(fault) => write!(f, ", but {fault}"),
            None => Ok(()),
        }
    }
}
