#![allow(clippy::unwrap_used)]

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const CSUM: ChecksumMode = ChecksumMode::MetadataCsum { seed: 0x1234_5678 };

fn fresh(len: usize, mode: u16) -> InodeView<Vec<u8>> {
    let mut i = InodeView::new(vec![0xAA; len]).unwrap();
    i.init(&NewInode {
        mode,
        uid: 70000,
        gid: 80000,
        links: 1,
        flags: InodeFlags::EXTENTS,
        generation: 99,
        now: Timestamp {
            sec: 5_000_000_000,
            nsec: 123,
        },
        project: 4,
        extra_isize: FULL_EXTRA_ISIZE,
    });
    i
}

#[test]
fn a_new_inode_has_what_it_was_given() {
    let now = Timestamp {
        sec: 5_000_000_000,
        nsec: 123,
    };
    let i = fresh(256, 0o100644);
    assert_eq!(
        (i.uid(), i.gid(), i.links(), i.generation(), i.size()),
        (70000, 80000, 1, 99, 0)
    );
    assert_eq!(
        (i.atime(), i.mtime(), i.ctime(), i.crtime()),
        (now, now, now, Some(now))
    );
    assert_eq!(
        (i.extra_isize(), i.project(), i.xattr_range()),
        (32, Some(4), Some(160..256))
    );
    assert!(i.xattr_area().unwrap().iter().all(|b| *b == 0));

    // Without extra fields seconds are clamped and the rest is absent.
    let i = fresh(128, 0o100644);
    assert_eq!(
        i.mtime(),
        Timestamp {
            sec: Timestamp::MAX_SEC_32,
            nsec: 0
        }
    );
    assert_eq!(
        (i.extra_isize(), i.crtime(), i.project(), i.xattr_range()),
        (0, None, None, None)
    );
    assert!(InodeView::new(&[0u8; 127][..]).is_err());
}

#[test]
fn fields_end_where_i_extra_isize_ends() {
    let mut i = fresh(256, 0o100644);
    // Room for checksum_hi and the three extra times, but not for the creation time.
    i.bytes_mut()[0x80..0x82].copy_from_slice(&16u16.to_le_bytes());
    let before = i.bytes()[0x90..0xA0].to_vec();
    i.set_crtime(Timestamp { sec: 1, nsec: 1 });
    i.set_project(77);
    i.set_version(u64::MAX);
    assert_eq!(
        i.bytes()[0x90..0xA0],
        before,
        "these bytes belong to the attributes now"
    );
    assert_eq!(
        (i.crtime(), i.project(), i.version()),
        (None, None, u64::from(u32::MAX))
    );
    assert_eq!(i.mtime().nsec, 123);
    assert_eq!(i.xattr_range(), Some(144..256));
    // An impossible size counts as none.
    for bad in [18u16, 132, 0xFFFC] {
        i.bytes_mut()[0x80..0x82].copy_from_slice(&bad.to_le_bytes());
        assert_eq!((i.extra_isize(), i.xattr_range()), (0, None));
    }
}

#[test]
fn blocks_take_the_narrowest_unit() {
    let mut i = fresh(256, 0o100644);
    for (n, huge, flag) in [
        (8, true, false),
        (1 << 32, true, false),
        ((1 << 48) - 1, true, false),
        (1 << 48, true, true),
        (8, false, false),
    ] {
        i.set_blocks_512(n, huge, 4096).unwrap();
        assert_eq!(i.blocks_512(huge, 4096), n);
        assert_eq!(i.flags().contains(InodeFlags::HUGE_FILE), flag, "{n}");
    }
    assert!(i.set_blocks_512(1 << 32, false, 4096).is_err());
    assert!(i.set_blocks_512(1 << 51, true, 4096).is_err());
    assert_eq!(
        i.blocks_512(true, 4096),
        8,
        "a refused value changes nothing"
    );
}

#[test]
fn device_numbers_in_both_encodings() {
    let mut i = fresh(256, 0o020600);
    for (major, minor, words) in [
        (8, 1, [0x801, 0]),
        (259, 5, [0, 0x0001_0305]),
        (8, 300, [0, 0x0010_082C]),
    ] {
        i.set_device(DeviceNumber { major, minor });
        assert_eq!(i.block_map()[..2], words);
        assert_eq!(i.device(), DeviceNumber { major, minor });
    }
}

#[test]
fn short_symlinks_live_in_the_inode() {
    let mut i = fresh(256, 0o120777);
    assert_eq!(i.inline_symlink(), None, "it is still mapped by extents");
    assert!(!i.set_inline_symlink(&[b'x'; 60]));
    assert!(i.set_inline_symlink(&[b'x'; 59]));
    assert_eq!(i.inline_symlink(), Some(&[b'x'; 59][..]));
    assert_eq!(i.size(), 59);
    i.set_mode(0o100644);
    assert_eq!(i.inline_symlink(), None);
}

#[test]
fn inherited_flags_fit_the_file() {
    let dir = InodeFlags::DIRSYNC
        | InodeFlags::NOATIME
        | InodeFlags::INDEX
        | InodeFlags::JOURNAL_DATA
        | InodeFlags::IMMUTABLE;
    let common = InodeFlags::NOATIME | InodeFlags::JOURNAL_DATA;
    assert_eq!(dir.inherited_by(0o040755), common | InodeFlags::DIRSYNC);
    assert_eq!(dir.inherited_by(0o100644), common);
    assert_eq!(dir.inherited_by(0o120777), InodeFlags::NOATIME);
}

proptest! {
    #[test]
    fn setters_round_trip(
        len in prop::sample::select(vec![128usize, 160, 256, 1024]), mode: u16, uid: u32, gid: u32, size: u64, links: u16,
        generation: u32, acl in 0u64..1 << 48, dtime: u32, version: u64, flags: u32,
        sec in Timestamp::MIN_SEC..=Timestamp::MAX_SEC, nsec in 0u32..1_000_000_000, major in 0u32..1 << 12, minor in 0u32..1 << 20,
    ) {
        let mut i = fresh(len, 0o100644);
        let t = Timestamp { sec, nsec };
        i.set_mode(mode);
        i.set_uid(uid);
        i.set_gid(gid);
        i.set_size(size);
        i.set_links(links);
        i.set_generation(generation);
        i.set_file_acl(acl);
        i.set_dtime(dtime);
        i.set_version(version);
        i.set_flags(InodeFlags::from_bits_retain(flags));
        i.set_mtime(t);
        i.set_device(DeviceNumber { major, minor });
        prop_assert_eq!((i.mode(), i.uid(), i.gid(), i.size(), i.links()), (mode, uid, gid, size, links));
        prop_assert_eq!((i.generation(), i.file_acl(), i.dtime(), i.flags().bits()), (generation, acl, dtime, flags));
        prop_assert_eq!(i.device(), DeviceNumber { major, minor });
        if len > 128 {
            prop_assert_eq!((i.mtime(), i.version()), (t, version));
        } else {
            prop_assert_eq!((i.mtime().sec, i.version()), (sec.min(Timestamp::MAX_SEC_32), version & 0xffff_ffff));
        }
    }

    #[test]
    fn a_flipped_bit_or_another_number_is_noticed(
        len in prop::sample::select(vec![128usize, 256]), noise in vec(any::<u8>(), 256), ino: u32, bit in 0usize..2048,
    ) {
        let mut i = InodeView::new(noise[..len].to_vec()).unwrap();
        if len > 128 {
            i.bytes_mut()[0x80..0x82].copy_from_slice(&32u16.to_le_bytes());
        }
        i.update_checksum(ino, &CSUM);
        prop_assert!(i.verify_checksum(ino, &CSUM));
        prop_assert!(i.verify_checksum(ino, &ChecksumMode::None));
        let bit = bit % (len * 8);
        // Changing i_extra_isize changes which half of the checksum counts.
        prop_assume!(!(0x80..0x82).contains(&(bit / 8)));
        i.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!i.verify_checksum(ino, &CSUM));
        i.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!i.verify_checksum(ino ^ 1, &CSUM));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 100..300), block_size: u32, n: u64) {
        let Ok(mut i) = InodeView::new(bytes) else { return Ok(()) };
        let _ = (i.size(), i.blocks_512(true, block_size), i.version(), i.project(), i.atime(), i.ctime(), i.crtime());
        let _ = (i.i_block().len(), i.inline_symlink(), i.device(), i.file_type(), i.verify_checksum(1, &CSUM));
        if let Some(r) = i.xattr_range() {
            prop_assert!(r.start >= 128 && r.end == i.bytes().len());
        }
        let t = Timestamp { sec: n as i64, nsec: n as u32 };
        i.set_atime(t);
        i.set_ctime(t);
        i.set_mtime(t);
        i.set_crtime(t);
        i.set_project(1);
        i.set_version(n);
        let _ = (i.set_blocks_512(n, true, block_size), i.xattr_area_mut().is_some());
        i.update_checksum(1, &CSUM);
    }
}
