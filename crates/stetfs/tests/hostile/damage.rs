//! Damage to metadata: single bits, fields, whole blocks.

use stetfs::low::{BlockDevice, MemDevice};
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use stetfs_fuzzing::images::Image;

/// Damages a device in up to four places. In half of the cases it updates the checksum of the
/// superblock.
pub(crate) fn damage(device: &MemDevice, image: &Image, rng: &mut fastrand::Rng) {
    for _ in 0..1 + rng.u32(0..4) {
        let kind = rng.choice(&image.targets).unwrap();
        let nr = *rng.choice(kind).unwrap();
        let mut block = vec![0; image.block as usize];
        device.read(nr * image.block, &mut block).unwrap();
        // The superblock is inside a large block; the rest of the block is unused.
        let from = if nr == 0 && image.block > SUPERBLOCK_OFFSET {
            SUPERBLOCK_OFFSET as usize
        } else {
            0
        };
        let till = if nr * image.block <= SUPERBLOCK_OFFSET
            && SUPERBLOCK_OFFSET < (nr + 1) * image.block
        {
            from + SUPERBLOCK_SIZE
        } else {
            block.len()
        };
        change(&mut block[from..till], image, device, rng);
        device.write(nr * image.block, &block).unwrap();
    }
    if rng.bool() {
        fix_superblock(device);
    }
}

fn change(bytes: &mut [u8], image: &Image, device: &MemDevice, rng: &mut fastrand::Rng) {
    let len = bytes.len();
    // Most structures begin at the start of a block, and are short.
    let near = match rng.u8(0..3) {
        0 => 64,
        1 => 512.min(len),
        _ => len,
    };
    match rng.u8(0..12) {
        0..3 => bytes[rng.usize(..near)] ^= 1 << rng.u8(0..8),
        3..5 => bytes[rng.usize(..near)] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap(),
        5..7 => {
            let at = rng.usize(..near / 2) * 2;
            let value = *rng
                .choice(&[0u16, 1, 3, 12, 0x7fff, 0x8000, 0xfffe, 0xffff, len as u16])
                .unwrap();
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        7..10 => {
            let at = rng.usize(..near / 4) * 4;
            let blocks = (device.size() / image.block) as u32;
            let somewhere = *rng
                .choice(rng.clone().choice(&image.targets).unwrap())
                .unwrap() as u32;
            let values = [
                0,
                1,
                2,
                8,
                11,
                0x7fff_ffff,
                0x8000_0000,
                u32::MAX,
                blocks,
                blocks - 1,
                somewhere,
            ];
            let value = *rng.choice(&values).unwrap();
            let value = if rng.u8(0..4) == 0 {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            };
            bytes[at..at + 4].copy_from_slice(&value);
        }
        10 => {
            let from = rng.usize(..len);
            let till = rng.usize(from..=len);
            bytes[from..till].fill(*rng.choice(&[0, 0xff]).unwrap());
        }
        _ => {
            // The content of another metadata block.
            let other = *rng
                .choice(rng.clone().choice(&image.targets).unwrap())
                .unwrap();
            device.read(other * image.block, bytes).unwrap();
        }
    }
}

fn fix_superblock(device: &MemDevice) {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    if let Ok(mut sb) = Superblock::decode_unchecked(&bytes) {
        sb.update_checksum();
        sb.encode(&mut bytes).unwrap();
        device.write(SUPERBLOCK_OFFSET, &bytes).unwrap();
    }
}
