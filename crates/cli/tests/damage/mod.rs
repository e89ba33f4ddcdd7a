//! Tests of damaged volumes. Whichever structure is damaged, no program that lists, reads or copies
//! succeeds with missing or wrong output that a checksum covers, and none fails more than on the
//! kernel's ext4; and writes to a damaged volume change no undamaged file.
//!
//! The standing suite has one kind of volume with checksums and one without. With `STETFS_LONG=1`
//! it covers all kinds of volumes, damage and mounts. A table (`--nocapture`) shows the result of
//! each program for each structure on the kernel's ext4 and on StetFS: `=` right, `x` an error, `!`
//! silently wrong.

mod looks;
mod victims;
mod volume;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::{kernel, number, stetfs_with};
use looks::{Look, Verdict};
use stetfs_testkit::image::e2fsck;
use stetfs_testkit::{Image, Mkfs, Mounter, Scratch, cmd};
use victims::{BLOCK, Case, HOWS, How, KINDS, Kind, Raw};

fn long() -> bool {
    number("STETFS_LONG", 0) > 0
}

/// A kind of volume, and the damage tried on it.
struct Volume {
    mkfs: Mkfs,
    cases: Vec<Case>,
    csum: bool,
}

impl Volume {
    fn new(features: &str, kinds: &[Kind], hows: &[How]) -> Volume {
        let each = |kind| hows.iter().map(move |how| Case { kind, how: *how });
        Volume {
            mkfs: Mkfs::blocks(BLOCK as u32).journal_mib(4).feature(features),
            cases: kinds.iter().flat_map(|kind| each(*kind)).collect(),
            csum: !features.contains("^metadata_csum"),
        }
    }
}

/// A volume with all cases, undamaged and damaged; a copy of its tree on the host, and the
/// programs' output for it.
struct Prepared {
    damaged: Image,
    good: Scratch,
    right: Vec<Vec<Vec<u8>>>,
    /// The original content of structures that e2fsck (1.47) cannot repair: inodes of values with
    /// wrong checksums.
    beyond_repair: Vec<(u64, Vec<u8>)>,
}

fn prepare(volume: &Volume) -> Prepared {
    let image = Image::make(96 << 20, &volume.mkfs).unwrap();
    let mounted = kernel().mount(image.path()).unwrap();
    for case in &volume.cases {
        case.plant(mounted.path());
    }
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();

    let good = Scratch::new("good").unwrap();
    let mounted = stetfs_with("ro").mount(image.path()).unwrap();
    let mut cp = Command::new("cp");
    cp.args(["-a", "--no-preserve=xattr"])
        .arg(mounted.path().join("."));
    cmd::run(cp.arg(good.path())).unwrap();
    let dirs = volume
        .cases
        .iter()
        .map(|case| mounted.path().join(case.dir()));
    let right = dirs.map(|dir| looks::outputs(&dir)).collect();
    mounted.umount().unwrap();

    let raw = Raw::new(&image);
    let regions: Vec<_> = volume.cases.iter().map(|case| case.find(&raw)).collect();
    let mut beyond_repair = Vec::new();
    for (case, region) in volume.cases.iter().zip(regions) {
        if case.kind == Kind::ValueInode {
            beyond_repair.push((region.at, raw.read(region)));
        }
        raw.damage(region, case.how);
    }
    drop(raw);
    Prepared {
        beyond_repair,
        damaged: image,
        good,
        right,
    }
}

/// The results of the programs for each case.
fn looked_at(volume: &Volume, prepared: &Prepared, root: &Path) -> Vec<Look> {
    let scratch = Scratch::new("copies").unwrap();
    let cases = volume.cases.iter().zip(&prepared.right);
    let looks = cases.map(|(case, right)| {
        let good = prepared.good.path().join(case.dir());
        looks::look(&root.join(case.dir()), &good, right, scratch.path())
    });
    looks.collect()
}

/// Creates, changes and removes files in every case's directory; returns the number of successful
/// calls.
fn write_around(volume: &Volume, root: &Path) -> usize {
    let mut done = 0;
    for case in &volume.cases {
        let dir = root.join(case.dir());
        let all = [
            std::fs::write(dir.join("new"), victims::content("new", 20_000)),
            std::fs::create_dir(dir.join("new-dir")),
            std::fs::write(dir.join("victim/new"), "new"),
            std::fs::rename(dir.join("gone"), dir.join("victim/gone")),
            std::fs::remove_file(dir.join("gone")),
        ];
        done += all.iter().filter(|r| r.is_ok()).count();
    }
    // Refused if the first error made the volume read-only.
    let _ = rustix::fs::syncfs(File::open(root).unwrap());
    done
}

/// The tree after e2fsck, as the kernel sees it; `None` if e2fsck leaves errors (1.47 gives up on
/// some damage).
fn repaired(image: &Image, beyond_repair: &[(u64, Vec<u8>)]) -> Option<looks::Plain> {
    for (at, bytes) in beyond_repair {
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(bytes, *at).unwrap();
    }
    // One run is not always enough.
    let mut said = Ok(());
    for _ in 0..3 {
        let _ = e2fsck(image.path(), &["-fy"], 1);
        said = image.e2fsck_fn();
        if said.is_ok() {
            break;
        }
    }
    let seen = said.and_then(|()| seen_by_kernel(image));
    seen.inspect_err(|e| println!("not repaired: {e:#}")).ok()
}

/// The tree as the kernel sees it in a read-only mount; not every kernel writes volumes with quota.
fn seen_by_kernel(image: &Image) -> anyhow::Result<looks::Plain> {
    let mounted = Mounter::ext4("ro,noload").mount(image.path())?;
    let tree = looks::plain(mounted.path())?;
    mounted.umount()?;
    Ok(tree)
}

fn matrix(name: &str, volume: &Volume, pairs: &[(Mounter, Mounter)]) {
    let prepared = prepare(volume);
    let alone = repaired(&prepared.damaged.copy().unwrap(), &prepared.beyond_repair);
    let mut bad = Vec::new();
    for (theirs, ours) in pairs {
        let (theirs_name, ours_name) = (theirs.name(), ours.name());
        let image = prepared.damaged.copy().unwrap();
        let mounted = theirs.mount(image.path()).unwrap();
        let theirs = looked_at(volume, &prepared, mounted.path());
        mounted.umount().unwrap();

        let image = prepared.damaged.copy().unwrap();
        let mounted = ours.mount(image.path()).unwrap();
        let ours = looked_at(volume, &prepared, mounted.path());
        println!("{name}: {theirs_name} | {ours_name}");
        println!(
            "{:28} {}  deleted by rsync",
            "",
            looks::columns().map(wide).join(" ")
        );
        for (case, (theirs, ours)) in volume.cases.iter().zip(theirs.iter().zip(&ours)) {
            let verdicts = theirs.verdicts.iter().zip(&ours.verdicts);
            let mut row = format!("{:28}", case.dir());
            for (column, (theirs, ours)) in looks::columns().into_iter().zip(verdicts) {
                row += &format!(
                    " {}",
                    wide(&format!("{}|{}", theirs.letter(), ours.letter()))
                );
                let loud = case.covered(volume.csum) || *theirs == Verdict::Failed;
                if loud && *ours == Verdict::Silent {
                    bad.push(format!(
                        "{name}, {ours_name}, {}: {column} is silent",
                        case.dir()
                    ));
                }
            }
            println!("{row}  {}|{}", theirs.deleted.len(), ours.deleted.len());
            if case.covered(volume.csum) && !ours.deleted.is_empty() {
                bad.push(format!(
                    "{name}, {ours_name}, {}: rsync deletes {:?}",
                    case.dir(),
                    ours.deleted
                ));
            }
        }
        let read_only = ours_name.ends_with(" ro");
        if !read_only {
            let done = write_around(volume, mounted.path());
            println!("{done} changes");
        }
        match mounted.umount() {
            // With `errors=remount-ro` the journal stopped.
            Err(e) if !format!("{e:#}").contains("could not be closed clean") => panic!("{e:#}"),
            _ => {}
        }
        if read_only {
            continue;
        }
        let left = match (&alone, repaired(&image, &prepared.beyond_repair)) {
            (Some(_), None) => {
                bad.push(format!("{name}, {ours_name}: no longer repaired by e2fsck"));
                continue;
            }
            (_, left) => left.unwrap_or_default(),
        };
        for (path, was) in alone.iter().flatten() {
            if left.get(path) != Some(was) && !path.ends_with("/gone") {
                let is = left.get(path);
                bad.push(format!(
                    "{name}, {ours_name}: after e2fsck {path} is {is:?}, not {was:?}"
                ));
            }
        }
    }
    assert!(bad.is_empty(), "{} cells\n{}", bad.len(), bad.join("\n"));
}

/// The text padded to the width of a column.
fn wide(text: &str) -> String {
    format!("{text:8}")
}

fn hows(standing: How) -> Vec<How> {
    match long() {
        true => HOWS.to_vec(),
        false => vec![standing],
    }
}

/// Mounts by the kernel and by StetFS.
fn mounters() -> Vec<(Mounter, Mounter)> {
    let options = match long() {
        true => &["", "ro", "errors=remount-ro"][..],
        false => &[""],
    };
    let pair = |o: &&str| (Mounter::ext4(o), stetfs_with(o));
    options.iter().map(pair).collect()
}

#[test]
fn with_checksums() {
    let volume = Volume::new("ea_inode", &KINDS, &hows(How::Flip));
    matrix("with checksums", &volume, &mounters());
}

#[test]
fn without_checksums() {
    let volume = Volume::new("ea_inode,^metadata_csum", &KINDS, &hows(How::Garble));
    matrix("without checksums", &volume, &mounters());
}

/// Volumes that store structures elsewhere, with damage of those structures.
#[test]
fn other_volumes() {
    use Kind::{DirBlock, DirInode, SmallDir, SmallFile, TinyDir};
    let few = [SmallFile, TinyDir, SmallDir, DirBlock, DirInode];
    let without_index: Vec<_> = KINDS.into_iter().filter(|k| !k.is_indexed()).collect();
    let all: Vec<_> = KINDS.into_iter().filter(|k| *k != Kind::Indirect).collect();
    let some = |kinds: Vec<Kind>| if long() { kinds } else { few.to_vec() };
    for (name, features, kinds) in [
        ("inline data", "inline_data,ea_inode", some(KINDS.to_vec())),
        (
            "inline data, no checksums",
            "inline_data,ea_inode,^metadata_csum",
            some(KINDS.to_vec()),
        ),
        (
            "no index",
            "^dir_index,ea_inode",
            some(without_index.clone()),
        ),
        (
            "no index, no checksums",
            "^dir_index,ea_inode,^metadata_csum",
            some(without_index),
        ),
        ("clusters", "bigalloc,ea_inode", some(all)),
    ] {
        if long() || name != "clusters" {
            let how = if features.contains("^metadata_csum") {
                How::Garble
            } else {
                How::Flip
            };
            matrix(
                name,
                &Volume::new(features, &kinds, &hows(how)),
                &mounters(),
            );
        }
    }
}
