//! The MBR: the table in the first sector, and the chain of logical partitions in an extended one.

use std::collections::BTreeSet;

use super::disk::Disk;
use super::table::{Partition, Partitions};
use crate::bytes::{array_at, le32};

/// Bytes of a table.
pub(super) const LEN: usize = 512;

/// Maximum number of links of a chain that are followed; Linux follows 100, and numbers up to 256.
const MOST_LINKS: usize = 128;

/// An entry of a table. Positions are sectors.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Number, from 1 on.
    number: u32,
    kind: u8,
    start: u32,
    len: u32,
}

impl Entry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

/// The entries in use; `None` if this is no table.
pub(super) fn entries(table: &[u8]) -> Option<Vec<Entry>> {
    if array_at(table, 510)? != [0x55, 0xaa] {
        return None;
    }
    let mut entries = Vec::new();
    for number in 1..=4 {
        let [active, .., start] = [0, 4, 8].map(|at| 430 + 16 * number as usize + at);
        let [kind] = array_at(table, start - 4)?;
        let (start, len) = (le32(table, start)?, le32(table, start + 4)?);
        let [active] = array_at(table, active)?;
        if kind == 0 {
            continue;
        }
        // Such values are not a table's, but those of a boot sector.
        if active & 0x7f != 0 || start == 0 || len == 0 {
            return None;
        }
        entries.push(Entry {
            number,
            kind,
            start,
            len,
        });
    }
    (!entries.is_empty()).then_some(entries)
}

/// Whether the table only protects a GPT.
pub(super) fn is_protective(entries: &[Entry]) -> bool {
    entries.iter().any(|e| e.kind == 0xee)
}

/// The partitions of `entries`, which are those of `table`.
pub(super) fn read<D: Disk>(
    disk: &D,
    table: &[u8],
    entries: &[Entry],
) -> Result<Option<Partitions>, D::Error> {
    let reader = Reader {
        disk,
        sector: u64::from(disk.sector()).max(LEN as u64),
        id: le32(table, 440).unwrap_or(0),
    };
    let mut all = Vec::new();
    for entry in entries {
        all.push(reader.partition(entry.number, entry, u64::from(entry.start)));
    }
    let mut damage = None;
    // Linux, too, reads the logical partitions of the first extended partition only.
    if let Some(extended) = entries.iter().find(|e| e.is_extended()) {
        damage = reader.chain(extended, &mut all)?;
    }
    Ok(Some(Partitions {
        table: "MBR",
        all,
        damage,
    }))
}

struct Reader<'a, D> {
    disk: &'a D,
    /// Bytes of a sector.
    sector: u64,
    /// The disk's signature.
    id: u32,
}

impl<D: Disk> Reader<'_, D> {
    /// The partition of an entry that starts at sector `start`.
    fn partition(&self, number: u32, entry: &Entry, start: u64) -> Partition {
        Partition {
            number,
            offset: start * self.sector,
            size: u64::from(entry.len) * self.sector,
            kind: kind(entry.kind),
            name: String::new(),
            uuid: format!("{:08x}-{number:02x}", self.id),
            ext4: None,
            extended: entry.is_extended(),
            fault: None,
        }
    }

    /// Adds the logical partitions in `extended`. Returns the fault that ended the chain early, if
    /// any.
    fn chain(
        &self,
        extended: &Entry,
        all: &mut Vec<Partition>,
    ) -> Result<Option<String>, D::Error> {
        let first = u64::from(extended.start);
        let end = first + u64::from(extended.len);
        let mut seen = BTreeSet::new();
        let mut at = first;
        let mut number = 5;
        loop {
            let here = at;
            let cut = |why: &str| {
                Ok(Some(format!(
                    "whose chain of logical partitions {why} at sector {here}"
                )))
            };
            if !seen.insert(at) {
                return cut("comes back to where it was");
            }
            if seen.len() > MOST_LINKS {
                return cut("is too long");
            }
            let Some(table) = self.disk.bytes(at * self.sector, LEN)? else {
                return cut("leaves the disk");
            };
            let Some(links) = link(&table) else {
                return cut("ends in what is no table");
            };
            let logical = links.iter().find(|e| !e.is_extended());
            if let Some(entry) = logical.filter(|e| e.kind != 0 && e.len > 0) {
                let start = at + u64::from(entry.start);
                let mut partition = self.partition(number, entry, start);
                if start <= at || start + u64::from(entry.len) > end {
                    let fault = "it is not within the extended partition".to_owned();
                    partition.fault = Some(fault);
                }
                all.push(partition);
                number += 1;
            }
            match links.iter().find(|e| e.is_extended() && e.len > 0) {
                None => return Ok(None),
                Some(next) => at = first + u64::from(next.start),
            }
            if at >= end {
                return cut("leaves the extended partition");
            }
        }
    }
}

/// The two meaningful entries of a link.
fn link(table: &[u8]) -> Option<[Entry; 2]> {
    if array_at(table, 510)? != [0x55, 0xaa] {
        return None;
    }
    let entry = |number: u32| {
        let at = 430 + 16 * number as usize;
        let [kind] = array_at(table, at + 4)?;
        Some(Entry {
            number,
            kind,
            start: le32(table, at + 8)?,
            len: le32(table, at + 12)?,
        })
    };
    Some([entry(1)?, entry(2)?])
}

fn kind(number: u8) -> String {
    match number {
        0x83 => "Linux",
        0x82 => "Linux swap",
        0x8e => "Linux LVM",
        0xfd => "Linux RAID",
        0x07 => "NTFS or exFAT",
        0x01 | 0x04 | 0x06 | 0x0b | 0x0c | 0x0e => "FAT",
        0x05 | 0x0f | 0x85 => "extended",
        0xef => "EFI system",
        other => return format!("type {other:#04x}"),
    }
    .into()
}
