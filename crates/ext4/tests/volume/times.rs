//! Times at the ends of what ext4 can store (`epoch=`): a volume by them has no fault for e2fsck,
//! and none when it is used at a usual time afterwards.

use std::sync::Arc;

use stetfs_block::{BlockDevice, FileDevice, MemDevice, OpenOptions};
use stetfs_ext4::{Ctx, Fs, FsOptions, MAX_EPOCH, ROOT_INO};
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use stetfs_testkit::{Image, Mkfs};

const EPOCHS: [u64; 8] = [
    0,
    1,
    1000,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    MAX_EPOCH,
];

fn at(epoch: Option<u64>) -> FsOptions {
    FsOptions {
        epoch,
        ..FsOptions::default()
    }
}

fn open(image: &Image, epoch: Option<u64>) -> Arc<Fs> {
    let device = FileDevice::open(image.path(), OpenOptions::default()).unwrap();
    Fs::open(Arc::new(device), at(epoch)).unwrap()
}

/// A file and a directory that are removed again, a file that is open meanwhile, and one that stays
/// under `name`.
fn make_and_remove(fs: &Fs, name: &[u8]) {
    let mode = libc::S_IFREG | 0o644;
    let file = |name: &[u8]| {
        let made = fs.mknod(&Ctx::ROOT, ROOT_INO, name, mode, 0, 0).unwrap();
        fs.forget(made.ino, 1);
        made.ino
    };
    file(name);
    file(b"removed");
    fs.unlink(&Ctx::ROOT, ROOT_INO, b"removed").unwrap();
    let dir = fs.mkdir(&Ctx::ROOT, ROOT_INO, b"dir", 0o755, 0).unwrap();
    fs.forget(dir.ino, 1);
    fs.rmdir(&Ctx::ROOT, ROOT_INO, b"dir").unwrap();
    let ino = file(b"open");
    let open = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
    fs.unlink(&Ctx::ROOT, ROOT_INO, b"open").unwrap();
    drop(open);
}

#[test]
fn files_can_be_removed_at_any_time() {
    for feature in ["orphan_file", "^orphan_file"] {
        for inode_size in [128, 256] {
            for epoch in EPOCHS {
                let mkfs = Mkfs::blocks(1024).feature(feature).inode_size(inode_size);
                let image = Image::make(16 << 20, &mkfs).unwrap();
                let fs = open(&image, Some(epoch));
                make_and_remove(&fs, b"first");
                fs.unmount().unwrap();
                drop(fs);
                let checked = image.e2fsck_fn();
                checked.unwrap_or_else(|e| panic!("{feature}, {inode_size}, at {epoch}: {e}"));
                // The inodes deleted first keep their times beside ones of now.
                let fs = open(&image, None);
                fs.unlink(&Ctx::ROOT, ROOT_INO, b"first").unwrap();
                fs.unmount().unwrap();
                drop(fs);
                let checked = image.e2fsck_fn();
                checked.unwrap_or_else(|e| panic!("{feature}, {inode_size}, after {epoch}: {e}"));
            }
        }
    }
}

/// A time of 0 in the superblock says that there was no mount and no write.
#[test]
fn the_first_second_is_a_time() {
    let image = Image::make(16 << 20, &Mkfs::blocks(1024)).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    let fs = Fs::open(device.clone(), at(Some(0))).unwrap();
    make_and_remove(&fs, b"file");
    fs.unmount().unwrap();
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    let sb = Superblock::decode(&bytes).unwrap();
    assert_eq!((sb.mount_time(), sb.write_time()), (1, 1));
}
