//! Old content, and volumes that are made again.

use std::fs;
use std::process::Command;

use anyhow::Result;
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_format::{Before, FormatOptions, Plan, Space, found};
use stetfs_testkit::{Image, Mkfs, cmd};

use crate::common::{M, check, format, made, open, with};

#[test]
fn two_runs_are_the_same() -> Result<()> {
    for features in ["", "quota,project,mmp,bigalloc", "^extent,fast_commit"] {
        let options = FormatOptions {
            epoch: Some(1_700_000_000),
            seed: Some(1),
            ..with(features)
        };
        let (first, _) = made(70 * M, &options)?;
        let (second, _) = made(70 * M, &options)?;
        let first = fs::read(first.path())?;
        assert!(first == fs::read(second.path())?, "{features}");
        let other = FormatOptions {
            seed: Some(2),
            ..options
        };
        let (third, _) = made(70 * M, &other)?;
        assert!(first != fs::read(third.path())?, "{features}");
    }
    Ok(())
}

/// A volume on old data is sound, with tables that are zeroed and tables that are not.
#[test]
fn old_data_does_not_matter() -> Result<()> {
    for (features, zero_tables) in [("", false), ("", true), ("^metadata_csum", false)] {
        let image = Image::sparse(90 * M)?;
        fs::write(image.path(), vec![0xa5; (90 * M) as usize])?;
        let options = FormatOptions {
            zero_tables,
            ..with(features)
        };
        format(&image, &options, Before::Anything)?;
        check(&image)?;
        let zeroed = cmd::run(Command::new("dumpe2fs").arg(image.path()))?;
        assert_eq!(zeroed.contains("ITABLE_ZEROED"), zero_tables, "{zeroed}");
    }
    Ok(())
}

/// A volume that is smaller than its device leaves the rest as it was.
#[test]
fn the_rest_of_a_device_is_kept() -> Result<()> {
    for bytes in [600 << 10, M, 3 * M / 2, 10 * M + 512] {
        let device = MemDevice::from_image(&vec![0xa5; (12 * M) as usize]);
        let space = Space { bytes, sector: 512 };
        Plan::new(space, &FormatOptions::default())?.write(&device, Before::Anything)?;
        let rest = &device.to_vec()[bytes as usize..];
        assert!(rest.iter().all(|b| *b == 0xa5), "{bytes}");
        assert!(found(&device)?.is_some());
    }
    Ok(())
}

/// Nothing of another format's signature is left.
#[test]
fn signatures_are_erased() -> Result<()> {
    let image = Image::sparse(64 * M)?;
    let mut bytes = vec![0; (64 * M) as usize];
    bytes[0x10040..][..8].copy_from_slice(b"_BHRfS_M");
    fs::write(image.path(), &bytes)?;
    let device = open(image.path())?;
    let there = found(&device)?.unwrap();
    assert!(there.to_string().contains("btrfs"), "{there}");
    drop(device);
    format(&image, &FormatOptions::default(), Before::Anything)?;
    let bytes = fs::read(image.path())?;
    assert_ne!(&bytes[0x10040..][..8], b"_BHRfS_M");
    check(&image)
}

#[test]
fn volumes_and_partition_tables_are_recognised() -> Result<()> {
    let image = Image::make(16 * M, &Mkfs::new())?;
    let there = found(&open(image.path())?)?.unwrap();
    assert!(there.to_string().starts_with("an ext4 volume"), "{there}");
    assert!(!there.is_partition_table());

    let image = Image::sparse(16 * M)?;
    assert_eq!(found(&open(image.path())?)?, None);
    let mut mbr = vec![0; 512];
    mbr[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    open(image.path())?.write(0, &mbr)?;
    assert!(found(&open(image.path())?)?.unwrap().is_partition_table());
    Ok(())
}

/// A device that fails at any write never holds a volume: the superblock comes last.
#[test]
fn half_a_volume_is_no_volume() -> Result<()> {
    use stetfs_block::{Event, Recorder};
    let old = MemDevice::new(32 * M);
    let space = Space {
        bytes: 32 * M,
        sector: 512,
    };
    let plan = |seed| {
        let options = FormatOptions {
            seed: Some(seed),
            ..FormatOptions::default()
        };
        Plan::new(space, &options)
    };
    plan(1)?.write(&old, Before::Zeros)?;
    assert!(found(&old)?.is_some());
    let recorder = Recorder::new(old.fork());
    plan(2)?.write(&recorder, Before::Anything)?;
    let device = old.fork();
    let mut volumes = Vec::new();
    for event in &recorder.log().events {
        match event {
            Event::Write { offset, data, .. } => device.write(*offset, data)?,
            Event::Discard { range, .. } => device.zero(range.clone())?,
            _ => continue,
        }
        volumes.push(found(&device)?.map(|v| v.to_string()));
    }
    let last = volumes.pop().flatten().unwrap();
    assert!(last.contains("ext4"));
    // The old one goes with the first write.
    assert!(volumes.iter().all(Option::is_none), "{volumes:?}");
    Ok(())
}
