//! A partition table, and the checks of its partitions.

use std::fmt;

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// `GPT` or `MBR`.
    pub table: &'static str,
    /// Its partitions, by number.
    pub all: Vec<Partition>,
    /// Damage of the table itself: parts of it were not read, or come from its copy.
    pub damage: Option<String>,
}

/// A partition. Offset and size are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number, from 1 on; logical partitions from 5 on.
    pub number: u32,
    /// First byte on the disk.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// The type in words, or its number in the table.
    pub kind: String,
    /// The name; empty in an MBR.
    pub name: String,
    /// In a GPT the partition's UUID; in an MBR the disk's signature and the partition number, as
    /// Linux has it. Lower case.
    pub uuid: String,
    /// The ext4 volume in it.
    pub ext4: Option<Ext4>,
    /// Whether it only contains the logical partitions.
    pub extended: bool,
    /// The reason why it is unusable.
    pub fault: Option<String>,
}

/// The names of an ext4 volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext4 {
    /// The label; may be empty.
    pub label: String,
    /// The UUID in lower case.
    pub uuid: String,
}

impl Partitions {
    /// Marks the unusable partitions (1); `disk` is its size in bytes.
    pub(super) fn find_faults(&mut self, disk: u64) {
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
        // The earlier partition that ends last.
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

    /// The partitions with an ext4 volume.
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
