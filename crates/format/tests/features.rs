//! Features, alone and by pairs.

use anyhow::{Context, Result};
use stetfs_format::FormatOptions;

use crate::common::{M, T, dumpe2fs, made, sound, with};

/// Features that can be turned on or off.
const FEATURES: [&str; 24] = [
    "^has_journal",
    "^ext_attr",
    "^resize_inode",
    "^dir_index",
    "sparse_super2",
    "fast_commit",
    "stable_inodes",
    "^orphan_file",
    "^filetype",
    "meta_bg",
    "^extent",
    "^64bit",
    "mmp",
    "^flex_bg",
    "ea_inode",
    "^metadata_csum_seed",
    "large_dir",
    "inline_data",
    "^sparse_super",
    "^huge_file",
    "^metadata_csum",
    "uninit_bg",
    "project",
    "bigalloc",
];

/// Each pair of features that does not exclude each other, on volumes of several groups of blocks
/// of 1 and 4 KiB.
#[test]
fn pairs_of_features_are_sound() -> Result<()> {
    let mut refused = 0;
    for (at, one) in FEATURES.iter().enumerate() {
        for other in &FEATURES[at..] {
            let text = format!("{one},{other}");
            for (block_size, bytes) in [(1024, 40 * M), (4096, 300 * M)] {
                let options = FormatOptions {
                    block_size: Some(block_size),
                    ..with(&text)
                };
                let space = stetfs_format::Space { bytes, sector: 512 };
                if stetfs_format::Plan::new(space, &options).is_err() {
                    refused += 1;
                    continue;
                }
                sound(bytes, &options).with_context(|| text.clone())?;
            }
        }
    }
    // bigalloc and meta_bg exclude a few.
    assert!(refused < 20, "{refused} pairs were refused");
    Ok(())
}

#[test]
fn clusters_of_every_size_are_sound() -> Result<()> {
    for block_size in [1024, 4096, 32768] {
        for shift in 1..8 {
            let options = FormatOptions {
                block_size: Some(block_size),
                cluster_size: Some(block_size << shift),
                ..with("bigalloc,quota")
            };
            sound(777 * M, &options)
                .with_context(|| format!("clusters of {} bytes", block_size << shift))?;
        }
    }
    Ok(())
}

#[test]
fn meta_groups_of_large_volumes_are_sound() -> Result<()> {
    for block_size in [4096, 16384] {
        let options = FormatOptions {
            block_size: Some(block_size),
            ..with("meta_bg")
        };
        sound(3 * T, &options)?;
    }
    Ok(())
}

#[test]
fn features_are_those_that_were_asked_for() -> Result<()> {
    let (image, _) = made(100 * M, &with("none,filetype,ext_attr"))?;
    image.e2fsck_fn()?;
    let shown = dumpe2fs(&image)?;
    assert!(
        shown.contains("Filesystem features:      ext_attr filetype\n"),
        "{shown}"
    );
    let (image, summary) = made(100 * M, &with("bigalloc,mmp,project,inline_data"))?;
    let shown = dumpe2fs(&image)?;
    assert!(
        shown.contains(&format!("Filesystem features:      {}\n", summary.features)),
        "{shown}"
    );
    Ok(())
}

/// Quota files count both directories, also those of several owners.
#[test]
fn quota_counts_the_owner_of_the_root() -> Result<()> {
    for owner in [(0, 0), (1000, 100), (70_000, u32::MAX - 1)] {
        let options = FormatOptions {
            root_owner: owner,
            root_mode: 0o1777,
            ..with("quota,project")
        };
        let (image, _) = sound(50 * M, &options)?;
        let root = image.debugfs("stat <2>")?;
        assert!(root.contains("Mode:  01777"), "{root}");
        assert!(root.contains(&format!("User: {:>5}", owner.0)), "{root}");
        let usage = image.debugfs("list_quota user")?;
        let line = format!("{:>10}", owner.0);
        assert!(usage.lines().any(|l| l.starts_with(&line)), "{usage}");
    }
    Ok(())
}
