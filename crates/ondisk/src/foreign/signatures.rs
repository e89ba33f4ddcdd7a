//! Signatures: formats with a magic number at a fixed offset.

use std::ops::Range;

/// The use of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file system for mount(8).
    FileSystem,
    /// Encrypted: it has to be opened first.
    Encrypted,
    /// A member of an array or a volume group.
    Member,
    /// A compressed file or an archive.
    Packed,
    /// An image of a virtual machine's disk.
    Disk,
    /// An Android sparse image.
    Sparse,
    /// Swap space.
    Swap,
}

/// A format and its magic number.
#[derive(Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name with its article.
    pub name: &'static str,
    /// The use of the format.
    pub kind: Kind,
    /// Bytes from the start of the device.
    pub offset: u64,
    /// The magic number.
    pub magic: &'static [u8],
}

const fn at(offset: u64, magic: &'static [u8], kind: Kind, name: &'static str) -> Signature {
    Signature {
        name,
        kind,
        offset,
        magic,
    }
}

use crate::num::to_usize;
use Kind::{Disk, Encrypted, FileSystem, Member, Packed, Sparse, Swap};

/// All signatures.
pub(super) static ALL: &[Signature] = &[
    at(0, b"XFSB", FileSystem, "an XFS file system"),
    at(0x10040, b"_BHRfS_M", FileSystem, "a btrfs file system"),
    at(3, b"NTFS    ", FileSystem, "an NTFS file system"),
    at(3, b"EXFAT   ", FileSystem, "an exFAT file system"),
    at(54, b"FAT12   ", FileSystem, "a FAT file system"),
    at(54, b"FAT16   ", FileSystem, "a FAT file system"),
    at(82, b"FAT32   ", FileSystem, "a FAT file system"),
    at(0, b"hsqs", FileSystem, "a squashfs file system"),
    at(0, b"\x45\x3d\xcd\x28", FileSystem, "a cramfs file system"),
    at(0, b"-rom1fs-", FileSystem, "a romfs file system"),
    at(0, b"\xce\xfa\xad\x1b", FileSystem, "a BFS file system"),
    at(32, b"NXSB", FileSystem, "an APFS container"),
    at(1024, b"\x10\x20\xf5\xf2", FileSystem, "an F2FS file system"),
    at(
        1024,
        b"\xe2\xe1\xf5\xe0",
        FileSystem,
        "an EROFS file system",
    ),
    at(1024, b"H+\0\x04", FileSystem, "an HFS+ file system"),
    at(1024, b"HX\0\x05", FileSystem, "an HFS+ file system"),
    at(
        4120,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        FileSystem,
        "a bcachefs file system",
    ),
    at(0x8001, b"CD001", FileSystem, "an ISO 9660 file system"),
    at(0x8001, b"BEA01", FileSystem, "a UDF file system"),
    at(0x8000, b"JFS1", FileSystem, "a JFS file system"),
    at(0x2000, b"OCFSV2", FileSystem, "an OCFS2 file system"),
    at(
        0x10000,
        b"\x01\x16\x19\x70\0\0\0\x01",
        FileSystem,
        "a GFS2 file system",
    ),
    at(0x10034, b"ReIsEr", FileSystem, "a ReiserFS file system"),
    at(0, b"LUKS\xba\xbe", Encrypted, "a LUKS container"),
    at(3, b"-FVE-FS-", Encrypted, "a BitLocker volume"),
    at(0x218, b"LVM2 001", Member, "a physical volume of LVM"),
    at(0, b"\xfc\x4e\x2b\xa9", Member, "a member of an MD RAID"),
    at(4096, b"\xfc\x4e\x2b\xa9", Member, "a member of an MD RAID"),
    at(
        4120,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        Member,
        "a bcache device",
    ),
    at(0, b"\x1f\x8b\x08", Packed, "data compressed by gzip"),
    at(0, b"\x28\xb5\x2f\xfd", Packed, "data compressed by zstd"),
    at(0, b"\xfd7zXZ\0", Packed, "data compressed by xz"),
    at(0, b"\x04\x22\x4d\x18", Packed, "data compressed by lz4"),
    at(4, b"1AY&SY", Packed, "data compressed by bzip2"),
    at(0, b"PK\x03\x04", Packed, "a ZIP archive"),
    at(0, b"7z\xbc\xaf\x27\x1c", Packed, "a 7z archive"),
    at(257, b"ustar", Packed, "a tar archive"),
    at(0, b"070701", Packed, "a cpio archive"),
    at(0, b"\x3a\xff\x26\xed", Sparse, "an Android sparse image"),
    at(0, b"QFI\xfb", Disk, "a qcow2 disk image"),
    at(0, b"KDMV", Disk, "a VMDK disk image"),
    at(0, b"# Disk DescriptorFile", Disk, "a VMDK disk image"),
    at(0x40, b"\x7f\x10\xda\xbe", Disk, "a VDI disk image"),
    at(0, b"vhdxfile", Disk, "a VHDX disk image"),
    at(0, b"conectix", Disk, "a VHD disk image"),
    // At the end of the first page; there are several page sizes.
    at(4086, b"SWAPSPACE2", Swap, "swap space"),
    at(4086, b"SWAP-SPACE", Swap, "swap space"),
    at(
        4086,
        b"S1SUSPEND",
        Swap,
        "a hibernated system in swap space",
    ),
    at(16374, b"SWAPSPACE2", Swap, "swap space"),
    at(65526, b"SWAPSPACE2", Swap, "swap space"),
    // The shortest magic numbers come last.
    at(0x410, b"\x7f\x13", FileSystem, "a Minix file system"),
    at(0x410, b"\x8f\x13", FileSystem, "a Minix file system"),
    at(0x410, b"\x68\x24", FileSystem, "a Minix file system"),
    at(0x410, b"\x78\x24", FileSystem, "a Minix file system"),
    at(0x418, b"\x5a\x4d", FileSystem, "a Minix file system"),
    at(0x406, b"\x34\x34", FileSystem, "a NILFS2 file system"),
    ZFS,
];

/// An uberblock of ZFS. It can be in any slot of its ring.
const ZFS: Signature = at(
    0x20000,
    b"\x0c\xb1\xba\0\0\0\0\0",
    Member,
    "a member of a ZFS pool",
);

/// The slots of ZFS's ring.
const ZFS_SLOTS: usize = 128;

/// The first signature whose magic number is in `head` and lies in `range`.
pub(super) fn find(head: &[u8], range: &Range<u64>) -> Option<&'static Signature> {
    let is = |offset: usize, magic: &[u8]| {
        head.get(offset..)
            .is_some_and(|rest| rest.starts_with(magic))
    };
    ALL.iter().find(|s| {
        let slots = if s.magic == ZFS.magic { ZFS_SLOTS } else { 1 };
        range.contains(&s.offset) && (0..slots).any(|n| is(to_usize(s.offset) + n * 1024, s.magic))
    })
}
