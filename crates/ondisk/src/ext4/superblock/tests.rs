#![allow(clippy::unwrap_used)]

use super::*;
use crate::ext4::group_desc::{self, GroupDesc};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::FromZeros;

/// A plausible volume of 4 KiB blocks in two groups.
fn volume() -> Superblock {
    let mut sb = Superblock::new_zeroed();
    sb.magic.set(MAGIC);
    sb.rev_level.set(DYNAMIC_REV);
    sb.log_block_size.set(2);
    sb.log_cluster_size.set(2);
    sb.blocks_count_lo.set(40000);
    sb.blocks_per_group.set(32768);
    sb.clusters_per_group.set(32768);
    sb.inodes_per_group.set(8192);
    sb.inodes_count.set(16384);
    sb.first_ino.set(11);
    sb.inode_size.set(256);
    sb.desc_size.set(64);
    sb.set_incompat(Incompat::BIT64 | Incompat::EXTENTS);
    sb.set_ro_compat(RoCompat::SPARSE_SUPER | RoCompat::METADATA_CSUM);
    sb
}

/// Calls every function of a geometry with arbitrary arguments: none may panic.
fn ask_everything(geo: &Geometry, group: u32, block: u64, ino: u32, desc: &GroupDesc) {
    let _ = (
        geo.valid_blocks(),
        geo.inodes_per_block(),
        geo.inode_table_blocks(),
        geo.desc_blocks(),
    );
    let _ = (
        geo.group_of_block(block),
        geo.bit_of_block(block),
        geo.group_blocks(group),
        geo.group_clusters(group),
    );
    let _ = (
        geo.has_super(group),
        geo.group_desc_blocks(group),
        geo.group_super_overhead(group),
    );
    let _ = (geo.desc_position(group), geo.check_group_desc(group, desc));
    if let Some((_, index)) = geo.locate_inode(ino) {
        let (_, at) = geo.inode_position(block, index);
        assert!(at + usize::from(geo.inode_size) <= geo.block_size as usize);
    }
}

#[test]
fn geometry_of_a_plain_volume() {
    let geo = volume().geometry().unwrap();
    assert_eq!(
        (geo.block_size, geo.group_count, geo.blocks_per_cluster),
        (4096, 2, 1)
    );
    assert_eq!(geo.group_blocks(1), 32768..40000);
    assert_eq!(geo.group_of_block(32768), Some(1));
    assert_eq!(geo.bit_of_block(32770), Some(2));
    assert_eq!(geo.group_of_block(40000), None);
    assert_eq!(geo.locate_inode(8193), Some((1, 0)));
    assert_eq!(geo.locate_inode(0), None);
    assert_eq!(geo.locate_inode(16385), None);
    assert_eq!(geo.inode_position(100, 17), (101, 256));
    assert_eq!(geo.desc_position(1), Some((1, 64)));
}

#[test]
fn impossible_superblocks_are_refused() {
    let refused = |change: fn(&mut Superblock)| {
        let mut sb = volume();
        change(&mut sb);
        sb.geometry().unwrap_err()
    };
    let corrupt = |e: crate::OnDiskError| matches!(e, crate::OnDiskError::Corrupt { .. });
    assert!(corrupt(refused(|s| s.magic.set(0xEF54))));
    assert!(corrupt(refused(|s| s.log_block_size.set(7))));
    assert!(corrupt(refused(|s| s.log_cluster_size.set(3))));
    assert!(corrupt(refused(|s| s.blocks_per_group.set(0))));
    assert!(corrupt(refused(|s| s.clusters_per_group.set(32776))));
    assert!(corrupt(refused(|s| s.inodes_per_group.set(0))));
    assert!(corrupt(refused(|s| s.inodes_count.set(16383))));
    assert!(corrupt(refused(|s| s.inode_size.set(192))));
    assert!(corrupt(refused(|s| s.inode_size.set(8192))));
    assert!(corrupt(refused(|s| s.desc_size.set(48))));
    assert!(corrupt(refused(|s| s.first_data_block.set(1))));
    assert!(corrupt(refused(|s| s.set_blocks_count(0))));
    assert!(corrupt(refused(|s| s.set_blocks_count(u64::MAX))));
    assert!(corrupt(refused(|s| s.first_ino.set(2))));
    assert!(
        !corrupt(refused(|s| s.rev_level.set(2))),
        "a new revision is no damage"
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        noise in vec(any::<u8>(), SUPERBLOCK_SIZE), keep in vec(0u8..8, 0xE0 / 2),
        group: u32, block: u64, ino: u32, desc in vec(any::<u8>(), 64),
    ) {
        // Mostly plausible, so that it passes the first checks: one 16-bit word in eight is random.
        let mut bytes = volume().as_bytes().to_vec();
        for (i, _) in keep.iter().enumerate().filter(|(_, k)| **k == 0) {
            let at = i * 2;
            bytes[at..at + 2].copy_from_slice(&noise[at..at + 2]);
        }
        for image in [&bytes, &noise] {
            let sb = Superblock::decode_unchecked(image).unwrap();
            let _ = (sb.verify_checksum(), sb.features().to_string(), sb.label().len(), sb.default_hash());
            if let Ok(geo) = sb.geometry() {
                ask_everything(&geo, group, block, ino, &GroupDesc::decode(&desc).unwrap());
            }
        }
        prop_assert!(Superblock::decode(&bytes[..1023]).is_err());
    }

    #[test]
    fn counts_and_times_round_trip(blocks: u64, free: u64, time in 0u64..1 << 40) {
        let mut sb = volume();
        sb.set_blocks_count(blocks);
        sb.set_free_blocks_count(free);
        sb.set_write_time(time);
        sb.update_checksum();
        let mut bytes = [0u8; SUPERBLOCK_SIZE];
        sb.encode(&mut bytes).unwrap();
        let back = Superblock::decode_unchecked(&bytes).unwrap();
        prop_assert_eq!((back.blocks_count(), back.free_blocks_count(), back.write_time()), (blocks, free, time));
        prop_assert!(back.verify_checksum());
    }

    #[test]
    fn descriptors_round_trip(bitmap: u64, free: u32, unused: u32, wide: bool, group: u32, len in 0usize..70, at in 0usize..32) {
        let size = if wide { 64 } else { 32 };
        let mode = ChecksumMode::MetadataCsum { seed: 9 };
        let mut desc = GroupDesc::zeroed(size);
        desc.set_block_bitmap(bitmap);
        desc.set_free_clusters(free);
        desc.set_itable_unused(unused);
        let mut bytes = vec![0u8; size];
        desc.encode_with_checksum(&mut bytes, group, &mode).unwrap();
        let back = GroupDesc::decode(&bytes).unwrap();
        prop_assert_eq!(back, desc);
        let cut = |v: u64, bits: u32| if wide { v } else { v & ((1 << bits) - 1) };
        prop_assert_eq!(back.block_bitmap(), cut(bitmap, 32));
        prop_assert_eq!(u64::from(back.free_clusters()), cut(free.into(), 16));
        prop_assert_eq!(u64::from(back.itable_unused()), cut(unused.into(), 16));
        for mode in [mode, ChecksumMode::GdtCsum { uuid: [7; 16] }] {
            group_desc::update_checksum(&mut bytes, group, &mode).unwrap();
            prop_assert!(group_desc::verify_checksum(&bytes, group, &mode));
            prop_assert!(!group_desc::verify_checksum(&bytes, group ^ 1, &mode));
            bytes[at] ^= 0x10;
            prop_assert!(!group_desc::verify_checksum(&bytes, group, &mode));
            bytes[at] ^= 0x10;
        }
        // A short buffer is an error, not a panic.
        prop_assert_eq!(GroupDesc::decode(&vec![0u8; len]).is_ok(), len >= 32);
        prop_assert_eq!(desc.encode(&mut vec![0u8; len]).is_ok(), len >= size);
    }
}

proptest! {
    /// The superblock is valid whichever of the two changed sectors reaches the device.
    #[test]
    fn a_change_of_the_first_sector_leaves_the_second(
        bytes in vec(any::<u8>(), 512), mnt_count: u16, last_orphan: u32, time in any::<u64>()
    ) {
        let mut before = volume();
        before.as_mut_bytes()[0x120..0x120 + 512].copy_from_slice(&bytes);
        before.set_ro_compat(RoCompat::METADATA_CSUM);
        before.update_checksum();
        let mut after = before.clone();
        after.mnt_count.set(mnt_count);
        after.last_orphan.set(last_orphan);
        after.wtime.set(time as u32);
        after.update_checksum_after(&before);
        prop_assert!(after.verify_checksum());
        prop_assert_eq!(&after.as_bytes()[512..], &before.as_bytes()[512..]);
        prop_assert_eq!(after.last_orphan.get(), last_orphan);
        // The same if both sectors change, and for any two in a series of changes.
        let mut both = after.clone();
        both.last_error_errcode ^= 1;
        both.mnt_count.set(mnt_count ^ 1);
        both.update_checksum_after(&after);
        prop_assert_ne!(both.checksum.get(), after.checksum.get());
        let mut third = both.clone();
        third.first_error_errcode ^= 1;
        third.last_orphan.set(last_orphan ^ 1);
        third.update_checksum_after(&both);
        let all = [&before, &after, &both, &third];
        for (first, second) in all.iter().flat_map(|x| all.iter().map(move |y| (x, y))) {
            let mut mixed = (*first).clone();
            mixed.as_mut_bytes()[512..].copy_from_slice(&second.as_bytes()[512..]);
            prop_assert!(mixed.verify_checksum());
        }
        let mut again = third.clone();
        again.update_checksum_after(&before);
        prop_assert_eq!(again, third);
    }
}
