//! Sections with regular files: sizes, holes, fragments, preallocation, truncation.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};

use super::site::Site;

pub(super) fn sizes(site: &Site<'_>) -> Result<()> {
    let b = usize::try_from(site.block)?;
    // A block-mapped inode maps 12 blocks directly; inline data in the inode is at most 60 bytes.
    let mut sizes = vec![
        0,
        1,
        59,
        60,
        61,
        156,
        511,
        512,
        513,
        4095,
        4096,
        4097,
        12 * b,
        12 * b + 1,
        65_536,
        1 << 20,
        3 << 20,
    ];
    sizes.extend([b - 1, b, b + 1, 2 * b, 13 * b]);
    let mut rng = site.bytes.rng();
    sizes.extend((0..40).map(|_| {
        let top = 1usize << rng.u32(4..19);
        rng.usize(..top)
    }));
    for (i, size) in sizes.iter().enumerate() {
        let name = format!("{i:03}-{size}");
        fs::write(site.path(&name), site.bytes.get(i as u64, *size))
            .with_context(|| name.clone())?;
    }
    Ok(())
}

pub(super) fn sparse(site: &Site<'_>) -> Result<()> {
    let block = site.block;
    // Block-mapped files also end at 2^32 blocks, but with fewer levels: at 16 GiB with blocks of 1
    // KiB.
    let cases: [(&str, &[u64], u64); 6] = [
        ("only-a-hole", &[], 1 << 20),
        ("hole-first", &[1 << 20], (1 << 20) + 100),
        ("hole-last", &[0], 1 << 22),
        ("islands", &[0, 100_000, 1_000_000, 5_000_000], 6_000_000),
        (
            "beyond-4-gib",
            &[0, (1 << 32) - 1, (1 << 32) + block * 3 + 7],
            (1 << 32) + (1 << 20),
        ),
        ("beyond-12-gib", &[12 << 30], (12 << 30) + 5),
    ];
    for (key, (name, offsets, size)) in cases.into_iter().enumerate() {
        let file = File::create_new(site.path(name))?;
        for (i, offset) in offsets.iter().enumerate() {
            let length = usize::try_from((size - offset).min(3000))?;
            file.write_all_at(&site.bytes.get((key * 16 + i) as u64, length), *offset)
                .context(name)?;
        }
        file.set_len(size).context(name)?;
    }
    Ok(())
}

/// Four files that grow in turns with syncs in between, so that delayed allocation cannot make them
/// contiguous.
pub(super) fn fragmented(site: &Site<'_>) -> Result<()> {
    let files = (0..4)
        .map(|i| File::create_new(site.path(&format!("file-{i}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rng = site.bytes.rng();
    for round in 0..24u64 {
        for (i, file) in files.iter().enumerate() {
            let length = usize::try_from(site.block)? * rng.usize(1..4);
            let at = file.metadata()?.len();
            file.write_all_at(&site.bytes.get(round * 4 + i as u64, length), at)?;
            file.sync_data()?;
        }
    }
    Ok(())
}

/// One file with every second block written in ascending order, and one with blocks written in
/// scattered order.
pub(super) fn deep_extents(site: &Site<'_>) -> Result<()> {
    let block = usize::try_from(site.block)?;
    let extents = u64::from(site.plan.extents);
    let forward = File::create_new(site.path("every-second-block"))?;
    for i in 0..extents {
        forward.write_all_at(&site.bytes.get(i, block), i * 2 * site.block)?;
    }
    let scattered = File::create_new(site.path("scattered"))?;
    let mut order: Vec<u64> = (0..extents / 4).collect();
    site.bytes.rng().shuffle(&mut order);
    for i in order {
        scattered.write_all_at(&site.bytes.get(1 << 40 | i, block), i * 3 * site.block)?;
    }
    // Filling some of the gaps makes extents merge.
    for i in 0..extents / 8 {
        forward.write_all_at(
            &site.bytes.get(1 << 41 | i, block),
            (i * 2 + 1) * site.block,
        )?;
    }
    Ok(())
}

pub(super) fn fallocates(site: &Site<'_>) -> Result<()> {
    let block = site.block;
    let create = |name: &str| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(site.path(name))
            .context(name.to_owned())
    };
    let write = |file: &File, key: u64, length: u64, at: u64| -> Result<()> {
        file.write_all_at(&site.bytes.get(key, usize::try_from(length)?), at)?;
        Ok(())
    };
    let keep = FallocateFlags::KEEP_SIZE;

    let f = create("preallocated")?;
    fallocate(&f, FallocateFlags::empty(), 0, 1 << 20).context("fallocate")?;
    write(&f, 1, 5000, 70_000)?;

    let f = create("beyond-the-end")?;
    write(&f, 2, 10_000, 0)?;
    fallocate(&f, keep, 0, 400_000).context("fallocate keep-size")?;

    let f = create("punched")?;
    write(&f, 3, 300_000, 0)?;
    let punch = FallocateFlags::PUNCH_HOLE | keep;
    fallocate(&f, punch, 4 * block, 8 * block).context("punch hole, whole blocks")?;
    fallocate(&f, punch, 100_001, 50_000).context("punch hole, parts of blocks")?;
    fallocate(&f, punch, 290_000, 100_000).context("punch hole across the end")?;

    let f = create("zeroed")?;
    write(&f, 4, 300_000, 0)?;
    fallocate(&f, FallocateFlags::ZERO_RANGE, 4 * block, 8 * block).context("zero range")?;
    fallocate(&f, FallocateFlags::ZERO_RANGE, 250_001, 100_000)
        .context("zero range across the end")?;
    fallocate(&f, FallocateFlags::ZERO_RANGE | keep, 400_000, 100_000)
        .context("zero range, keep size")?;

    let f = create("written-over-unwritten")?;
    fallocate(&f, FallocateFlags::empty(), 0, 64 * block).context("fallocate")?;
    for i in (0..64).step_by(3) {
        write(&f, 100 + i, block, i * block)?;
    }
    Ok(())
}

pub(super) fn truncates(site: &Site<'_>) -> Result<()> {
    let cases: [(&str, usize, &[u64]); 6] = [
        ("to-zero", 100_000, &[0]),
        ("to-a-block", 100_000, &[4096]),
        ("into-a-block", 100_000, &[4097]),
        ("cut-and-grown", 100_000, &[5_001, 200_000]),
        ("grown-and-cut", 1_000, &[1 << 30, 2_000]),
        (
            "many-times",
            300_000,
            &[250_000, 299_999, 3, 90_000, 60_001],
        ),
    ];
    for (key, (name, length, steps)) in cases.into_iter().enumerate() {
        let file = File::create_new(site.path(name))?;
        file.write_all_at(&site.bytes.get(key as u64, length), 0)?;
        for step in steps {
            // Half of the files have allocated blocks, the other half delayed ones.
            if key % 2 == 0 {
                file.sync_all()?;
            }
            file.set_len(*step)
                .with_context(|| format!("{name} to {step}"))?;
        }
    }
    Ok(())
}
