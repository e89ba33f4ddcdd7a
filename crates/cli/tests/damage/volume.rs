//! Tests of damaged structures of the whole volume: superblock, descriptors, bitmaps, journal,
//! quota files and the volume's own inodes. Either a mount refuses the volume, or no later removal
//! or write, until the volume is full, changes an undamaged file.

use std::fs;
use std::path::Path;

use stetfs_testkit::{Image, Mkfs, Mounter, Scratch, cmd};

use super::looks::Plain;
use super::victims::{BLOCK, HOWS, How, Raw, Region, content};
use super::{long, repaired, seen_by_kernel};
use crate::common::{daemon, kernel, stetfs};

/// Directory of files that must stay unchanged.
const KEEP: &str = "keep";
/// Directory of files that are removed.
const GONE: &str = "gone";

/// A structure: its name, its location, and the bytes (offset, mask) of which bits are flipped.
struct Place {
    name: &'static str,
    at: u64,
    len: u64,
    flips: Vec<(u64, u8)>,
}

fn place(name: &'static str, at: u64, len: u64, flips: &[(u64, u8)]) -> Place {
    Place {
        name,
        at,
        len,
        flips: flips.to_vec(),
    }
}

/// Damage, without checksums, that once lost undamaged files.
const HARMED: [&str; 3] = [
    "descriptor 0 byte 18 ^ 2",
    "descriptor 1 byte 18 ^ 2",
    "descriptor 1 byte 0 ^ 1",
];

/// A half-full volume with files in all groups.
fn populated(mkfs: &Mkfs) -> Image {
    let image = Image::make(24 << 20, mkfs).unwrap();
    let mounted = stetfs().mount(image.path()).unwrap();
    for (dir, files) in [(KEEP, 90), (GONE, 60)] {
        for i in 0..files {
            let sub = mounted.path().join(dir).join(format!("d{}", i % 7));
            fs::create_dir_all(&sub).unwrap();
            let name = format!("{dir}{i}");
            fs::write(sub.join(&name), content(&name, 1000 + i * 1100)).unwrap();
        }
    }
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
    image
}

/// Block numbers that dumpe2fs prints behind `what`, one for each group that has it.
fn told(image: &Image, what: &str) -> Vec<u64> {
    let mut command = std::process::Command::new("dumpe2fs");
    let said = cmd::run(command.arg(image.path())).unwrap();
    let numbers = said.split(what).skip(1).map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    });
    numbers.collect()
}

fn places(image: &Image, raw: &Raw<'_>) -> Vec<Place> {
    let block = |nr: u64| nr * BLOCK;
    let bitmaps = told(image, "  Block bitmap at ");
    let inode_bitmaps = told(image, "  Inode bitmap at ");
    let descriptors = block(told(image, "Group descriptors at ")[0]);
    let backup = told(image, "Backup superblock at ")[0];
    let log = block(raw.bmap("<8>", 0));
    let orphans = format!("<{}>", told(image, "Orphan file inode:        ")[0]);
    // Counts, sizes and features; the state; the first orphan.
    let superblock = [
        4, 12, 16, 0x14, 0x18, 0x20, 0x28, 0x3a, 0x58, 0x5c, 0x60, 0x64, 0xe8,
    ];
    let superblock: Vec<_> = superblock.into_iter().map(|at| (at, 4)).collect();
    // Bitmaps and table; free blocks and inodes; flags: no inodes, no blocks in use; unused inodes.
    let desc = [
        (0, 1),
        (4, 1),
        (8, 4),
        (9, 4),
        (12, 4),
        (14, 4),
        (0x12, 1),
        (0x12, 2),
        (0x1c, 4),
    ];
    let bits = [(3, 1), (100, 16), (700, 1)];
    let inode = [(0, 4), (5, 4), (44, 1), (61, 1)];
    let mut all = vec![
        place("superblock", 1024, 1024, &superblock),
        place("backup superblock", block(backup), 1024, &superblock[..2]),
        place("descriptor 0", descriptors, 64, &desc),
        place("descriptor 1", descriptors + 64, 64, &desc),
        place("descriptor 2", descriptors + 128, 64, &desc),
        place("backup descriptors", block(backup + 1), 192, &desc[..1]),
        place("block bitmap 0", block(bitmaps[0]), BLOCK, &bits),
        place("block bitmap 1", block(bitmaps[1]), BLOCK, &bits),
        place("block bitmap 2", block(bitmaps[2]), BLOCK, &bits),
        place(
            "inode bitmap 0",
            block(inode_bitmaps[0]),
            256,
            &[(1, 1), (4, 2)],
        ),
        place(
            "inode bitmap 1",
            block(inode_bitmaps[1]),
            256,
            &[(0, 1), (4, 2)],
        ),
        place(
            "journal superblock",
            log,
            1024,
            &[(0, 1), (4, 1), (16, 1), (18, 4), (0x1b, 4), (0x1f, 1)],
        ),
        place("journal inode", raw.slot("<8>"), 256, &inode),
        place("resize inode", raw.slot("<7>"), 256, &[(5, 4), (92, 4)]),
        place(
            "resize block",
            block(u64::from(raw.u32(raw.slot("<7>") + 40 + 13 * 4))),
            BLOCK,
            &[(1, 4)],
        ),
        place(
            "orphan file",
            block(raw.bmap(&orphans, 0)),
            BLOCK,
            &[(0, 64), (1, 4)],
        ),
        place("orphan inode", raw.slot(&orphans), 256, &inode),
        place(
            "root inode",
            raw.slot("<2>"),
            256,
            &[(0, 4), (1, 0x40), (26, 3)],
        ),
    ];
    if image.debugfs("features").unwrap().contains("quota") {
        let quota = |nr| block(raw.bmap("<3>", nr));
        all.extend([
            place("quota file", quota(0), BLOCK, &[(0, 1), (9, 4)]),
            place("quota tree", quota(1), BLOCK, &[(0, 4), (17, 4)]),
            place("quota inode", raw.slot("<3>"), 256, &inode),
        ]);
    }
    all
}

/// A way to damage a place.
struct Damage {
    name: String,
    region: Region,
    how: How,
    mask: u8,
}

fn damages(places: &[Place]) -> Vec<Damage> {
    let mut all = Vec::new();
    for place in places {
        let region = |flip| Region {
            at: place.at,
            len: place.len,
            flip: place.at + flip,
        };
        all.extend(place.flips.iter().map(|(flip, mask)| Damage {
            name: format!("{} byte {flip} ^ {mask}", place.name),
            region: region(*flip),
            how: How::Flip,
            mask: *mask,
        }));
        all.extend(
            HOWS.iter()
                .filter(|how| **how != How::Flip)
                .map(|how| Damage {
                    name: format!("{} {how:?}", place.name),
                    region: region(0),
                    how: *how,
                    mask: 0,
                }),
        );
    }
    all
}

/// Removes the files of `GONE`, and writes until the volume is full.
fn fill(root: &Path) {
    let gone = root.join(GONE);
    let dirs = fs::read_dir(&gone).into_iter().flatten().flatten();
    for file in dirs.flat_map(|d| fs::read_dir(d.path()).into_iter().flatten().flatten()) {
        let _ = fs::remove_file(file.path());
    }
    let _ = fs::File::open(root).map(rustix::fs::syncfs);
    let mut failures = 0;
    let other = content("other", 90_000);
    for i in 0..400 {
        let dir = root.join(format!("new{}", i % 9));
        let _ = fs::create_dir(&dir);
        if fs::write(dir.join(format!("f{i}")), &other).is_err() {
            failures += 1;
        }
        if failures > 12 {
            break;
        }
    }
    let _ = fs::File::open(root).map(rustix::fs::syncfs);
}

/// The undamaged files and their contents.
fn kept(tree: &Plain) -> Plain {
    let kept = tree.iter().filter(|(path, _)| path.starts_with(KEEP));
    kept.map(|(path, was)| (path.clone(), was.clone()))
        .collect()
}

/// The fate of the volume under `mounter`, and the undamaged files that are lost beyond those that
/// e2fsck alone loses.
fn outcome(mounter: &Mounter, damaged: &Image, whole: &Plain) -> (String, Vec<String>) {
    let image = damaged.copy().unwrap();
    let mut said = String::from("written");
    match mounter.mount(image.path()) {
        Err(e) => {
            let text = format!("{e:#}");
            let code = text.split("exit status: ").nth(1);
            let code = code.and_then(|c| c.split(')').next()).unwrap_or("?");
            assert_ne!(code, "101", "a panic: {text}");
            said = format!("refused, {code}");
        }
        Ok(mounted) => {
            fill(mounted.path());
            if let Err(e) = mounted.umount() {
                let text = format!("{e:#}");
                said = format!(
                    "written, and not closed clean: {}",
                    text.lines().last().unwrap_or_default()
                );
            }
        }
    }
    let look = |image: &Image| {
        let tree = repaired(image, &[]).map_or_else(|| seen_by_kernel(image), Ok);
        kept(&tree.unwrap_or_default())
    };
    let tree = look(&image);
    if tree == *whole {
        return (said, Vec::new());
    }
    let alone = look(&damaged.copy().unwrap());
    let lost = alone
        .iter()
        .filter(|(path, was)| tree.get(*path) != Some(*was));
    (said, lost.map(|(path, _)| path.clone()).collect())
}

fn survives(name: &str, features: &str, each: usize) {
    let mut mkfs = Mkfs::blocks(BLOCK as u32).journal_mib(4).feature(features);
    if features.contains("quota") {
        mkfs = mkfs.extended("quotatype=usrquota:grpquota");
    }
    let image = populated(&mkfs);
    let whole = kept(&seen_by_kernel(&image).unwrap());
    assert!(whole.len() > 90);
    let damages = damages(&places(&image, &Raw::new(&image)));
    let mut bad = Vec::new();
    let chosen = damages.iter().enumerate().filter(|(i, damage)| {
        let name = damage.name.as_str();
        i.is_multiple_of(each) || HARMED.contains(&name)
    });
    for (_, damage) in chosen {
        let damaged = image.copy().unwrap();
        Raw::new(&damaged).damage_with(damage.region, damage.how, damage.mask);
        let (ours, lost) = outcome(&stetfs(), &damaged, &whole);
        let theirs = match long() {
            true => {
                let (said, lost) = outcome(&kernel(), &damaged, &whole);
                format!("{said}, {} lost", lost.len())
            }
            false => String::new(),
        };
        println!(
            "{name}: {:36} {ours}, {} lost | {theirs}",
            damage.name,
            lost.len()
        );
        if !lost.is_empty() {
            bad.push(format!(
                "{}: {ours}: {} are lost, as {:?}",
                damage.name,
                lost.len(),
                lost.first()
            ));
        }
        if ours.starts_with("refused") && ours != "refused, 5" {
            bad.push(format!("{}: {ours}", damage.name));
        }
    }
    assert!(
        bad.is_empty(),
        "{name}: {} cells\n{}",
        bad.len(),
        bad.join("\n")
    );
}

/// With quota; in the long form also without, for a kernel that does not write volumes with quota.
fn all_survive(name: &str, features: &str) {
    if !long() {
        return survives(name, &format!("{features},quota"), 7);
    }
    for quota in [",quota", ""] {
        survives(&format!("{name}{quota}"), &format!("{features}{quota}"), 1);
    }
}

#[test]
fn writing_onto_a_damaged_volume_with_checksums() {
    all_survive("checksums", "orphan_file");
}

#[test]
fn writing_onto_a_damaged_volume_without_checksums() {
    all_survive("no checksums", "orphan_file,^metadata_csum");
}

/// The mount fails with an error that gives the reason; a mount whose root answers nothing is not
/// made.
#[test]
fn a_volume_without_its_root_is_not_mounted() {
    for features in ["metadata_csum", "^metadata_csum"] {
        let mkfs = Mkfs::blocks(BLOCK as u32).feature(features);
        let image = Image::make(16 << 20, &mkfs).unwrap();
        let path = image.path().to_str().unwrap();
        assert!(daemon::json(&["info", path]).get("refused").is_none());
        let raw = Raw::new(&image);
        let at = raw.slot("<2>");
        // The root's inode becomes a pipe.
        raw.damage_with(
            Region {
                at,
                len: 128,
                flip: at + 1,
            },
            How::Flip,
            0x50,
        );
        let dir = Scratch::new("root").unwrap();
        let dir = dir.path().to_str().unwrap();
        for options in ["rw", "ro"] {
            let args = ["mount", "-o", options, path, dir];
            daemon::fails(&args, 5, &["the volume is damaged", "inode 2", "e2fsck"]);
        }
        let refused = daemon::json(&["info", path])["refused"].to_string();
        assert!(refused.contains("inode 2"), "{refused}");
    }
}
