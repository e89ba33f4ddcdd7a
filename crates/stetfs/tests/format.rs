//! New volumes: the library makes them, uses them, and refuses to destroy others.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use stetfs::low::{FormatError, FormatTarget};
use stetfs::{FormatOptions, MountOptions, Profile, Volume};
use stetfs_testkit::{Image, KernelMount, LoopDev, LoopOptions, Mkfs, Scratch, cmd};

const M: u64 = 1 << 20;

/// Fills an image with bytes that are no valid structure of any kind.
fn garbage(bytes: u64) -> Image {
    let image = Image::sparse(bytes).unwrap();
    fs::write(image.path(), vec![0xa5; usize::try_from(bytes).unwrap()]).unwrap();
    image
}

/// Writes files in many directories, and removes some.
fn use_it(path: &Path, options: &MountOptions) {
    let volume = Volume::open(path, options).unwrap();
    for dir in 0..60 {
        volume.create_dir(format!("/dir{dir}")).unwrap();
        for file in 0..8u8 {
            let name = format!("/dir{dir}/file{file}");
            volume.write(name, vec![file; 10_000]).unwrap();
        }
    }
    assert_eq!(volume.read("/dir7/file3").unwrap(), vec![3; 10_000]);
    volume.remove_dir_all("/dir9").unwrap();
    volume.close().unwrap();
}

#[test]
fn volumes_of_every_kind_are_used() {
    for features in [
        "",
        "^has_journal",
        "none,filetype,ext_attr",
        "^extent,^flex_bg",
        "^metadata_csum",
        "uninit_bg",
        "meta_bg",
        "sparse_super2,stable_inodes",
        "bigalloc",
        "bigalloc,quota,project",
        "quota,project",
        "inline_data,ea_inode,large_dir",
        "mmp",
        "fast_commit",
    ] {
        for block_size in [1024, 4096, 32768] {
            let image = Image::sparse(300 * M).unwrap();
            let mut options = FormatOptions::new();
            let numbers = options.features(features).numbers();
            numbers.block_size = Some(block_size);
            numbers.cluster_size = features.contains("bigalloc").then_some(block_size * 4);
            let made = Volume::format(image.path(), &options).unwrap();
            assert!(made.written && made.block_size == block_size);
            use_it(image.path(), &MountOptions::new());
            let checked = image.e2fsck_fn();
            checked.unwrap_or_else(|e| panic!("{features} {block_size}: {e:#}"));
        }
    }
}

/// Inode tables of a device are not zeroed: what they hold is never taken for an inode.
#[test]
fn tables_with_old_data_are_used() {
    for features in ["", "uninit_bg", "^metadata_csum"] {
        let image = garbage(200 * M);
        let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
        let target = FormatTarget {
            discard: false,
            ..FormatTarget::default()
        };
        let options = stetfs::low::FormatOptions {
            features: features.parse().unwrap(),
            block_size: Some(1024),
            ..Default::default()
        };
        stetfs::low::format(device.path(), &target, &options).unwrap();
        use_it(device.path(), &MountOptions::new());
        drop(device);
        let checked = image.e2fsck_fn();
        checked.unwrap_or_else(|e| panic!("{features}: {e:#}"));
    }
}

/// The blocks of an image are freed, and what it held is gone.
#[test]
fn an_image_is_emptied() {
    let image = garbage(100 * M);
    Volume::format(image.path(), &FormatOptions::new()).unwrap();
    let held = fs::metadata(image.path()).unwrap().blocks() * 512;
    assert!(held < 20 * M, "{held} bytes");
    image.e2fsck_fn().unwrap();
    let shown = cmd::run(Command::new("dumpe2fs").arg(image.path())).unwrap();
    assert!(shown.contains("ITABLE_ZEROED"), "{shown}");
}

#[test]
fn a_volume_in_use_is_never_overwritten() {
    let image = Image::make(32 * M, &Mkfs::new()).unwrap();
    let mut forced = FormatOptions::new();
    forced.force(true);
    let refused = |kind: ErrorKind, options: &FormatOptions| {
        let before = fs::read(image.path()).unwrap();
        let error = Volume::format(image.path(), options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(fs::read(image.path()).unwrap() == before);
    };
    refused(ErrorKind::AlreadyExists, &FormatOptions::new());
    let open = Volume::open(image.path(), &MountOptions::new()).unwrap();
    refused(ErrorKind::ResourceBusy, &forced);
    open.close().unwrap();
    let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    let path = device.path().to_owned();
    let mounted = KernelMount::new(device, "ext4", "").unwrap();
    refused(ErrorKind::ResourceBusy, &forced);
    let error = Volume::format(&path, &forced).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    mounted.umount().unwrap();
    Volume::format(image.path(), &forced).unwrap();
    image.e2fsck_fn().unwrap();
}

#[test]
fn a_part_is_formatted_and_the_rest_kept() {
    let image = garbage(64 * M);
    let mut options = FormatOptions::new();
    options.part(8 * M, Some(40 * M));
    let made = Volume::format(image.path(), &options).unwrap();
    assert_eq!(made.part.map(|p| (p.offset, p.size)), Some((8 * M, 40 * M)));
    use_it(image.path(), MountOptions::new().part(8 * M, Some(40 * M)));
    let bytes = fs::read(image.path()).unwrap();
    let at = |n: u64| usize::try_from(n).unwrap();
    assert!(bytes[..at(8 * M)].iter().all(|b| *b == 0xa5));
    assert!(bytes[at(48 * M)..].iter().all(|b| *b == 0xa5));
    let inner = Image::sparse(40 * M).unwrap();
    fs::write(inner.path(), &bytes[at(8 * M)..at(48 * M)]).unwrap();
    inner.e2fsck_fn().unwrap();
}

#[test]
fn a_partition_table_is_not_overwritten_by_accident() {
    let image = Image::sparse(64 * M).unwrap();
    let file = File::options().write(true).open(image.path()).unwrap();
    let mut mbr = vec![0; 512];
    // One partition, from sector 2048 on, of 40 MiB.
    mbr[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x40, 1, 0]);
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all_at(&mbr, 0).unwrap();
    let error = Volume::format(image.path(), &FormatOptions::new()).unwrap_err();
    match error.format_reason() {
        Some(FormatError::Occupied(found)) => assert!(found.is_partition_table()),
        other => panic!("{other:?}"),
    }
    Volume::format(image.path(), FormatOptions::new().partition("1")).unwrap();
    use_it(image.path(), MountOptions::new().partition("1"));
    let head = fs::read(image.path()).unwrap();
    assert!(head[..512] == mbr);
}

/// Files are made, grow and are removed as the options say; a dry run changes nothing.
#[test]
fn files_have_the_size_that_was_asked_for() {
    let scratch = Scratch::new("format").unwrap();
    let path = scratch.path().join("disk.img");
    let size = || fs::metadata(&path).map(|m| m.len()).ok();
    let format = |options: &FormatOptions| Volume::format(&path, options);

    assert!(format(&FormatOptions::new()).is_err());
    let dry = format(FormatOptions::new().size(20 * M).dry_run(true)).unwrap();
    assert!(!dry.written && dry.bytes == 20 * M);
    assert_eq!(size(), None);
    assert!(format(FormatOptions::new().size(1000)).is_err());
    assert_eq!(size(), None);
    // No file of this machine is so long: it is removed again.
    let mut too_long = FormatOptions::new();
    too_long.size(1 << 60).numbers().block_size = Some(65536);
    assert!(format(&too_long).is_err());
    assert_eq!(size(), None);

    format(FormatOptions::new().size(20 * M)).unwrap();
    assert_eq!(size(), Some(20 * M));
    let dry = format(FormatOptions::new().size(50 * M).force(true).dry_run(true));
    assert_eq!(dry.unwrap().bytes, 50 * M);
    assert_eq!(size(), Some(20 * M));
    format(FormatOptions::new().size(50 * M).force(true)).unwrap();
    assert_eq!(size(), Some(50 * M));
    let made = format(FormatOptions::new().size(10 * M).force(true)).unwrap();
    assert_eq!((made.bytes, size()), (10 * M, Some(50 * M)));
    use_it(&path, MountOptions::new().part(0, Some(10 * M)));

    // An empty file is one to be filled.
    fs::remove_file(&path).unwrap();
    File::create(&path).unwrap().flush().unwrap();
    format(FormatOptions::new().size(30 * M).profile(Profile::Rootfs)).unwrap();
    use_it(&path, &MountOptions::new());
}

/// A volume that is made and used with an epoch and a seed is the same again, byte for byte.
#[test]
fn volumes_are_reproducible() {
    let made = || {
        let image = Image::sparse(40 * M).unwrap();
        let mut options = FormatOptions::new();
        options.reproducible(1_700_000_000, 42).label("again");
        Volume::format(image.path(), &options).unwrap();
        use_it(image.path(), MountOptions::new().epoch(1_700_000_000));
        image.e2fsck_fn().unwrap();
        fs::read(image.path()).unwrap()
    };
    assert!(made() == made());
}
