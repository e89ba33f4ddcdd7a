//! Tests of converting maps, by `chattr +e` and `chattr -e`: the same calls on the kernel's ext4
//! and on StetFS, and the kernel reads the result of StetFS.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use stetfs_testkit::{Image, Mkfs, Mounter, Tree};

use super::ops;
use crate::common::{capture_image, kernel, kernel_read_only, stetfs_with};

const EXTENTS: u32 = 0x8_0000;
const BYTES: u64 = 256 << 20;

/// Makes a file or directory whose flags will change.
type Make = fn(&Path) -> io::Result<()>;

fn blocks(path: &Path, all: impl IntoIterator<Item = u64>) -> io::Result<()> {
    let file = File::create(path)?;
    for lblk in all {
        file.write_all_at(&[b'a' + (lblk % 26) as u8; 4096], lblk * 4096)?;
    }
    file.sync_all()
}

fn allocated(path: &Path, mode: FallocateFlags) -> io::Result<()> {
    let file = File::create(path)?;
    // A file with a block map has no unwritten extents, and refuses.
    let _ = rustix::fs::fallocate(&file, mode, 0, 12_288);
    file.sync_all()
}

fn names(path: &Path, count: u32) -> io::Result<()> {
    fs::create_dir(path)?;
    (0..count).try_for_each(|i| fs::write(path.join(format!("{i:0100}")), []))
}

/// Files and directories by name, and whether both implementations must use the same space in any
/// form: how full they leave tree and index blocks may differ.
fn things() -> Vec<(&'static str, bool, Make)> {
    vec![
        ("empty", true, |p| blocks(p, [])),
        ("short", true, |p| {
            fs::write(p, b"hi")?;
            File::open(p)?.sync_all()
        }),
        ("one", true, |p| blocks(p, [0])),
        ("twelve", true, |p| blocks(p, 0..12)),
        ("thirteen", true, |p| blocks(p, 0..13)),
        ("at 5", true, |p| blocks(p, [5])),
        ("at 11", true, |p| blocks(p, [11])),
        ("at 12", true, |p| blocks(p, [12])),
        ("two", true, |p| blocks(p, [0, 5])),
        ("preallocated", true, |p| {
            allocated(p, FallocateFlags::empty())
        }),
        ("behind its end", true, |p| {
            allocated(p, FallocateFlags::KEEP_SIZE)
        }),
        ("only a hole", true, |p| File::create(p)?.set_len(40_960)),
        ("far", false, |p| blocks(p, [0, 20, 300, 2000, 1_100_000])),
        ("scattered", false, |p| blocks(p, (0..1500).map(|i| i * 2))),
        ("directory", true, |p| names(p, 3)),
        ("long directory", false, |p| names(p, 700)),
    ]
}

fn set(path: &Path, extents: bool) -> String {
    let flags = ops::flags(path).unwrap() & !EXTENTS;
    let asked = if extents { flags | EXTENTS } else { flags };
    let done = match ops::set_flags(path, asked) {
        Ok(()) => "ok".to_owned(),
        Err(e) => format!("{:?}", e.raw_os_error()),
    };
    format!("{done} {:#x}", ops::flags(path).unwrap())
}

/// The result of each conversion, and the attributes of the file after it.
fn answers(dir: &Path) -> Vec<String> {
    let mut said = Vec::new();
    for (name, same_space, make) in things() {
        let mut tell = |path: &Path, what: &str| {
            let meta = fs::metadata(path).unwrap();
            let space = same_space.then(|| (meta.len(), meta.blocks()));
            said.push(format!("{name}, {what}, {space:?}"));
        };
        // Made with extents, where the volume has them, and made with a block map.
        let path = dir.join(name);
        make(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        for extents in [false, false, true, true] {
            let done = set(&path, extents);
            tell(&path, &format!("extents={extents}: {done}"));
        }
        if path.is_dir() {
            continue;
        }
        let path = dir.join(format!("{name}, by numbers"));
        File::create(&path).unwrap();
        let done = set(&path, false);
        tell(&path, &format!("emptied of extents: {done}"));
        make(&path).unwrap_or_else(|e| panic!("{name}, by numbers: {e}"));
        for extents in [true, true, false] {
            let done = set(&path, extents);
            tell(&path, &format!("extents={extents}: {done}"));
        }
    }
    said
}

fn as_the_kernel(mkfs: &Mkfs, options: &str) {
    let run = |mounter: &Mounter| {
        let image = Image::make(BYTES, mkfs).unwrap();
        let mounted = mounter.mount(image.path()).unwrap();
        let said = answers(mounted.path());
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
        (said, capture_image(&kernel_read_only(), image.path()))
    };
    let (asked, theirs) = run(&kernel());
    let (answered, ours) = run(&stetfs_with(options));
    for (answered, asked) in answered.iter().zip(&asked) {
        assert_eq!(answered, asked, "{mkfs:?}, {options}");
    }
    let files = |tree: &Tree| -> Vec<(String, Option<String>)> {
        let all = tree.entries.iter().filter(|(_, e)| e.content.is_some());
        all.map(|(name, e)| (name.clone(), e.content.clone()))
            .collect()
    };
    assert_eq!(files(&ours), files(&theirs), "{mkfs:?}, {options}");
}

#[test]
fn maps_change_their_form_as_in_the_kernel() {
    for options in ["journal=ordered", "journal=ijournal", "journal=stet"] {
        as_the_kernel(&Mkfs::blocks(4096), options);
    }
}

#[test]
fn maps_change_their_form_as_in_the_kernel_on_other_volumes() {
    for features in ["^extents,^64bit", "bigalloc", "fast_commit"] {
        as_the_kernel(&Mkfs::blocks(4096).feature(features), "journal=ordered");
    }
}

/// A file with its content in the inode has no map. (StetFS makes no such files.)
#[test]
fn inline_files_have_no_form_as_in_the_kernel() {
    let image = Image::make(BYTES, &Mkfs::blocks(4096).feature("inline_data")).unwrap();
    let answers = |mounter: &Mounter| {
        let mounted = mounter.mount(image.path()).unwrap();
        let paths = ["file", "dir"].map(|name| mounted.path().join(name));
        if !paths[0].exists() {
            fs::write(&paths[0], b"hi").unwrap();
            fs::create_dir(&paths[1]).unwrap();
        }
        let said: Vec<String> = paths
            .iter()
            .flat_map(|path| [true, false].map(|extents| set(path, extents)))
            .collect();
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
        said
    };
    let asked = answers(&kernel());
    assert!(asked[0].contains(&libc::EINVAL.to_string()), "{asked:?}");
    assert_eq!(answers(&stetfs_with("journal=ordered")), asked);
}
