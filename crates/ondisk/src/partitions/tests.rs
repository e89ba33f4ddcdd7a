//! Valid tables are read, and hostile ones are reported.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::samples::{SECTORS, gpt, mbr, mbr_entry, put};
use super::*;

fn table(disk: &[u8]) -> Option<Partitions> {
    let Ok(table) = Partitions::read(&disk);
    table
}

/// Number, offset and size of each partition, in sectors of 512.
fn places(table: &Partitions) -> Vec<(u32, u64, u64)> {
    let place = |p: &Partition| (p.number, p.offset / 512, p.size / 512);
    table.all.iter().map(place).collect()
}

fn fault(table: &Partitions, number: u32) -> Option<&str> {
    let partition = table.all.iter().find(|p| p.number == number).unwrap();
    partition.fault.as_deref()
}

const TWO: [(&str, u64, u64); 2] = [("boot", 20, 99), ("röot", 100, 199)];

#[test]
fn an_mbr_with_logical_partitions() {
    let table = table(&mbr()).unwrap();
    let expected = [(1, 100, 100), (3, 300, 900), (5, 310, 200), (6, 720, 100)];
    assert_eq!(places(&table), expected);
    assert_eq!((table.table, &table.damage), ("MBR", &None));
    assert!(table.all.iter().all(|p| p.fault.is_none()));
    assert_eq!(table.named("5").unwrap().uuid, "deadbeef-05");
    assert_eq!(table.named("DEADBEEF-06").unwrap().number, 6);
    let said = table.named("3").unwrap_err().to_string();
    assert!(said.contains("an extended one"), "{said}");
}

#[test]
fn a_chain_that_comes_back_leaves_or_ends_in_nothing_is_cut() {
    let damage = |slot, kind, start: u32| {
        let mut disk = mbr();
        mbr_entry(&mut disk, 700, slot, kind, start, 50);
        table(&disk).unwrap().damage.unwrap_or_default()
    };
    assert!(damage(1, 0x05, 0).contains("comes back"), "to the first");
    assert!(damage(1, 0x0f, 400).contains("comes back"), "to itself");
    assert!(damage(1, 0x85, 5000).contains("leaves the extended partition"));
    assert!(damage(1, 0x05, 10).contains("ends in what is no table"));
    // An extended partition that is longer than the disk.
    let mut disk = mbr();
    mbr_entry(&mut disk, 0, 2, 0x05, 300, u32::MAX);
    mbr_entry(&mut disk, 700, 1, 0x05, 1 << 30, 50);
    let table = table(&disk).unwrap();
    assert!(table.damage.as_ref().unwrap().contains("leaves the disk"));
    // The partitions before it are usable.
    assert_eq!(table.named("6").unwrap().offset, 720 * 512);
    assert!(table.to_string().contains("leaves the disk"));
}

#[test]
fn a_long_chain_ends() {
    let mut disk = vec![0; 4 << 20];
    mbr_entry(&mut disk, 0, 0, 0x0f, 1, 8000);
    for i in 0..2000u32 {
        mbr_entry(&mut disk, 1 + 4 * i as usize, 0, 0x83, 1, 1);
        mbr_entry(&mut disk, 1 + 4 * i as usize, 1, 0x0f, 4 * (i + 1), 4);
    }
    let table = table(&disk).unwrap();
    assert_eq!(table.all.len(), 129);
    assert!(table.damage.unwrap().contains("is too long"));
}

#[test]
fn logical_partitions_lie_in_the_extended_one() {
    let mut disk = mbr();
    mbr_entry(&mut disk, 700, 0, 0x83, 20, 5000);
    mbr_entry(&mut disk, 300, 0, 0x83, 0, 100);
    let table = table(&disk).unwrap();
    let outside = Some("it is not within the extended partition");
    assert_eq!((fault(&table, 5), fault(&table, 6)), (outside, outside));
}

#[test]
fn a_gpt_with_small_and_large_sectors() {
    for sector in [512, 4096] {
        let table = table(&gpt(sector, &TWO)).unwrap();
        assert_eq!((table.table, &table.damage), ("GPT", &None));
        let root = table.named("röot").unwrap();
        assert_eq!(root.number, 2);
        assert_eq!(root.offset, 100 * sector as u64);
        assert_eq!(root.size, 100 * sector as u64);
        assert_eq!(root.kind, "Linux");
        assert_eq!(root.uuid, "02020202-0202-0202-0202-020202020202");
        assert_eq!(table.named(&root.uuid.to_uppercase()).unwrap(), root);
        assert_eq!(table.named("2").unwrap(), root);
    }
}

#[test]
fn the_copy_at_the_end_counts_where_the_first_is_damaged() {
    for sector in [512, 4096] {
        // Damage to the header's checksum, to the entries, or to the header's magic.
        for at in [sector + 60, 2 * sector + 32, sector] {
            let mut disk = gpt(sector, &TWO);
            disk[at] ^= 1;
            let found = table(&disk).unwrap();
            assert_eq!(found.named("boot").unwrap().offset, 20 * sector as u64);
            assert!(found.damage.unwrap().contains("first copy is damaged"));

            disk[(SECTORS - 1) * sector + 60] ^= 1;
            let found = table(&disk).unwrap();
            assert!(found.damage.as_ref().unwrap().contains("both copies"));
            let said = found.named("1").unwrap_err().to_string();
            assert!(said.contains("both copies of it are damaged"), "{said}");
        }
        // In an image that was extended, the first header names the position of the copy.
        let mut disk = gpt(sector, &TWO);
        disk.resize(SECTORS * sector + 8192, 0);
        disk[2 * sector] ^= 1;
        assert!(table(&disk).unwrap().named("boot").is_ok());
    }
}

#[test]
fn what_cannot_be_is_a_fault() {
    let table = table(&gpt(
        512,
        &[
            ("over", 1, 30),
            ("a", 50, 99),
            ("b", 90, 120),
            ("inverted", 200, 150),
            ("beyond", 250, 300),
            ("huge", 260, u64::MAX),
            ("entries", 3, 10),
            ("good", 130, 140),
        ],
    ))
    .unwrap();
    assert_eq!(fault(&table, 1), Some("it lies over the table"));
    assert_eq!(fault(&table, 2), Some("it overlaps partition 3"));
    assert_eq!(fault(&table, 3), Some("it overlaps partition 2"));
    assert_eq!(fault(&table, 4), Some("it ends before it begins"));
    let outside = Some("it is not within the 153600 bytes of the disk");
    assert_eq!(fault(&table, 5), outside);
    assert!(fault(&table, 6).is_some());
    assert_eq!(fault(&table, 7), Some("it lies over the table"));
    assert_eq!(fault(&table, 8), None);
    let said = table.named("b").unwrap_err().to_string();
    assert_eq!(said, "partition 3, but it overlaps partition 2");
}

#[test]
fn names_that_two_have_are_not_guessed() {
    let found = table(&gpt(512, &[("x", 20, 29), ("x", 30, 39)])).unwrap();
    let said = found.named("x").unwrap_err().to_string();
    assert!(said.contains("by its number, 1 and 2"), "{said}");
    let said = found.named("y").unwrap_err().to_string();
    assert!(said.starts_with("no partition y: it holds"), "{said}");
    assert!(found.named("").is_err());
}

#[test]
fn volumes_in_partitions_are_seen_and_named() {
    let mut disk = gpt(512, &TWO);
    let at = 100 * 512 + 1024;
    put(&mut disk, at + 56, &[0x53, 0xef]);
    put(&mut disk, at + 104, &[0xab; 16]);
    put(&mut disk, at + 120, b"data");
    let table = table(&disk).unwrap();
    let with: Vec<u32> = table.with_ext4().map(|p| p.number).collect();
    assert_eq!(with, [2]);
    for name in ["data", "ABABABAB-abab-abab-abab-abababababab"] {
        assert_eq!(table.named(name).unwrap().number, 2);
    }
    assert!(table.to_string().contains("holds ext4 \"data\""));
}

/// Checks invariant (1) of the module.
fn check(disk: &[u8]) {
    let Some(table) = table(disk) else { return };
    let sound: Vec<&Partition> = table.all.iter().filter(|p| p.fault.is_none()).collect();
    for (i, a) in sound.iter().enumerate() {
        let end = a.offset.checked_add(a.size).unwrap();
        assert!(a.offset >= 512 && a.size > 0 && end <= disk.len() as u64);
        for b in &sound[..i] {
            let apart = end <= b.offset || b.offset + b.size <= a.offset;
            assert!(a.extended || b.extended || apart, "{a} and {b}");
        }
        let _ = table.named(&a.number.to_string());
    }
    let _ = table.to_string();
}

/// Corrects the checksums of the first copy.
fn reseal(disk: &mut [u8]) {
    let sum = crc32fast::hash(&disk[1024..1024 + 16 * 128]);
    put(disk, 512 + 88, &sum.to_le_bytes());
    put(disk, 512 + 16, &[0; 4]);
    let sum = crc32fast::hash(&disk[512..512 + 92]);
    put(disk, 512 + 16, &sum.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_table_is_a_panic_or_a_wrong_place(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
        kind in 0..4usize,
        cut in any::<prop::sample::Index>(),
        shorter in any::<bool>(),
    ) {
        let mut disk = match kind {
            0 => mbr(),
            1 => gpt(4096, &TWO),
            _ => gpt(512, &TWO),
        };
        // The positions of tables.
        let mut places: Vec<usize> = match kind {
            0 => [0, 300, 700].iter().flat_map(|s| s * 512 + 440..s * 512 + 512).collect(),
            1 => (4096..4096 + 92).chain(8192..8192 + 512).collect(),
            _ => (512..512 + 92).chain(1024..1024 + 512).collect(),
        };
        if kind == 1 || kind == 2 {
            places.extend(446..512);
        }
        for (place, value) in changes {
            let at = *place.get(&places);
            disk[at] = value;
        }
        if kind >= 2 {
            reseal(&mut disk);
        }
        if shorter {
            let len = cut.index(disk.len());
            disk.truncate(len);
        }
        check(&disk);
    }
}
