//! GUID partition tables: one behind the first sector, its copy in the last.

use std::ops::Range;

use super::disk::Disk;
use super::table::{Partition, Partitions};
use crate::bytes::{array_at, le16, le32};
use crate::num::to_usize;

/// Sizes of sectors that disks have.
const SECTORS: [u64; 2] = [512, 4096];

/// Maximum bytes of entries that are read.
const MOST_ENTRIES: usize = 1 << 20;

/// Minimum bytes of a header that its checksum covers.
const HEADER: usize = 92;

/// Bytes of an entry that are read.
const ENTRY: usize = 128;

/// A copy of the table with valid checksums.
struct Copy {
    sector: u64,
    entries: Vec<u8>,
    entry_size: usize,
    /// The byte range of the entries.
    place: Range<u64>,
}

/// Reads the table of a disk whose MBR announces a GPT.
pub(super) fn read<D: Disk>(disk: &D) -> Result<Option<Partitions>, D::Error> {
    let found = |copy: Copy, damage: Option<&str>| {
        Ok(Some(Partitions {
            table: "GPT",
            all: partitions(&copy),
            damage: damage.map(str::to_owned),
        }))
    };
    // Positions of the copy, as named by damaged headers.
    let mut named = Vec::new();
    for sector in SECTORS {
        match copy(disk, sector, sector)? {
            Ok(first) => return found(first, None),
            Err(Some(other)) => named.push((sector, other)),
            Err(None) => {}
        }
    }
    let size = disk.size();
    let last = SECTORS.map(|sector| (sector, (size / sector).saturating_sub(1)));
    for (sector, at) in last.into_iter().chain(named) {
        let at = at.checked_mul(sector).filter(|at| *at > sector);
        if let Some(at) = at
            && let Ok(second) = copy(disk, sector, at)?
        {
            let damage = "whose first copy is damaged, as its other copy at the end has it";
            return found(second, Some(damage));
        }
    }
    Ok(Some(Partitions {
        table: "GPT",
        all: Vec::new(),
        damage: Some("but both copies of it are damaged or missing".into()),
    }))
}

/// Reads the copy whose header is at byte `at`. If it is damaged, the error is the position of the
/// other copy, if the header names a plausible one.
fn copy<D: Disk>(disk: &D, sector: u64, at: u64) -> Result<Result<Copy, Option<u64>>, D::Error> {
    let Some(header) = disk.bytes(at, to_usize(sector))? else {
        return Ok(Err(None));
    };
    if !header.starts_with(b"EFI PART") {
        return Ok(Err(None));
    }
    let other = le64(&header, 32);
    let Some((entries_at, count, entry_size)) = checked(&header, at / sector) else {
        return Ok(Err(other));
    };
    let bytes = count.checked_mul(entry_size).filter(|n| *n <= MOST_ENTRIES);
    let place = entries_at.checked_mul(sector);
    let (Some(len), Some(place)) = (bytes, place) else {
        return Ok(Err(other));
    };
    match disk.bytes(place, len)? {
        Some(entries) if Some(crc32fast::hash(&entries)) == le32(&header, 88) => Ok(Ok(Copy {
            sector,
            place: place..place.saturating_add(len as u64),
            entries,
            entry_size,
        })),
        _ => Ok(Err(other)),
    }
}

/// Sector, number and size of the entries, if the header of this sector has a valid checksum.
fn checked(header: &[u8], sector: u64) -> Option<(u64, usize, usize)> {
    let len = le32(header, 12)? as usize;
    let mut covered = header.get(..len).filter(|h| h.len() >= HEADER)?.to_vec();
    covered.get_mut(16..20)?.fill(0);
    if crc32fast::hash(&covered) != le32(header, 16)? || le64(header, 24)? != sector {
        return None;
    }
    let (count, size) = (le32(header, 80)? as usize, le32(header, 84)? as usize);
    let size_is_one = size >= ENTRY && size.is_power_of_two();
    size_is_one.then_some((le64(header, 72)?, count, size))
}

fn partitions(copy: &Copy) -> Vec<Partition> {
    let entries = copy.entries.chunks_exact(copy.entry_size);
    let numbered = (1..).zip(entries);
    numbered
        .filter_map(|(number, entry)| partition(number, entry, copy))
        .collect()
}

/// Decodes an entry; `None` if it is not in use.
fn partition(number: u32, entry: &[u8], copy: &Copy) -> Option<Partition> {
    let sector = copy.sector;
    let kind = guid(&array_at(entry, 0)?);
    if kind == UNUSED {
        return None;
    }
    let (first, last) = (le64(entry, 32)?, le64(entry, 40)?);
    let offset = first.checked_mul(sector);
    let size = last
        .checked_sub(first)
        .and_then(|n| n.checked_add(1)?.checked_mul(sector));
    let fault = match (offset, size) {
        (Some(_), None) => Some("it ends before it begins"),
        (None, _) => Some("it is not within the disk"),
        (Some(offset), Some(size)) => {
            // The first two sectors also belong to the table.
            let over = offset < 2 * sector
                || (offset < copy.place.end && copy.place.start < offset.saturating_add(size));
            over.then_some("it lies over the table")
        }
    };
    let name = (56..ENTRY)
        .step_by(2)
        .filter_map(|at| le16(entry, at))
        .take_while(|c| *c != 0);
    Some(Partition {
        number,
        offset: offset.unwrap_or(u64::MAX),
        size: size.unwrap_or(0),
        kind: kind_name(&kind),
        name: char::decode_utf16(name).map(|c| c.unwrap_or('?')).collect(),
        uuid: guid(&array_at(entry, 16)?).to_lowercase(),
        ext4: None,
        extended: false,
        fault: fault.map(str::to_owned),
    })
}

fn le64(b: &[u8], off: usize) -> Option<u64> {
    array_at(b, off).map(u64::from_le_bytes)
}

const UNUSED: &str = "00000000-0000-0000-0000-000000000000";

/// The text form of a GUID: the first three parts are little-endian.
fn guid(b: &[u8; 16]) -> String {
    let [a, b, c, d, e, f, g, h, rest @ ..] = b;
    let rest: String = rest.iter().map(|byte| format!("{byte:02X}")).collect();
    let (group, node) = rest.split_at(4);
    format!("{d:02X}{c:02X}{b:02X}{a:02X}-{f:02X}{e:02X}-{h:02X}{g:02X}-{group}-{node}")
}

fn kind_name(guid: &str) -> String {
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
