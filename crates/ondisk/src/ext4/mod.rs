//! The on-disk structures of ext4. All integers are little-endian.

pub mod acl;
pub mod bitmap;
pub mod blockmap;
pub mod checksum;
pub mod dirent;
pub mod extent;
pub mod features;
pub mod group_desc;
pub mod hash;
pub mod htree;
pub mod inode;
pub mod mmp;
pub mod orphan_file;
pub mod quota;
pub mod superblock;
pub mod time;
pub mod xattr;
