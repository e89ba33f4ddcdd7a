//! The checks of each kind of structure.

use crate::mke2fs::volume::{Source, Volume, number_after, word_after};
use stetfs_ondisk::ext4::bitmap;
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::extent;
use stetfs_ondisk::ext4::group_desc::{self, GroupFlags};
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView, is_blank};
use stetfs_ondisk::ext4::orphan_file;
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

/// Checks all structures of a volume that holds the files of `source`.
pub(crate) fn check_everything(v: &Volume, source: &Source) {
    superblocks(v);
    descriptors(v);
    bitmaps(v);
    inodes(v);
    files(v, source);
    orphans(v);
}

/// Flips a bit at each of `positions` and expects `verify` to detect it.
fn assert_noticed(
    bytes: &[u8],
    positions: impl Iterator<Item = usize>,
    verify: impl Fn(&[u8]) -> bool,
) {
    let mut bytes = bytes.to_vec();
    let mut tried = 0;
    for at in positions {
        let bit = 1 << (at % 8);
        bytes[at] ^= bit;
        assert!(!verify(&bytes), "a flipped bit in byte {at} goes unnoticed");
        bytes[at] ^= bit;
        tried += 1;
    }
    assert!(tried > 0 && verify(&bytes));
}

fn has_metadata_csum(v: &Volume) -> bool {
    v.mode.metadata_seed().is_some()
}

fn superblocks(v: &Volume) {
    let mut copies = 0;
    for group in (0..v.geo.group_count).filter(|g| v.geo.has_super(*g)) {
        let at = match group {
            0 => SUPERBLOCK_OFFSET,
            g => v.geo.group_first_block(g) * u64::from(v.geo.block_size),
        };
        let bytes = v.bytes(at, SUPERBLOCK_SIZE);
        let mut sb = Superblock::decode(&bytes).unwrap();
        assert!(sb.verify_checksum(), "superblock of group {group}");
        assert_eq!(u32::from(sb.block_group_nr.get()), group);
        assert_eq!(sb.uuid, v.sb.uuid);
        sb.update_checksum();
        let mut again = vec![0; SUPERBLOCK_SIZE];
        sb.encode(&mut again).unwrap();
        assert_eq!(again, bytes);
        if has_metadata_csum(v) {
            assert_noticed(&bytes, 0..SUPERBLOCK_SIZE, |b| {
                Superblock::decode_unchecked(b).unwrap().verify_checksum()
            });
        }
        copies += 1;
    }
    assert!(copies > 1);
}

fn descriptors(v: &Volume) {
    assert!(v.geo.group_count > 1);
    let (mut free_clusters, mut free_inodes) = (0, 0);
    for group in 0..v.geo.group_count {
        let bytes = v.desc_bytes(group);
        let mut desc = v.desc(group);
        v.geo.check_group_desc(group, &desc).unwrap();
        assert!(
            group_desc::verify_checksum(&bytes, group, &v.mode),
            "descriptor {group}"
        );
        let mut again = vec![0; bytes.len()];
        desc.encode_with_checksum(&mut again, group, &v.mode)
            .unwrap();
        assert_eq!(again, bytes);
        if v.mode != ChecksumMode::None {
            assert_noticed(&bytes, 0..bytes.len(), |b| {
                group_desc::verify_checksum(b, group, &v.mode)
            });
            assert!(!group_desc::verify_checksum(&bytes, group + 1, &v.mode));
        }
        free_clusters += u64::from(desc.free_clusters());
        free_inodes += desc.free_inodes();
    }
    assert_eq!(free_clusters, v.sb.free_blocks_count());
    assert_eq!(free_inodes, v.sb.free_inodes_count.get());
}

fn bitmaps(v: &Volume) {
    let (mut block_maps, mut inode_maps) = (0, 0);
    for group in 0..v.geo.group_count {
        let desc = v.desc(group);
        if !desc.flags().contains(GroupFlags::BLOCK_UNINIT) {
            let (map, clusters) = (
                v.block(desc.block_bitmap()),
                v.geo.group_clusters(group) as usize,
            );
            assert_eq!(
                bitmap::count_clear(&map, clusters),
                desc.free_clusters() as usize,
                "group {group}"
            );
            assert_eq!(
                bitmap::find_clear(&map, clusters..map.len() * 8),
                None,
                "padding of group {group}"
            );
            if let Some(seed) = v.mode.metadata_seed() {
                let bits = v.geo.clusters_per_group;
                let verify =
                    |m: &[u8]| desc.block_bitmap_csum_matches(bitmap::checksum(seed, m, bits));
                assert_noticed(&map, (0..bits as usize / 8).step_by(61), verify);
            }
            // The geometry and the bitmap agree on the group's own blocks.
            let own = v.geo.group_super_overhead(group) as usize;
            assert_eq!(
                bitmap::find_clear(&map, 0..own),
                None,
                "superblock and descriptors of group {group}"
            );
            block_maps += 1;
        } else {
            // Then the free count follows from the positions of the metadata.
            let own = v.geo.group_super_overhead(group) + metadata_blocks_in(v, group);
            assert_eq!(
                desc.free_clusters(),
                v.geo.group_clusters(group) - own,
                "group {group}"
            );
        }
        if !desc.flags().contains(GroupFlags::INODE_UNINIT) {
            let (map, inodes) = (
                v.block(desc.inode_bitmap()),
                v.geo.inodes_per_group as usize,
            );
            assert_eq!(
                bitmap::count_clear(&map, inodes),
                desc.free_inodes() as usize,
                "group {group}"
            );
            assert_eq!(
                bitmap::find_clear(&map, inodes..map.len() * 8),
                None,
                "padding of group {group}"
            );
            if let Some(seed) = v.mode.metadata_seed() {
                let bits = v.geo.inodes_per_group;
                let verify =
                    |m: &[u8]| desc.inode_bitmap_csum_matches(bitmap::checksum(seed, m, bits));
                assert_noticed(&map, (0..bits as usize / 8).step_by(61), verify);
            }
            inode_maps += 1;
        }
    }
    assert!(block_maps > 0 && inode_maps > 0);
}

/// Bitmap and inode table blocks, of any group, that lie in `group`.
fn metadata_blocks_in(v: &Volume, group: u32) -> u32 {
    let inside = v.geo.group_blocks(group);
    let all = (0..v.geo.group_count).flat_map(|g| {
        let d = v.desc(g);
        let table = d.inode_table()..d.inode_table() + u64::from(v.geo.inode_table_blocks());
        table.chain([d.block_bitmap(), d.inode_bitmap()])
    });
    all.filter(|nr| inside.contains(nr)).count() as u32
}

fn inodes(v: &Volume) {
    let mut seen = 0;
    for ino in v.used_inodes() {
        let inode = v.inode(ino);
        // Some reserved inodes were never written.
        if is_blank(inode.bytes()) {
            assert!(ino < v.geo.first_inode, "{ino}");
            continue;
        }
        assert!(inode.verify_checksum(ino, &v.mode), "inode {ino}");
        if inode.links() > 0 {
            inode.check(ino, &v.geo).unwrap();
            agrees_with_debugfs(v, ino, &inode);
            seen += 1;
        }
        let mut again = inode.clone();
        again.update_checksum(ino, &v.mode);
        assert_eq!(again, inode);
        if has_metadata_csum(v) {
            // A change of i_extra_isize also changes how much of the checksum counts.
            let positions = (0..inode.bytes().len()).filter(|at| !(0x80..0x82).contains(at));
            assert_noticed(inode.bytes(), positions, |b| {
                InodeView::new(b).unwrap().verify_checksum(ino, &v.mode)
            });
            assert!(!inode.verify_checksum(ino + 1, &v.mode));
        }
    }
    assert!(
        seen >= 8,
        "root, journal, lost+found and five of ours, not {seen}"
    );
}

fn agrees_with_debugfs(v: &Volume, ino: u32, inode: &InodeView<Vec<u8>>) {
    let stat = v.image.debugfs(&format!("stat <{ino}>")).unwrap();
    assert_eq!(
        u32::from(inode.mode() & 0o7777),
        u32::from_str_radix(word_after(&stat, "Mode:"), 8).unwrap()
    );
    let flags = word_after(&stat, "Flags:").trim_start_matches("0x");
    assert_eq!(
        inode.flags().bits(),
        u32::from_str_radix(flags, 16).unwrap()
    );
    assert_eq!(
        inode.generation(),
        number_after::<u32>(&stat, "Generation:")
    );
    assert_eq!(inode.uid(), number_after::<u32>(&stat, "User:"));
    assert_eq!(inode.gid(), number_after::<u32>(&stat, "Group:"));
    assert_eq!(inode.size(), number_after::<u64>(&stat, "Size:"));
    assert_eq!(inode.links(), number_after::<u16>(&stat, "Links:"));
    assert_eq!(
        inode.blocks_512(true, v.geo.block_size),
        number_after::<u64>(&stat, "Blockcount:")
    );
    let mtime = word_after(&stat, "mtime:").trim_start_matches("0x");
    let seconds = mtime.split(':').next().unwrap();
    assert_eq!(inode.mtime().sec, i64::from_str_radix(seconds, 16).unwrap());
    if has_metadata_csum(v) {
        let csum = word_after(&stat, "Inode checksum:").trim_start_matches("0x");
        assert_eq!(
            inode.compute_checksum(ino, &v.mode),
            Some(u32::from_str_radix(csum, 16).unwrap())
        );
    }
}

fn files(v: &Volume, source: &Source) {
    let small = v.ino("/small");
    assert_eq!(v.read(small), b"abc");
    assert!(v.inode(v.ino("/dir")).is_dir());
    assert_eq!(
        v.inode(v.ino("/short")).inline_symlink(),
        Some(&b"small"[..])
    );
    let long = v.ino("/long");
    assert_eq!(
        (v.inode(long).inline_symlink(), v.read(long)),
        (None, vec![b'x'; 100])
    );

    let sparse = v.ino("/sparse");
    assert!(v.inode(sparse).flags().contains(InodeFlags::EXTENTS));
    let mapping = v.map(sparse);
    assert_eq!(mapping.depth, if v.geo.block_size == 4096 { 1 } else { 2 });
    assert!(mapping.extents.len() >= 900);
    assert!(
        v.read(sparse) == source.content("sparse"),
        "content read through the extents differs"
    );

    let seed = v.inode(sparse).csum_seed(sparse, &v.mode);
    for nr in mapping.nodes {
        let block = v.block(nr);
        let mut again = block.clone();
        extent::update_block_checksum(seed, &mut again).unwrap();
        assert_eq!(again, block);
        if has_metadata_csum(v) {
            let covered = usize::from(extent::max_entries(block.len())) * 12 + 12 + 4;
            assert_noticed(&block, (0..covered).step_by(7), |b| {
                extent::verify_block_checksum(seed, b)
            });
            assert!(!extent::verify_block_checksum(seed.map(|s| s ^ 1), &block));
        }
    }
}

fn orphans(v: &Volume) {
    let ino = v.sb.orphan_file_inum.get();
    if ino == 0 {
        return;
    }
    let inode = v.inode(ino);
    let seed = inode.csum_seed(ino, &v.mode);
    let mut blocks = 0;
    for e in v.map(ino).extents {
        for nr in e.start..e.start + u64::from(e.len) {
            let block = v.block(nr);
            orphan_file::check(&block).unwrap();
            assert!(
                orphan_file::verify_checksum(seed, nr, &block),
                "orphan block {nr}"
            );
            assert_eq!(orphan_file::used(&block).count(), 0);
            let mut again = vec![0xFF; block.len()];
            orphan_file::init(&mut again).unwrap();
            orphan_file::update_checksum(seed, nr, &mut again).unwrap();
            assert_eq!(again, block);
            if has_metadata_csum(v) {
                let slots = orphan_file::slots_per_block(block.len()) * 4;
                let positions = (0..slots).step_by(31).chain(slots + 4..block.len());
                assert_noticed(&block, positions, |b| {
                    orphan_file::verify_checksum(seed, nr, b)
                });
                assert!(!orphan_file::verify_checksum(seed, nr + 1, &block));
            }
            blocks += 1;
        }
    }
    assert_eq!(blocks * u64::from(v.geo.block_size), inode.size());
    assert!(blocks > 0);
}
