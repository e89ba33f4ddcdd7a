//! e2fsprogs changes new volumes.

use std::fs::File;
use std::process::Command;

use anyhow::{Context, Result};
use stetfs_format::{Before, FormatOptions};
use stetfs_testkit::{Image, cmd};

use crate::common::{G, M, dumpe2fs, format, sound, with};

fn run(program: &str, args: &[&str], image: &Image) -> Result<()> {
    cmd::run(Command::new(program).args(args).arg(image.path())).map(drop)
}

#[test]
fn resize2fs_grows_and_shrinks() -> Result<()> {
    for features in [
        "",
        "^flex_bg",
        "^resize_inode",
        "meta_bg",
        "sparse_super2",
        "^metadata_csum",
    ] {
        let (image, _) = sound(600 * M, &with(features))?;
        File::options()
            .write(true)
            .open(image.path())?
            .set_len(5 * G)?;
        let steps = || -> Result<()> {
            let size = |size: &str| {
                cmd::run(Command::new("resize2fs").arg(image.path()).arg(size)).map(drop)
            };
            size("5G")?;
            image.e2fsck_fn()?;
            size("300M")?;
            image.e2fsck_fn()
        };
        steps().with_context(|| format!("with {features}"))?;
    }
    Ok(())
}

/// Blocks reserved for growth hold old data; growth does not mind.
#[test]
fn a_volume_on_old_data_grows() -> Result<()> {
    let image = Image::sparse(40 * M)?;
    std::fs::write(image.path(), vec![0xa5; (40 * M) as usize])?;
    format(&image, &FormatOptions::default(), Before::Anything)?;
    let file = File::options().write(true).open(image.path())?;
    file.set_len(3 * G)?;
    run("resize2fs", &[], &image)?;
    image.e2fsck_fn()
}

#[test]
fn tune2fs_changes_features() -> Result<()> {
    let (image, _) = sound(100 * M, &FormatOptions::default())?;
    run(
        "tune2fs",
        &["-L", "tuned", "-U", "random", "-m", "1"],
        &image,
    )?;
    image.e2fsck_fn()?;
    run("tune2fs", &["-O", "quota,mmp"], &image)?;
    image.e2fsck_fn()?;
    run("tune2fs", &["-O", "^has_journal,^orphan_file"], &image)?;
    image.e2fsck_fn()?;
    run("tune2fs", &["-j"], &image)?;
    image.e2fsck_fn()?;
    run("tune2fs", &["-O", "^metadata_csum"], &image)?;
    image.e2fsck_fn()?;
    assert!(dumpe2fs(&image)?.contains("tuned"));
    Ok(())
}

/// Both volumes have the same numbers where they are given by the size alone.
#[test]
fn numbers_are_those_of_mke2fs() -> Result<()> {
    let numbers = |image: &Image| -> Result<Vec<String>> {
        const SAME: [&str; 12] = [
            "Filesystem features:",
            "Filesystem flags:",
            "Default mount options:",
            "Inode count:",
            "Block count:",
            "Reserved block count:",
            "Overhead clusters:",
            "Reserved GDT blocks:",
            "Inodes per group:",
            "Flex block group size:",
            "Total journal blocks:",
            "Default directory hash:",
        ];
        let shown = dumpe2fs(image)?;
        let lines = shown
            .lines()
            .filter(|l| SAME.iter().any(|s| l.starts_with(s)));
        Ok(lines.map(str::to_owned).collect())
    };
    for bytes in [M, 8 * M, 100 * M, 700 * M, 3 * G, 40 * G] {
        let theirs = Image::sparse(bytes)?;
        let features = "orphan_file,metadata_csum_seed";
        run(
            "mke2fs",
            &["-q", "-F", "-t", "ext4", "-O", features],
            &theirs,
        )?;
        let (ours, _) = sound(bytes, &FormatOptions::default())?;
        assert_eq!(numbers(&ours)?, numbers(&theirs)?, "{bytes} bytes");
    }
    Ok(())
}
