//! Helpers of the crate's tests: volumes in memory, made by mke2fs and checked by e2fsck.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use stetfs_block::MemDevice;
use stetfs_testkit::{Image, Mkfs};

use stetfs_journal::{Handle, Wait};

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::ops::inodes::NewFile;
use crate::ops::inodes::OpenRef;
use crate::quota::Promise;
use crate::types::{Ctx, FsOptions};

/// A new file made by root, without quota limits: of the type in `mode`, or a regular file.
pub(crate) fn new_file(
    fs: &Fs,
    h: &Handle<'_>,
    dir: (&Inode, &InodeBody),
    mode: u32,
) -> Result<Arc<Inode>> {
    let file = NewFile {
        mode,
        rdev: 0,
        again: None,
        promise: &Promise::nothing(),
    };
    fs.new_inode(h, dir, &Ctx::ROOT, &file)
}

/// A fresh volume of `mib` MiB in memory.
pub(crate) fn mkfs(mib: u64, options: &Mkfs) -> Arc<MemDevice> {
    let image = Image::make(mib << 20, options).unwrap();
    Arc::new(MemDevice::load(image.path()).unwrap())
}

/// Opens a volume for writing.
pub(crate) fn open(device: &Arc<MemDevice>) -> Arc<Fs> {
    Fs::open(device.clone(), FsOptions::default()).unwrap()
}

/// Syncs a file, and waits for the answer.
pub(crate) fn fsync(fs: &Fs, file: &OpenRef, datasync: bool) {
    let (done, is_done) = std::sync::mpsc::channel();
    let answer = Box::new(move |synced| done.send(synced).unwrap());
    fs.fsync(file, datasync, Wait::Deferred, answer);
    is_done.recv().unwrap().unwrap();
}

/// A copy of the device as an image file.
pub(crate) fn image(device: &MemDevice) -> Image {
    let image = Image::sparse(0).unwrap();
    device.save(image.path()).unwrap();
    image
}

/// Asserts that e2fsck finds nothing wrong on the volume.
pub(crate) fn fsck(device: &MemDevice) {
    image(device).e2fsck_fn().unwrap();
}

/// The default volumes, with the block sizes and usage types of `mke2fs -T`.
pub(crate) fn flavours() -> Vec<(String, u64, Mkfs)> {
    let mut all = Vec::new();
    for blocks in [1024, 2048, 4096] {
        for usage in ["default", "small", "largefile"] {
            all.push((
                format!("{blocks}/{usage}"),
                40,
                Mkfs::blocks(blocks).usage(usage),
            ));
        }
    }
    let variant =
        |name: &str, features: &str| (name.to_string(), 64, Mkfs::blocks(4096).feature(features));
    all.push(variant("no metadata_csum", "^metadata_csum,^uninit_bg"));
    all.push(variant("uninit_bg", "^metadata_csum,uninit_bg"));
    all.push(variant("no 64bit", "^64bit"));
    all.push(variant("csum_seed", "metadata_csum_seed"));
    all.push(variant("no orphan_file", "^orphan_file"));
    all.push(variant("no flex_bg", "^flex_bg"));
    all.push(variant("orphan_file", "orphan_file"));
    all.push(variant("sparse_super2", "sparse_super2,^resize_inode"));
    all.push(variant("meta_bg", "meta_bg,^resize_inode"));
    all.push(variant(
        "no filetype, no dir_index",
        "^filetype,^dir_index,^large_file,^huge_file",
    ));
    for cluster in [8192u32, 65536] {
        let mut mkfs = Mkfs::blocks(4096).feature("bigalloc");
        mkfs.args.extend(["-C".into(), cluster.to_string()]);
        all.push((format!("bigalloc of {cluster}"), 200, mkfs));
    }
    let mut clustered = Mkfs::blocks(1024).feature("bigalloc,meta_bg,^resize_inode");
    clustered.args.extend(["-C".into(), "4096".into()]);
    all.push(("meta_bg, bigalloc, 1024".into(), 40, clustered));
    all.push(variant("block maps", "^extents,^64bit"));
    let ext3 = |bytes: u32| Mkfs {
        fs_type: Some("ext3".into()),
        ..Mkfs::blocks(bytes)
    };
    let ext2 = |bytes: u32| Mkfs {
        fs_type: Some("ext2".into()),
        ..Mkfs::blocks(bytes)
    };
    all.push(("ext2".into(), 64, ext2(4096)));
    all.push(("ext2, 1024, 128".into(), 40, ext2(1024).inode_size(128)));
    all.push(variant("no journal", "^has_journal"));
    all.push(("ext3".into(), 64, ext3(4096)));
    all.push(("ext3, 128".into(), 40, ext3(1024).inode_size(128)));
    all
}
