//! Tables made for tests.

/// Writes bytes at an offset.
pub(super) fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Writes an entry of an MBR or of a link; positions are sectors.
pub(super) fn mbr_entry(
    disk: &mut [u8],
    table: usize,
    slot: usize,
    kind: u8,
    start: u32,
    len: u32,
) {
    let at = table * 512 + 446 + slot * 16;
    put(disk, at + 4, &[kind]);
    put(disk, at + 8, &start.to_le_bytes());
    put(disk, at + 12, &len.to_le_bytes());
    put(disk, table * 512 + 510, &[0x55, 0xaa]);
}

/// A disk with an MBR: partition 1, and an extended one with two logical ones.
pub(super) fn mbr() -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    put(&mut disk, 440, &0xdead_beef_u32.to_le_bytes());
    mbr_entry(&mut disk, 0, 0, 0x83, 100, 100);
    mbr_entry(&mut disk, 0, 2, 0x05, 300, 900);
    mbr_entry(&mut disk, 300, 0, 0x83, 10, 200);
    mbr_entry(&mut disk, 300, 1, 0x05, 400, 300);
    mbr_entry(&mut disk, 700, 0, 0x82, 20, 100);
    disk
}

/// Size of a sample with a GPT in sectors.
pub(super) const SECTORS: usize = 300;

/// A disk with a GPT; the partitions are given by name, first and last sector.
pub(super) fn gpt(sector: usize, partitions: &[(&str, u64, u64)]) -> Vec<u8> {
    let mut disk = vec![0; SECTORS * sector];
    mbr_entry(&mut disk, 0, 0, 0xee, 1, SECTORS as u32 - 1);
    let mut entries = vec![0; 16 * 128];
    for (i, (name, first, last)) in partitions.iter().enumerate() {
        let at = i * 128;
        put(
            &mut entries,
            at,
            &[0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47],
        );
        put(
            &mut entries,
            at + 8,
            &[0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4],
        );
        put(&mut entries, at + 16, &[i as u8 + 1; 16]);
        put(&mut entries, at + 32, &first.to_le_bytes());
        put(&mut entries, at + 40, &last.to_le_bytes());
        for (n, unit) in name.encode_utf16().enumerate() {
            put(&mut entries, at + 56 + 2 * n, &unit.to_le_bytes());
        }
    }
    let table = entries.len().div_ceil(sector);
    let copies = [(1, SECTORS - 1, 2), (SECTORS - 1, 1, SECTORS - 1 - table)];
    for (at, other, place) in copies {
        put(&mut disk, place * sector, &entries);
        let mut header = vec![0; 92];
        put(&mut header, 0, b"EFI PART");
        put(&mut header, 8, &0x10000u32.to_le_bytes());
        put(&mut header, 12, &92u32.to_le_bytes());
        put(&mut header, 24, &(at as u64).to_le_bytes());
        put(&mut header, 32, &(other as u64).to_le_bytes());
        put(&mut header, 72, &(place as u64).to_le_bytes());
        put(&mut header, 80, &16u32.to_le_bytes());
        put(&mut header, 84, &128u32.to_le_bytes());
        put(&mut header, 88, &crc32fast::hash(&entries).to_le_bytes());
        let sum = crc32fast::hash(&header);
        put(&mut header, 16, &sum.to_le_bytes());
        put(&mut disk, at * sector, &header);
    }
    disk
}
