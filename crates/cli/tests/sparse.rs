//! Tests of Android's sparse images: they can be read wherever a volume is named, are never
//! written, and can be made.

use std::path::Path;
use std::process::Command;

use crate::common::daemon::{answer, fails, json, ok};
use crate::common::{assert_same, capture, stetfs_with};
use stetfs_testkit::{Image, Mkfs, Scratch, cmd};

/// A volume with some files, and a directory beside it.
fn volume() -> (Image, Scratch) {
    let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
    let scratch = Scratch::new("sparse").unwrap();
    let tree = scratch.path().join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    std::fs::write(tree.join("dir/text"), b"some text").unwrap();
    std::fs::write(tree.join("ones"), vec![1; 3 << 20]).unwrap();
    let mut noise = vec![0; 5 << 20];
    fastrand::Rng::with_seed(5).fill(&mut noise);
    std::fs::write(tree.join("noise"), noise).unwrap();
    let inside = format!("{}:/", image.path().display());
    ok(&["cp", tree.to_str().unwrap(), &inside]);
    (image, scratch)
}

fn at(scratch: &Scratch, name: &str) -> String {
    scratch.path().join(name).to_str().unwrap().to_owned()
}

fn same(a: &Path, b: &str) {
    assert!(
        std::fs::read(a).unwrap() == std::fs::read(b).unwrap(),
        "{b} is another"
    );
}

#[test]
fn it_is_read_wherever_a_volume_is_named() {
    let (image, scratch) = volume();
    let plain = image.path().to_str().unwrap();
    let sparse = at(&scratch, "sparse");
    let made = json(&["image", "sparse", plain, &sparse]);
    assert_eq!(made["blocks"], (64 << 20) / 4096);
    assert_eq!(made["dont_care"], 0);
    let info = |path: &str| {
        let mut info = json(&["info", path]);
        info["volume"] = "".into();
        info
    };
    assert_eq!(info(&sparse), info(plain));
    let ls = |path: &str| ok(&["ls", "-lR", &format!("{path}:/")]);
    assert_eq!(ls(&sparse), ls(plain));
    let text = ok(&["cat", &format!("{sparse}:/tree/dir/text")]);
    assert_eq!(text, "some text");
    let out = at(&scratch, "noise");
    ok(&["cp", &format!("{sparse}:/tree/noise"), &out]);
    same(&scratch.path().join("tree/noise"), &out);
    let dumped = |path: &str| ok(&["dump", "journal", path]);
    assert_eq!(dumped(&sparse), dumped(plain));
    // A partition of it.
    let mut disk = vec![0; 1 << 20];
    disk.extend(std::fs::read(plain).unwrap());
    std::fs::write(at(&scratch, "disk"), disk).unwrap();
    let in_disk = at(&scratch, "disk-sparse");
    ok(&["image", "sparse", &at(&scratch, "disk"), &in_disk]);
    let found = json(&["info", "-o", "offset=1M", &in_disk]);
    assert_eq!(found["uuid"], info(plain)["uuid"]);
    let mounts = |options: &str, path: &str| {
        let mounted = stetfs_with(options).mount(Path::new(path)).unwrap();
        let tree = capture(mounted.path());
        mounted.umount().unwrap();
        tree
    };
    assert_same("mounted", &mounts("ro", plain), &mounts("ro", &sparse));
    // None of the attempts to write changed it.
    let again = at(&scratch, "again");
    ok(&["image", "unsparse", &sparse, &again]);
    same(image.path(), &again);
}

#[test]
fn it_is_not_written() {
    let (image, scratch) = volume();
    let plain = image.path().to_str().unwrap();
    let sparse = at(&scratch, "sparse");
    ok(&["image", "sparse", plain, &sparse]);
    let before = std::fs::read(&sparse).unwrap();
    std::fs::create_dir(scratch.path().join("mnt")).unwrap();
    let say = &["sparse image", "stetfs image unsparse"];
    fails(&["mount", &sparse, &at(&scratch, "mnt")], 1, say);
    fails(&["mkdir", &format!("{sparse}:/new")], 1, say);
    // A clean one needs no recovery; one that was not unmounted does.
    ok(&["recover", &sparse]);
    image.debugfs_write("feature needs_recovery").unwrap();
    let dirty = at(&scratch, "dirty");
    ok(&["image", "sparse", plain, &dirty]);
    fails(&["recover", &dirty], 1, say);
    let would = json(&["info", &dirty]).to_string();
    assert!(would.contains("unsparse"), "{would}");
    fails(
        &["mount", "-o", "ro", &dirty, &at(&scratch, "mnt")],
        1,
        &["unsparse"],
    );
    assert!(before == std::fs::read(&sparse).unwrap());
}

#[test]
fn what_is_in_the_way_is_told() {
    let (image, scratch) = volume();
    let plain = image.path().to_str().unwrap();
    let sparse = at(&scratch, "sparse");
    ok(&["image", "sparse", "--skip-zeroes", plain, &sparse]);
    fails(&["image", "sparse", plain, &sparse], 1, &["exists"]);
    fails(
        &["image", "sparse", &sparse, &at(&scratch, "no")],
        1,
        &["already"],
    );
    let odd = [
        "image",
        "sparse",
        "--block-size",
        "6",
        plain,
        &at(&scratch, "no"),
    ];
    fails(&odd, 1, &["multiple of 4"]);
    fails(
        &["image", "unsparse", plain, &at(&scratch, "no")],
        5,
        &["not an Android sparse"],
    );
    let mut bytes = std::fs::read(&sparse).unwrap();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(at(&scratch, "cut"), bytes).unwrap();
    let (code, said) = answer(&[
        "image",
        "unsparse",
        &at(&scratch, "cut"),
        &at(&scratch, "no"),
    ]);
    assert_eq!(code, 5);
    assert!(
        said["error"]["message"]
            .as_str()
            .unwrap()
            .contains("damaged"),
        "{said}"
    );
    fails(
        &["info", &at(&scratch, "cut")],
        1,
        &["damaged", "end of the file"],
    );
    assert!(!scratch.path().join("no").exists(), "what failed is left");
}

/// A sparse image of a few bytes does not fill the disk without consent.
#[test]
fn what_would_fill_the_disk_is_asked_for() {
    let (_image, scratch) = volume();
    let mut bytes = Vec::new();
    for half in [0xff3a_u16, 0xed26, 1, 0, 28, 12] {
        bytes.extend(half.to_le_bytes());
    }
    let blocks = 8u32 << 10;
    for word in [4096, u32::MAX, 2, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for (blocks, content) in [(blocks, [7; 4]), (u32::MAX - blocks, [0; 4])] {
        bytes.extend(0xcac2_u32.to_le_bytes());
        bytes.extend(blocks.to_le_bytes());
        bytes.extend(16_u32.to_le_bytes());
        bytes.extend(content);
    }
    let (sparse, plain) = (at(&scratch, "fill"), at(&scratch, "plain"));
    std::fs::write(&sparse, &bytes).unwrap();
    let unsparse =
        |max: &str| ["image", "unsparse", "--max-fill", max, &sparse, &plain].map(String::from);
    let words = |max: &str| answer(&unsparse(max).each_ref().map(String::as_str));
    let (code, said) = words("31M");
    let said = said.to_string();
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("chunk 0 ") && said.contains("--max-fill 33554432"),
        "{said}"
    );
    assert!(!Path::new(&plain).exists());
    let (code, said) = words("32M");
    assert_eq!(code, 0, "{said}");
    std::fs::remove_file(&plain).unwrap();
    // The default limit is 1 GiB: 16 TiB are refused.
    bytes.truncate(bytes.len() - 4);
    bytes.extend([7; 4]);
    std::fs::write(&sparse, &bytes).unwrap();
    fails(
        &["image", "unsparse", &sparse, &plain],
        1,
        &["chunk 1 ", "--max-fill"],
    );
    assert!(!Path::new(&plain).exists());
}

/// Debian's tools (android-sdk-libsparse-utils) read StetFS's images, and StetFS reads theirs.
#[test]
fn other_tools_agree() {
    let (image, scratch) = volume();
    let plain = image.path().to_str().unwrap();
    for flags in [&[][..], &["--skip-zeroes"], &["--block-size", "64K"]] {
        let (ours, back) = (at(&scratch, "ours"), at(&scratch, "back"));
        ok(&[&["image", "sparse"], flags, &[plain, &ours]].concat());
        cmd::run(Command::new("simg2img").args([&ours, &back])).unwrap();
        same(image.path(), &back);
        std::fs::remove_file(ours).unwrap();
        std::fs::remove_file(back).unwrap();
    }
    let theirs = at(&scratch, "theirs");
    cmd::run(Command::new("img2simg").args([plain, &theirs])).unwrap();
    assert_eq!(
        ok(&["cat", &format!("{theirs}:/tree/dir/text")]),
        "some text"
    );
    let back = at(&scratch, "back");
    ok(&["image", "unsparse", &theirs, &back]);
    same(image.path(), &back);
}
