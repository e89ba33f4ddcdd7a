use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::convert::checksum_of_repeated;
use super::map::{CRC32, DONT_CARE, FILL, RAW};
use super::*;
use crate::MemDevice;

/// Maximum number of filled bytes.
const MAX: u64 = 1 << 20;

/// A sparse image with blocks of 8 bytes and these chunks: kind, blocks, data.
fn image(blocks: u32, chunks: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(SPARSE_MAGIC.to_le_bytes());
    for half in [1u16, 0, 28, 12] {
        out.extend(half.to_le_bytes());
    }
    for word in [8, blocks, chunks.len() as u32, 0] {
        out.extend(word.to_le_bytes());
    }
    for (kind, blocks, bytes) in chunks {
        out.extend(kind.to_le_bytes());
        out.extend([0; 2]);
        out.extend(blocks.to_le_bytes());
        out.extend((12 + bytes.len() as u32).to_le_bytes());
        out.extend(*bytes);
    }
    out
}

fn small() -> Vec<u8> {
    image(
        7,
        &[
            (RAW, 1, b"12345678"),
            (FILL, 2, b"abcd"),
            (DONT_CARE, 1, b""),
            (RAW, 2, b"first---second--"),
            (FILL, 1, b"\0\0\0\0"),
        ],
    )
}

const PLAIN: &[u8] = b"12345678abcdabcdabcdabcd\0\0\0\0\0\0\0\0first---second--\0\0\0\0\0\0\0\0";

fn device(bytes: &[u8]) -> SparseDevice<MemDevice> {
    let map = SparseMap::read(&bytes).unwrap();
    let file = MemDevice::new(bytes.len() as u64);
    file.write(0, bytes).unwrap();
    SparseDevice::new(file, map)
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn every_piece_reads_as_the_plain_image() {
    let device = device(&small());
    assert_eq!(device.size(), PLAIN.len() as u64);
    for from in 0..=PLAIN.len() {
        for to in from..=PLAIN.len() {
            let mut buf = vec![9; to - from];
            device.read(from as u64, &mut buf).unwrap();
            assert_eq!(buf, PLAIN[from..to], "{from}..{to}");
        }
    }
    let beyond = device.read(PLAIN.len() as u64 - 1, &mut [0; 2]);
    assert!(matches!(beyond, Err(BlockError::OutOfRange { .. })));
    assert!(device.read_only());
    let written = device.write(0, b"x");
    assert!(matches!(written, Err(BlockError::ReadOnly { .. })));
    assert!(device.discard(0..8).is_err());
}

#[test]
fn checksums_are_looked_at() {
    let with = |crc: u32| {
        image(
            4,
            &[
                (FILL, 2, b"abcd"),
                (DONT_CARE, 1, b""),
                (CRC32, 0, &crc.to_le_bytes()),
                (RAW, 1, b"12345678"),
            ],
        )
    };
    let crc = crc32fast::hash(b"abcdabcdabcdabcd\0\0\0\0\0\0\0\0");
    let to = file(b"");
    let done = unpack(&file(&with(crc)), &to, MAX).unwrap();
    assert_eq!((done.filled, done.skipped, done.raw), (2, 1, 1));
    assert_eq!(content(&to), b"abcdabcdabcdabcd\0\0\0\0\0\0\0\x0012345678");
    let wrong = unpack(&file(&with(crc ^ 1)), &file(b""), MAX);
    assert!(matches!(wrong, Err(SparseError::Checksum(3))), "{wrong:?}");
}

/// A small image can demand many filled bytes: more than the limit are refused before anything is
/// written. Holes take neither space nor time, with checksums neither.
#[test]
fn filling_is_bounded_and_zeroes_are_holes() {
    let most = u32::MAX;
    let bytes = image(most, &[(FILL, 2, b"abcd"), (FILL, most - 2, b"abcd")]);
    let to = file(b"");
    let refused = unpack(&file(&bytes), &to, MAX).unwrap_err();
    let all = u64::from(most) * 8;
    let is_told =
        matches!(refused, SparseError::Fill { chunk: 1, all: told, max: MAX, .. } if told == all);
    assert!(is_told, "{refused:?}");
    assert!(refused.to_string().contains("chunk 1 "), "{refused}");
    assert_eq!(to.metadata().unwrap().len(), 0);
    let two = image(4, &[(FILL, 2, b"abcd"), (FILL, 2, b"efgh")]);
    assert!(unpack(&file(&two), &file(b""), 31).is_err());
    assert!(unpack(&file(&two), &file(b""), 32).is_ok());

    // 32 GiB of zeros, with zlib's checksum for them.
    let zeroes = checksum_of_repeated(0, all - 8).finalize();
    let mut few = crc32fast::Hasher::new();
    few.update(&[7; 4096]);
    assert_eq!(
        checksum_of_repeated(0x0707_0707, 4096).finalize(),
        few.finalize()
    );
    for (kind, behind) in [(FILL, &b"\0\0\0\0"[..]), (DONT_CARE, b"")] {
        let bytes = image(
            most,
            &[
                (kind, most - 1, behind),
                (CRC32, 0, &zeroes.to_le_bytes()),
                (RAW, 1, b"12345678"),
            ],
        );
        let to = file(b"");
        unpack(&file(&bytes), &to, 0).unwrap();
        use std::os::unix::fs::MetadataExt;
        let made = to.metadata().unwrap();
        assert_eq!(made.len(), all);
        assert!(made.blocks() * 512 < 1 << 20, "{}", made.blocks());
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let damaged = |bytes: &[u8], word: &str| {
        let said = SparseMap::read(&bytes).unwrap_err().to_string();
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    };
    damaged(
        &image(2, &[(RAW, 1, b"12345678")]),
        "1 blocks in all, not 2",
    );
    damaged(&image(1, &[(FILL, 2, b"abcd")]), "beyond the 1 blocks");
    damaged(&image(1, &[(RAW, 1, b"1234")]), "has 4 bytes, not 8");
    damaged(&image(1, &[(0xcac5, 1, b"")]), "unknown kind 0xcac5");
    damaged(
        &image(u32::MAX, &[(DONT_CARE, u32::MAX, b""), (DONT_CARE, 1, b"")]),
        "beyond the",
    );
    let mut cut = small();
    cut.truncate(cut.len() - 1);
    damaged(&cut, "beyond the end of the file");
    let mut short = small();
    short[36..40].copy_from_slice(&11u32.to_le_bytes());
    damaged(&short, "shorter than its head");
    for (at, to, word) in [
        (0, 1u16, "not an Android"),
        (4, 2, "version 2"),
        (8, 27, "too short"),
    ] {
        let mut other = small();
        other[at..at + 2].copy_from_slice(&to.to_le_bytes());
        damaged(&other, word);
    }
    for block in [0, 6, 1 << 30] {
        let mut other = small();
        other[12..16].copy_from_slice(&u32::to_le_bytes(block));
        damaged(&other, "blocks of");
    }
    damaged(b"", "not an Android");
}

fn noise(bytes: &mut [u8]) {
    let mut state = 1u32;
    bytes.fill_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
}

#[test]
fn a_plain_image_comes_back() {
    let mut plain = vec![0u8; 5 << 20];
    plain[..4096].fill(7);
    noise(&mut plain[1 << 20..2 << 20]);
    // A block that repeats a word except at its end.
    plain[3 << 20..(3 << 20) + 4096].fill(1);
    plain[(3 << 20) + 4095] = 2;
    let from = file(&plain);
    from.set_len(9 << 20).unwrap();
    plain.resize(9 << 20, 0);
    for (zeroes, skipped) in [(Zeroes::Fill, 0), (Zeroes::Skip, 9 * 256 - 258)] {
        let (packed, back) = (file(b""), file(b""));
        let done = pack(&from, &packed, 4096, zeroes).unwrap();
        assert_eq!((done.blocks, done.raw), (9 * 256, 257), "{zeroes:?}");
        assert_eq!(done.skipped, skipped);
        assert!(packed.metadata().unwrap().len() < (1 << 20) + 8192);
        assert_eq!(unpack(&packed, &back, MAX).unwrap(), done);
        assert!(content(&back) == plain);
    }
    assert!(pack(&from, &file(b""), 6, Zeroes::Fill).is_err());
    assert!(pack(&from, &file(b""), 0, Zeroes::Fill).is_err());
}

#[test]
fn the_last_block_is_made_whole() {
    let (packed, back) = (file(b""), file(b""));
    pack(&file(&[5; 5000]), &packed, 4096, Zeroes::Fill).unwrap();
    unpack(&packed, &back, MAX).unwrap();
    let mut wanted = vec![5; 5000];
    wanted.resize(8192, 0);
    assert!(content(&back) == wanted);
}

proptest! {
    /// Arbitrary bytes cause no panic, and an accepted image can be read to its end, up to a size.
    #[test]
    fn any_bytes_are_read_or_refused(
        changes in prop::collection::vec((0..150usize, any::<u8>()), 0..12),
        cut in 0..150usize,
    ) {
        let mut bytes = small();
        for (at, to) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
        }
        bytes.truncate(bytes.len().max(cut));
        if let Ok(map) = SparseMap::read(&bytes.as_slice()) {
            let file = MemDevice::new(bytes.len() as u64);
            file.write(0, &bytes).unwrap();
            let device = SparseDevice::new(file, map);
            for at in [0, device.size() / 2, device.size().saturating_sub(64)] {
                let len = (device.size() - at).min(64);
                device.read(at, &mut vec![0; len as usize]).unwrap();
            }
        }
    }

    /// Unpacking a packed image restores it, whatever the blocks hold.
    #[test]
    fn any_image_comes_back(
        blocks in prop::collection::vec((0..4u8, any::<u32>(), 1..9usize), 0..40),
        skip in any::<bool>(),
    ) {
        let mut plain = Vec::new();
        for (kind, word, times) in blocks {
            for i in 0..times as u32 {
                let word = match kind {
                    0 => 0,
                    1 => word,
                    _ => word.wrapping_add(i),
                };
                plain.extend(word.to_le_bytes());
                plain.extend(word.wrapping_mul(u32::from(kind / 2) + 1).to_le_bytes());
            }
        }
        let zeroes = if skip { Zeroes::Skip } else { Zeroes::Fill };
        let (packed, back) = (file(b""), file(b""));
        pack(&file(&plain), &packed, 8, zeroes).unwrap();
        unpack(&packed, &back, MAX).unwrap();
        prop_assert_eq!(content(&back), plain.clone());
        let packed = content(&packed);
        if !plain.is_empty() {
            let mut read = vec![0; plain.len()];
            device(&packed).read(0, &mut read).unwrap();
            prop_assert_eq!(read, plain);
        }
    }
}
