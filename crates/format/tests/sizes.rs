//! Sizes of volumes, blocks and inodes.

use anyhow::{Context, Result};
use stetfs_format::{FormatError, FormatOptions, Plan, Profile, Space};

use crate::common::{G, K, M, T, dumpe2fs, sound, with};

const BLOCKS: [u32; 7] = [1024, 2048, 4096, 8192, 16384, 32768, 65536];

fn blocks(size: u32, inode_size: u16) -> FormatOptions {
    FormatOptions {
        block_size: Some(size),
        inode_size: Some(inode_size),
        ..FormatOptions::default()
    }
}

#[test]
fn every_block_and_inode_size_is_sound() -> Result<()> {
    for block in BLOCKS {
        for inode in [128, 256, 1024] {
            for blocks_count in [700, 3000, 40_000] {
                let bytes = blocks_count * u64::from(block) + 512;
                sound(bytes, &blocks(block, inode)).with_context(|| {
                    format!("{blocks_count} blocks of {block}, inodes of {inode}")
                })?;
            }
        }
    }
    Ok(())
}

#[test]
fn small_volumes_are_sound() -> Result<()> {
    for kib in [
        128, 129, 200, 360, 512, 1000, 1440, 2047, 2048, 2100, 3100, 5000,
    ] {
        sound(kib * K, &FormatOptions::default()).with_context(|| format!("{kib} KiB"))?;
    }
    Ok(())
}

/// Sizes at which a last group begins, is too small, or is just large enough.
#[test]
fn the_end_of_a_volume_is_sound() -> Result<()> {
    let group = 8192 * K;
    for groups in [1, 2, 3, 5, 16, 17, 25, 33] {
        for more in [1, 2, 60, 200, 330, 700, 8191] {
            sound(groups * group + more * K, &FormatOptions::default())
                .with_context(|| format!("{groups} groups and {more} KiB"))?;
        }
    }
    Ok(())
}

#[test]
fn profiles_are_sound_at_every_size() -> Result<()> {
    for profile in Profile::ALL {
        let options = FormatOptions {
            profile,
            ..FormatOptions::default()
        };
        for size in [600 * K, 4 * M, 40 * M, 600 * M, 5 * G] {
            sound(size, &options).with_context(|| format!("{profile}, {size} bytes"))?;
        }
    }
    Ok(())
}

#[test]
fn large_volumes_are_sound() -> Result<()> {
    for size in [100 * G, 5 * T] {
        sound(size, &FormatOptions::default()).with_context(|| format!("{size} bytes"))?;
    }
    Ok(())
}

#[test]
fn a_volume_of_64_tib_is_sound() -> Result<()> {
    let big = FormatOptions {
        block_size: Some(65536),
        ..FormatOptions::default()
    };
    sound(64 * T - 4096, &big).map(drop)
}

#[test]
#[ignore = "e2fsck takes minutes"]
fn a_volume_of_64_tib_with_usual_blocks_is_sound() -> Result<()> {
    sound(64 * T - 4096, &FormatOptions::default()).map(drop)
}

/// Descriptors that fill a group move to meta groups by themselves.
#[test]
fn many_groups_take_meta_groups() -> Result<()> {
    let small = FormatOptions {
        inode_ratio: Some(4 << 20),
        ..blocks(1024, 256)
    };
    let (image, summary) = sound(600 * G, &small)?;
    assert!(summary.features.contains("meta_bg"), "{summary:?}");
    assert!(!summary.features.contains("resize_inode"), "{summary:?}");
    assert!(dumpe2fs(&image)?.contains("meta_bg"));
    Ok(())
}

#[test]
fn numbers_are_those_that_were_asked_for() -> Result<()> {
    let options = FormatOptions {
        label: b"a label of 16 by".to_vec(),
        uuid: Some([7; 16]),
        reserved: Some(250),
        inodes: Some(5000),
        journal_size: Some(8 * M),
        epoch: Some(1_000_000_000),
        ..FormatOptions::default()
    };
    let (image, summary) = sound(200 * M, &options)?;
    assert_eq!(summary.reserved_blocks, summary.blocks / 40);
    assert!((5000..6000).contains(&summary.inodes), "{summary:?}");
    let shown = dumpe2fs(&image)?;
    for line in [
        "Filesystem volume name:   a label of 16 by",
        "Filesystem UUID:          07070707-0707-0707-0707-070707070707",
        "Filesystem created:       Sun Sep  9 01:46:40 2001",
        "Total journal size:       8M",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    Ok(())
}

/// A wrong option or too little room is an error that names a way out, and never a panic.
#[test]
fn what_is_not_possible_is_refused() {
    let options = |change: &dyn Fn(&mut FormatOptions)| {
        let mut options = FormatOptions::default();
        change(&mut options);
        options
    };
    let cases = [
        (100 * M, options(&|o| o.block_size = Some(3000)), "1K, 2K"),
        (100 * M, options(&|o| o.block_size = Some(1 << 17)), "64K"),
        (
            100 * M,
            options(&|o| o.inode_size = Some(200)),
            "power of two",
        ),
        (
            100 * M,
            options(&|o| o.cluster_size = Some(65536)),
            "-O bigalloc",
        ),
        (100 * M, options(&|o| o.reserved = Some(5001)), "50 %"),
        (100 * M, options(&|o| o.inodes = Some(u32::MAX)), "--inodes"),
        (
            100 * M,
            options(&|o| o.inode_ratio = Some(1)),
            "--inode-ratio",
        ),
        (
            100 * M,
            options(&|o| o.journal_size = Some(1)),
            "--journal-size",
        ),
        (
            100 * M,
            options(&|o| o.journal_size = Some(90 * M)),
            "--journal-size",
        ),
        (M, options(&|o| o.journal_size = Some(M)), "^has_journal"),
        (100 * M, options(&|o| o.label = vec![b'x'; 17]), "16 bytes"),
        (100 * M, options(&|o| o.epoch = Some(1 << 40)), "latest"),
        (0, FormatOptions::default(), "more room"),
        (10 * K, FormatOptions::default(), "more room"),
        (
            256 * K,
            options(&|o| o.block_size = Some(65536)),
            "--block-size",
        ),
        (
            1 << 62,
            options(&|o| o.block_size = Some(1024)),
            "--block-size",
        ),
        (M, with("has_journal"), "too small for a journal"),
        (20 * T, with("^64bit"), "64bit"),
    ];
    for (bytes, options, hint) in cases {
        let space = Space { bytes, sector: 512 };
        let said = match Plan::new(space, &options) {
            Err(e @ (FormatError::Options(_) | FormatError::Size(_))) => e.to_string(),
            Err(e) => panic!("{e}"),
            Ok(plan) => panic!("{bytes} bytes with {options:?} gave {:?}", plan.summary()),
        };
        assert!(said.contains(hint), "{hint:?} is not in {said:?}");
    }
    let space = Space {
        bytes: 100 * M,
        sector: 4096,
    };
    assert!(Plan::new(space, &blocks(1024, 256)).is_err());
    let plan = Plan::new(space, &FormatOptions::default()).unwrap();
    assert_eq!(plan.summary().block_size, 4096);
}
