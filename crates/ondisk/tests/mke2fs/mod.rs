//! Volumes from mke2fs are read back: every checksum is valid, every structure passes its check,
//! values agree with debugfs, and encoding again gives the same bytes. With checksums, a flipped
//! bit is detected.
mod structures;
mod volume;

use self::structures::check_everything;
use self::volume::{Source, Volume};
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::features::{Compat, FeatureNames, Incompat, RoCompat};
use stetfs_testkit::image::Mkfs;

/// Makes a volume with each block size and checks it all; `expect` confirms that it is the intended
/// volume.
fn on_all_block_sizes(features: &[&str], expect: impl Fn(&Volume)) {
    let source = Source::make();
    for block_size in [1024, 2048, 4096] {
        let mut mkfs = Mkfs::blocks(block_size);
        for f in features {
            mkfs = mkfs.feature(f);
        }
        let volume = source.volume(mkfs);
        assert_eq!(volume.geo.block_size, block_size);
        assert_eq!(
            volume.sb.compat().unknown()
                | volume.sb.incompat().unknown()
                | volume.sb.ro_compat().unknown(),
            0
        );
        expect(&volume);
        check_everything(&volume, &source);
    }
}

#[test]
fn defaults() {
    on_all_block_sizes(&[], |v| {
        assert!(
            v.sb.incompat()
                .contains(Incompat::BIT64 | Incompat::EXTENTS | Incompat::FLEX_BG)
        );
        assert!(matches!(v.mode, ChecksumMode::MetadataCsum { .. }));
        assert_eq!(v.geo.desc_size, 64);
    });
}

#[test]
fn orphan_file_and_stored_seed() {
    on_all_block_sizes(&["orphan_file", "metadata_csum_seed"], |v| {
        assert!(v.sb.compat().contains(Compat::ORPHAN_FILE));
        assert!(v.sb.incompat().contains(Incompat::CSUM_SEED));
    });
}

#[test]
fn without_64bit() {
    on_all_block_sizes(&["^64bit"], |v| {
        assert_eq!(v.geo.desc_size, 32);
        assert!(matches!(v.mode, ChecksumMode::MetadataCsum { .. }));
    });
}

#[test]
fn without_checksums() {
    on_all_block_sizes(&["^metadata_csum"], |v| {
        assert_eq!(v.mode, ChecksumMode::None)
    });
}

#[test]
fn uninit_bg() {
    on_all_block_sizes(&["^metadata_csum", "uninit_bg"], |v| {
        assert!(matches!(v.mode, ChecksumMode::GdtCsum { .. }));
    });
}

#[test]
fn meta_bg_and_orphan_file() {
    on_all_block_sizes(&["meta_bg", "^resize_inode", "orphan_file"], |v| {
        assert!(v.geo.first_meta_bg.is_some());
    });
}

#[test]
fn small_inodes() {
    let source = Source::make();
    let volume = source.volume(Mkfs::blocks(4096).inode_size(128));
    assert_eq!(volume.geo.inode_size, 128);
    assert!(volume.sb.ro_compat().contains(RoCompat::METADATA_CSUM));
    check_everything(&volume, &source);
}
