//! Partition tables: MBR and GPT (UEFI specification, chapter 5).

use std::fmt;

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// `GPT` or `MBR`.
    pub table: &'static str,
    /// Its partitions.
    pub all: Vec<Partition>,
}

/// A partition. Offset and size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1 on.
    pub number: u32,
    /// Where it starts.
    pub offset: u64,
    /// Its size.
    pub size: u64,
    /// In words, or the number in the table.
    pub kind: String,
    /// Its name; empty in an MBR.
    pub name: String,
}

/// Partitions that are looked at.
const MOST: u32 = 128;

impl Partitions {
    /// The table at the start of a disk.
    pub(super) fn read(head: &[u8]) -> Option<Partitions> {
        if head.get(510..512)? != [0x55, 0xaa] {
            return None;
        }
        [512, 4096]
            .into_iter()
            .find_map(|sector| gpt(head, sector))
            .or_else(|| mbr(head))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(field))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(field))
}

fn mbr(head: &[u8]) -> Option<Partitions> {
    let mut all = Vec::new();
    for number in 1..=4 {
        let entry = head.get(430 + 16 * number as usize..)?.get(..16)?;
        let (start, sectors) = (u32_at(entry, 8)?, u32_at(entry, 12)?);
        match entry[4] {
            0 => continue,
            // Other values are no table's.
            _ if entry[0] & 0x7f != 0 || start == 0 || sectors == 0 => return None,
            kind => all.push(Partition {
                number,
                offset: u64::from(start) * 512,
                size: u64::from(sectors) * 512,
                kind: mbr_kind(kind),
                name: String::new(),
            }),
        }
    }
    (!all.is_empty()).then_some(Partitions { table: "MBR", all })
}

fn mbr_kind(kind: u8) -> String {
    match kind {
        0x83 => "Linux",
        0x82 => "Linux swap",
        0x8e => "Linux LVM",
        0xfd => "Linux RAID",
        0x07 => "NTFS or exFAT",
        0x01 | 0x04 | 0x06 | 0x0b | 0x0c | 0x0e => "FAT",
        0x05 | 0x0f | 0x85 => "extended",
        0xef => "EFI system",
        0xee => "GPT",
        other => return format!("type {other:#04x}"),
    }
    .into()
}

fn gpt(head: &[u8], sector: usize) -> Option<Partitions> {
    let header = head.get(sector..)?;
    if !header.starts_with(b"EFI PART") {
        return None;
    }
    let sector_size = sector as u64;
    let table = u64_at(header, 72)?.checked_mul(sector_size)?;
    let (count, size) = (u32_at(header, 80)?, u32_at(header, 84)?);
    let size = usize::try_from(size).ok().filter(|n| *n >= 128)?;
    let mut all = Vec::new();
    for number in 1..=count.min(MOST) {
        let at = usize::try_from(table).ok()? + size.checked_mul(number as usize - 1)?;
        let Some(entry) = head.get(at..).and_then(|rest| rest.get(..128)) else {
            break;
        };
        let kind = guid(&entry[..16]);
        let (first, last) = (u64_at(entry, 32)?, u64_at(entry, 40)?);
        if kind == UNUSED || last < first {
            continue;
        }
        let name = entry[56..].chunks_exact(2);
        let name = name
            .map(|c| u16::from_le_bytes([c[0], c[1]]))
            .take_while(|c| *c != 0);
        all.push(Partition {
            number,
            offset: first.saturating_mul(sector_size),
            size: (last - first).saturating_add(1).saturating_mul(sector_size),
            kind: gpt_kind(&kind),
            name: char::decode_utf16(name).map(|c| c.unwrap_or('?')).collect(),
        });
    }
    Some(Partitions { table: "GPT", all })
}

const UNUSED: &str = "00000000-0000-0000-0000-000000000000";

/// A GUID as it is written: the first three parts are little-endian.
fn guid(b: &[u8]) -> String {
    let part =
        |order: &[usize]| -> String { order.iter().map(|i| format!("{:02X}", b[*i])).collect() };
    [
        part(&[3, 2, 1, 0]),
        part(&[5, 4]),
        part(&[7, 6]),
        part(&[8, 9]),
        part(&[10, 11, 12, 13, 14, 15]),
    ]
    .join("-")
}

fn gpt_kind(guid: &str) -> String {
    match guid {
        "0FC63DAF-8483-4772-8E79-3D69D8477DE4" => "Linux",
        "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709" => "Linux root (x86-64)",
        "B921B045-1DF0-41C3-AF44-4C6F280D3FAE" => "Linux root (arm64)",
        "933AC7E1-2EB4-4F13-B844-0E14E2AEF915" => "Linux home",
        "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F" => "Linux swap",
        "E6D6D379-F507-44C2-A23C-238F2A3DF928" => "Linux LVM",
        "A19D880F-05FC-4D3B-A006-743F0F84911E" => "Linux RAID",
        "C12A7328-F81F-11D2-BA4B-00A0C93EC93B" => "EFI system",
        "21686148-6449-6E6F-744E-656564454649" => "BIOS boot",
        "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7" => "Microsoft basic data",
        other => return format!("type {other}"),
    }
    .into()
}

impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it holds a partition table ({})", self.table)?;
        if self.all.is_empty() {
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
        write!(f, ") at byte {}, {} bytes", self.offset, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::Foreign;

    #[test]
    fn a_boot_sector_without_entries_is_no_table() {
        let mut head = vec![0; 1024];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(Foreign::of(&head), Foreign::Unknown);
    }

    #[test]
    fn a_disk_with_large_sectors_has_its_table_there() {
        let mut head = vec![0; 3 * 4096];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        head[4096..4104].copy_from_slice(b"EFI PART");
        head[4096 + 72] = 2;
        head[4096 + 80] = 1;
        head[4096 + 84] = 128;
        let entry = &mut head[8192..8192 + 128];
        entry[..4].copy_from_slice(&[0xaf, 0x3d, 0xc6, 0x0f]);
        (entry[32], entry[40], entry[56]) = (6, 9, b'a');
        let table = Partitions::read(&head).map(|t| t.to_string());
        let kind = "0FC63DAF-0000-0000-0000-000000000000";
        let expected = format!(
            "it holds a partition table (GPT): partition 1 (type {kind}, \"a\") at byte 24576, 16384 bytes"
        );
        assert_eq!(table, Some(expected));
    }
}
