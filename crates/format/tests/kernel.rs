//! The kernel mounts new volumes and writes to them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use stetfs_format::{Before, FormatOptions, Profile};
use stetfs_testkit::{Image, KernelMount, LoopDev, LoopOptions};

use crate::common::{G, M, T, format, sound, with};

fn mount(image: &Image, options: &str) -> Result<KernelMount> {
    let device = LoopDev::attach(image.path(), LoopOptions::default())?;
    KernelMount::new(device, "ext4", options)
}

/// Writes files in many directories, so that several groups are used, and reads one back.
fn use_it(root: &Path) -> Result<()> {
    for dir in 0..40 {
        let dir = root.join(format!("dir{dir}"));
        fs::create_dir(&dir)?;
        for file in 0..10 {
            fs::write(dir.join(format!("file{file}")), vec![file; 20_000])?;
        }
    }
    assert_eq!(fs::read(root.join("dir7/file3"))?, vec![3; 20_000]);
    fs::remove_dir_all(root.join("dir5"))?;
    Ok(())
}

fn works(bytes: u64, options: &FormatOptions) -> Result<()> {
    let (image, summary) = sound(bytes, options)?;
    // This kernel may be built without quota; then it mounts such volumes read-only.
    let quota = summary.features.contains("quota");
    let how = if quota { "ro" } else { "" };
    let mounted = mount(&image, how).with_context(|| format!("{summary:?}"))?;
    match quota {
        true => assert!(mounted.path().join("lost+found").is_dir()),
        false => use_it(mounted.path())?,
    }
    mounted.umount()?;
    image.e2fsck_fn().with_context(|| format!("{summary:?}"))
}

#[test]
fn volumes_of_every_kind_are_mounted_and_written() -> Result<()> {
    for features in [
        "",
        "^has_journal",
        "none,filetype,ext_attr",
        "^extent,^flex_bg",
        "^metadata_csum",
        "uninit_bg",
        "meta_bg",
        "sparse_super2",
        "bigalloc",
        "bigalloc,quota,project",
        "quota,project",
        "inline_data,ea_inode,large_dir",
        "mmp",
        "fast_commit",
    ] {
        for block_size in [1024, 2048, 4096] {
            let options = FormatOptions {
                block_size: Some(block_size),
                ..with(features)
            };
            works(200 * M, &options).with_context(|| format!("{features} {block_size}"))?;
        }
    }
    Ok(())
}

#[test]
fn profiles_are_mounted_and_written() -> Result<()> {
    for profile in Profile::ALL {
        for bytes in [30 * M, 2 * G] {
            let options = FormatOptions {
                profile,
                ..FormatOptions::default()
            };
            works(bytes, &options).with_context(|| format!("{profile} {bytes}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_large_volume_is_mounted_and_written() -> Result<()> {
    works(17 * T, &FormatOptions::default())
}

/// Inode tables that hold anything are not read: the kernel zeroes them, and uses them.
#[test]
fn tables_that_are_not_zeroed_are_initialised_by_the_kernel() -> Result<()> {
    let image = Image::sparse(300 * M)?;
    fs::write(image.path(), vec![0xa5; (300 * M) as usize])?;
    let options = FormatOptions {
        block_size: Some(1024),
        inode_ratio: Some(32768),
        ..FormatOptions::default()
    };
    format(&image, &options, Before::Anything)?;
    image.e2fsck_fn()?;
    let mounted = mount(&image, "init_itable=0")?;
    use_it(mounted.path())?;
    mounted.umount()?;
    image.e2fsck_fn()
}
