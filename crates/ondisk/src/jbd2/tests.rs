#![allow(clippy::unwrap_used)]

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::block::{BlockHeader, HEADER_LEN, verify_tail};
use super::commit::TransactionSum;
use super::descriptor::{FLAG_ESCAPE, FLAG_LAST, FLAG_SAME_UUID, Tag};
use super::superblock::Csum;
use super::{
    BlockType, CompatFlags, Config, IncompatFlags, JournalSuperblock, MAGIC, commit, descriptor,
};

const SIZE: usize = 1024;
const UUID: [u8; 16] = *b"the journal's ID";

const FORMATS: [(Csum, bool, usize); 8] = [
    (Csum::None, false, 8),
    (Csum::None, true, 12),
    (Csum::V1, false, 8),
    (Csum::V1, true, 12),
    (Csum::V2, false, 10),
    (Csum::V2, true, 14),
    (Csum::V3, false, 16),
    (Csum::V3, true, 16),
];

fn config(csum: Csum, wide: bool) -> Config {
    Config {
        block_size: SIZE as u32,
        wide,
        csum,
        seed: 77,
    }
}

/// As many tags as fit in a descriptor.
fn tags(config: &Config) -> Vec<Tag> {
    let high = if config.wide { 0x12_0000_0000 } else { 0 };
    let sums = match config.csum {
        Csum::V2 => 0xffff,
        Csum::V3 => !0,
        Csum::None | Csum::V1 => 0,
    };
    (0..descriptor::tags_per_block(config) as u64)
        .map(|i| Tag {
            block: high + 0x0102_0304 + i,
            flags: if i % 3 == 1 { FLAG_ESCAPE } else { 0 },
            checksum: (i as u32 * 0x0101_0101) & sums,
        })
        .collect()
}

/// Sizes and offsets of the fields, from the documentation of the format, not from the encoder.
#[test]
fn tags_lie_where_the_format_says() {
    for (csum, wide, len) in FORMATS {
        let config = config(csum, wide);
        let mut block = vec![0; SIZE];
        let tags = tags(&config);
        assert_eq!(
            descriptor::encode(&config, 5, &UUID, &tags, &mut block),
            tags.len()
        );
        let tail = if csum.in_blocks() { 4 } else { 0 };
        assert_eq!(tags.len(), (SIZE - 12 - 16 - tail) / len, "{csum:?} {wide}");
        assert_eq!(block[12 + len..][..16], UUID, "{csum:?} {wide}");
        let third = &block[12 + 16 + 2 * len..][..len];
        assert_eq!(third[..4], [1, 2, 3, 6], "{csum:?} {wide}");
        assert_eq!(third[7], FLAG_SAME_UUID as u8, "{csum:?} {wide}");
        if wide {
            assert_eq!(third[8..12], [0, 0, 0, 0x12], "{csum:?} {wide}");
        }
        match csum {
            Csum::V3 => assert_eq!(third[12..16], [2; 4]),
            Csum::V2 => assert_eq!(third[4..6], [2; 2]),
            Csum::None | Csum::V1 => assert_eq!(third[4..6], [0; 2]),
        }
        assert!(!csum.in_blocks() || verify_tail(config.seed, &block));
    }
}

/// The last-tag flag ends the tags, and so does the end of the block: debugfs and old kernels set
/// no flag in a full block.
#[test]
fn tags_end_with_the_block() {
    for (csum, wide, len) in FORMATS {
        let config = config(csum, wide);
        let mut block = vec![0; SIZE];
        let tags = tags(&config);
        descriptor::encode(&config, 5, &UUID, &tags, &mut block);
        let with_flag = descriptor::decode(&config, &block);
        let homes = |tags: &[Tag]| tags.iter().map(|t| t.block).collect::<Vec<_>>();
        assert_eq!(homes(&with_flag), homes(&tags), "{csum:?} {wide}");

        let last = HEADER_LEN + 16 + (tags.len() - 1) * len;
        assert_eq!(u32::from(block[last + 7]) & FLAG_LAST, FLAG_LAST);
        block[last + 7] &= !(FLAG_LAST as u8);
        let without = descriptor::decode(&config, &block);
        assert_eq!(homes(&without), homes(&tags), "{csum:?} {wide}");
        assert!(without.iter().all(|t| t.flags & FLAG_LAST == 0));
        let sums = |tags: &[Tag]| tags.iter().map(|t| t.checksum).collect::<Vec<_>>();
        assert_eq!(sums(&without), sums(&tags), "{csum:?} {wide}");
    }
}

#[test]
fn commit_blocks_prove_themselves() {
    let mut sum = TransactionSum::default();
    sum.add(&config(Csum::V1, true), b"123456789");
    for (csum, wide, _) in FORMATS {
        let config = config(csum, wide);
        let mut block = vec![0; SIZE];
        commit::encode(&config, 5, (1000, 9), sum, &mut block);
        assert_eq!(commit::time(&block), (1000, 9));
        assert!(commit::verify(&config, &block, sum), "{csum:?}");
        // The record's sector arrived; the sectors behind it have old content.
        let mut torn = block.clone();
        torn[512..].fill(0xaa);
        assert!(commit::verify(&config, &torn, sum), "{csum:?}");
        let mut rotten = block.clone();
        rotten[16] ^= 1;
        assert_eq!(
            commit::verify(&config, &rotten, sum),
            csum == Csum::None,
            "{csum:?}"
        );
        let other = commit::verify(&config, &block, TransactionSum::default());
        assert_eq!(other, csum != Csum::V1, "{csum:?}");
        if csum == Csum::V1 {
            // Type, length, and the check value of CRC-32 with the most significant bit first, not
            // inverted.
            assert_eq!(block[12..20], [1, 4, 0, 0, 0x03, 0x76, 0xe6, 0xe7]);
            block[12..20].fill(0);
            assert!(commit::verify(&config, &block, sum));
        }
    }
}

fn superblock(compat: CompatFlags, incompat: IncompatFlags) -> JournalSuperblock {
    let mut sb = JournalSuperblock::new_zeroed();
    sb.header = BlockHeader {
        h_magic: MAGIC.into(),
        h_blocktype: (BlockType::SuperblockV2 as u32).into(),
        h_sequence: 0.into(),
    };
    sb.s_blocksize = (SIZE as u32).into();
    sb.s_maxlen = 1024.into();
    sb.s_first = 1.into();
    sb.s_feature_compat = compat.bits().into();
    sb.set_incompat(incompat);
    sb.update_checksum();
    sb
}

fn decode(sb: &JournalSuperblock) -> crate::Result<JournalSuperblock> {
    JournalSuperblock::decode(sb.as_bytes(), SIZE as u32, 1024)
}

#[test]
fn features_decide_the_format() {
    let (v1, none) = (CompatFlags::CHECKSUM, CompatFlags::empty());
    let (v2, v3) = (IncompatFlags::CSUM_V2, IncompatFlags::CSUM_V3);
    let empty = IncompatFlags::empty();
    for (compat, incompat, csum, names) in [
        (none, empty, Csum::None, "none"),
        (v1, empty, Csum::V1, "checksum"),
        (v1, IncompatFlags::REVOKE, Csum::V1, "checksum revoke"),
        (none, v2, Csum::V2, "checksum_v2"),
        (none, v3, Csum::V3, "checksum_v3"),
    ] {
        let sb = decode(&superblock(compat, incompat)).unwrap();
        assert_eq!(sb.config().csum, csum);
        assert_eq!(sb.feature_names(), names);
    }
    for (compat, incompat) in [(none, v2 | v3), (v1, v2), (v1, v3)] {
        let e = decode(&superblock(compat, incompat)).unwrap_err();
        assert!(e.to_string().contains("several versions"), "{e}");
    }
    let mut sb = superblock(none, empty);
    sb.s_feature_ro_compat = 1.into();
    assert!(decode(&sb).unwrap_err().to_string().contains("0x1"));
    // Version 1 has no features, whatever the bytes of these fields.
    let mut sb = superblock(v1, v2);
    sb.header.h_blocktype = (BlockType::SuperblockV1 as u32).into();
    sb.s_feature_ro_compat = 1.into();
    let sb = decode(&sb).unwrap();
    assert_eq!((sb.config().csum, sb.config().wide), (Csum::None, false));
    let (again, _) = JournalSuperblock::read_from_prefix(sb.as_bytes()).unwrap();
    assert_eq!(again.incompat(), empty);
}
