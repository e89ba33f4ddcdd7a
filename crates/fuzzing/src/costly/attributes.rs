//! Costly extended attributes: entries that overlap, and values in inodes that refer to themselves.

use std::path::Path;

use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::xattr::{self, Attr, Value};

use super::made::{BLOCK, Make, debugfs, make};
use super::raw::{FILE, Raw};

pub(super) const ALL: [(&str, Make); 3] = [
    ("values that refer to each other", |path| values(path, true)),
    ("values of 64 KiB, the same for each name", |path| {
        values(path, false)
    }),
    ("entries across each other", across),
];

const FREE: u64 = 30_000;
/// Name index of user attributes.
const USER: u8 = 1;

/// Writes a block of attributes that `count` inodes share.
fn put(raw: &Raw, nr: u64, attrs: &[Attr<'_>], count: u32) {
    let mut block = vec![0; BLOCK];
    assert!(xattr::write_block(&mut block, attrs, count).unwrap());
    raw.put(nr, &block);
}

/// A file whose attributes all have their value in one inode. With `circle` the attributes of that
/// inode have their values there, too, and the file is an orphan.
fn values(path: &Path, circle: bool) {
    make(path, 64, &["-O", "^metadata_csum,^uninit_bg,ea_inode"]);
    debugfs(path, "write /dev/null file");
    debugfs(path, "write /dev/null value");
    let mut raw = Raw::open(path);
    const LEN: u32 = 64 << 10;
    let content = vec![0; LEN as usize];
    let hash = xattr::value_hash(&content, 0);
    let names: Vec<String> = (0..140).map(|i| format!("{i}")).collect();
    let attrs: Vec<Attr<'_>> = names
        .iter()
        .map(|name| Attr {
            index: USER,
            name: name.as_bytes(),
            value: Value::Inode {
                ino: 13,
                size: LEN,
                hash: xattr::value_entry_hash(name.as_bytes(), hash),
            },
        })
        .collect();
    raw.in_use(FREE..FREE + 1);
    put(&raw, FREE, &attrs, 1 + u32::from(circle));
    raw.change(12, |inode| {
        inode.set_mode(FILE);
        inode.set_file_acl(FREE);
        inode.set_links(u16::from(!circle));
    });
    raw.change(13, |inode| {
        inode.set_mode(FILE);
        inode.set_flags(inode.flags() | InodeFlags::EA_INODE);
        inode.set_size(u64::from(LEN));
        inode.set_value_refs(140);
        inode.set_value_hash(hash);
        if circle {
            inode.set_file_acl(FREE);
        }
    });
    debugfs(path, "unlink value");
    if circle {
        debugfs(path, "unlink file");
        raw.superblock(|sb| sb.last_orphan.set(12));
    }
}

/// A file whose attributes all have the same bytes as their value, nearly the whole block.
fn across(path: &Path) {
    make(path, 64, &["-O", "^metadata_csum"]);
    debugfs(path, "write /dev/null file");
    let raw = Raw::open(path);
    let names: Vec<String> = (0..100).map(|i| format!("{i}")).collect();
    let attrs: Vec<Attr<'_>> = names
        .iter()
        .map(|name| Attr {
            index: USER,
            name: name.as_bytes(),
            value: Value::Bytes(b"1234"),
        })
        .collect();
    let mut block = vec![0; BLOCK];
    assert!(xattr::write_block(&mut block, &attrs, 1).unwrap());
    // Entries follow the header of 32 bytes; each has 16 bytes and its name, padded to four bytes.
    for i in 0..100 {
        let at = 32 + i * 20;
        block[at + 2..at + 4].copy_from_slice(&32u16.to_le_bytes());
        block[at + 8..at + 12].copy_from_slice(&4000u32.to_le_bytes());
    }
    raw.put(FREE, &block);
    raw.change(12, |inode| {
        inode.set_mode(FILE);
        inode.set_file_acl(FREE);
    });
}
