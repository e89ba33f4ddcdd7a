//! Tests of volumes in partitions of an image, beside sfdisk, losetup and the kernel.
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::daemon::{BINARY, Daemon, answer, fails, json, ok};
use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, Scratch, cmd, mount};

const MIB: u64 = 1 << 20;
const DISK: u64 = 128 * MIB;

/// An image of a whole disk, partitioned by an sfdisk script.
fn disk(script: &str) -> Image {
    let image = Image::sparse(DISK).unwrap();
    partition(image.path(), script);
    image
}

fn partition(disk: &Path, script: &str) {
    let mut sfdisk = Command::new("sfdisk")
        .arg("-q")
        .arg(disk)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    sfdisk
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(sfdisk.wait().unwrap().success());
}

/// Number, offset and size of the partitions, by sfdisk.
fn places(disk: &Path) -> Vec<(u64, u64, u64)> {
    let said = cmd::run(Command::new("sfdisk").arg("--json").arg(disk)).unwrap();
    let table: Value = serde_json::from_str(&said).unwrap();
    let table = &table["partitiontable"];
    let sector = table["sectorsize"].as_u64().unwrap_or(512);
    let name = table["device"].as_str().unwrap();
    let place = |p: &Value| {
        let node = p["node"].as_str().unwrap();
        let number = node.strip_prefix(name).unwrap().trim_start_matches('p');
        let bytes = |key: &str| p[key].as_u64().unwrap() * sector;
        (number.parse().unwrap(), bytes("start"), bytes("size"))
    };
    table["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(place)
        .collect()
}

/// Puts an ext4 volume into a part of a disk, and fills the part with it.
fn put_volume(disk: &Path, (offset, size): (u64, u64), label: &str) {
    let mut mkfs = Mkfs::blocks(1024);
    mkfs.args.extend(["-L".into(), label.into()]);
    let volume = Image::make(size, &mkfs).unwrap();
    let bytes = fs::read(volume.path()).unwrap();
    let disk = File::options().write(true).open(disk).unwrap();
    disk.write_all_at(&bytes, offset).unwrap();
}

/// The volume in a part of a disk, as a separate image.
fn volume_of(disk: &Path, (offset, size): (u64, u64)) -> Image {
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    File::open(disk)
        .unwrap()
        .read_exact_at(&mut bytes, offset)
        .unwrap();
    let image = Image::sparse(size).unwrap();
    fs::write(image.path(), bytes).unwrap();
    image
}

/// The bytes outside a part.
fn around(disk: &Path, (offset, size): (u64, u64)) -> Vec<u8> {
    let mut all = fs::read(disk).unwrap();
    let range = usize::try_from(offset).unwrap()..usize::try_from(offset + size).unwrap();
    all.drain(range);
    all
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const GPT: &str = "label: gpt\n\
    size=4MiB, type=uefi, name=esp\n\
    size=40MiB, name=first\n\
    start=100001, size=80001, name=second\n";
const MBR: &str = "label: dos\n\
    size=4MiB, type=ef\n\
    size=40MiB\n\
    type=5\n\
    size=30MiB\n\
    size=24MiB\n";

#[test]
fn the_commands_find_what_sfdisk_made() {
    for (script, first, second) in [(GPT, 2, 3), (MBR, 2, 6)] {
        let disk = disk(script);
        let path = disk.path();
        let file = |name: &str| format!("{}:/{name}", text(path));
        let all = places(path);
        let place = |number| {
            let found = all.iter().find(|p| p.0 == number).unwrap();
            (found.1, found.2)
        };
        put_volume(path, place(first), "one");
        put_volume(path, place(second), "two");

        // The user is not advised to format it.
        let said = answer(&["info", text(path)]);
        assert_eq!(said.0, 5);
        let hint = said.1["error"]["hint"].as_str().unwrap();
        let numbers = format!("partitions {first}, {second}");
        assert!(
            hint.contains(&numbers) && hint.contains(&format!("-o partition={first}")),
            "{hint}"
        );
        let message = said.1["error"]["message"].as_str().unwrap();
        for (number, offset, size) in &all {
            let place = format!("at byte {offset}, {size} bytes");
            assert!(
                message.contains(&format!("partition {number} (")),
                "{message}"
            );
            assert!(message.contains(&place), "{place}: {message}");
        }

        for (number, label) in [(first, "one"), (second, "two")] {
            let before = around(path, place(number));
            let (offset, size) = place(number);
            let uuid =
                json(&["info", "-o", &format!("partition={number}"), text(path)])["uuid"].clone();
            for name in [
                format!("partition={number}"),
                format!("partition={label}"),
                format!("partition={}", uuid.as_str().unwrap()),
                format!("offset={offset},size={size}"),
                format!("offset={offset}"),
            ] {
                let info = json(&["info", "-o", &name, text(path)]);
                assert_eq!(info["label"], label, "{name}");
                assert_eq!(info["part"]["offset"], offset);
                ok(&["ls", "-o", &name, &file("")]);
                ok(&["recover", "-o", &name, text(path)]);
                ok(&["dump", "journal", "-o", &name, text(path)]);
                ok(&["quota", "-o", &name, text(path)]);
            }
            let option = format!("partition={number}");
            ok(&["mkdir", "-o", &option, &file("dir")]);
            let large: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
            let host = disk.dir().join("host");
            fs::write(&host, &large).unwrap();
            ok(&["cp", "-o", &option, text(&host), &file("dir/copy")]);
            let archive = disk.dir().join("archive.tar");
            ok(&[
                "tar",
                "-c",
                "-f",
                text(&archive),
                "-o",
                &option,
                &file("dir"),
            ]);
            ok(&["rm", "-o", &option, &file("dir/copy")]);
            ok(&[
                "tar",
                "-x",
                "-f",
                text(&archive),
                "-o",
                &option,
                &file("dir"),
            ]);
            assert_eq!(
                around(path, place(number)),
                before,
                "it wrote beside its partition"
            );
            volume_of(path, place(number)).e2fsck_fn().unwrap();

            // The kernel sees the same, and its changes are read.
            let scratch = Scratch::new("parts").unwrap();
            let dir = scratch.path();
            let how = format!("loop,offset={offset},sizelimit={size}");
            cmd::run(
                Command::new("mount")
                    .args(["-t", "ext4", "-o", &how])
                    .arg(path)
                    .arg(dir),
            )
            .unwrap();
            let same = fs::read(dir.join("dir/copy")).unwrap() == large;
            let wrote = fs::write(dir.join("kernel"), format!("in {number}"));
            cmd::run(Command::new("umount").arg(dir)).unwrap();
            assert!(same);
            wrote.unwrap();
            assert_eq!(
                ok(&["cat", "-o", &option, &file("kernel")]),
                format!("in {number}")
            );
        }
    }
}

#[test]
fn partitions_of_one_image_are_mounted_at_once() {
    let disk = disk(GPT);
    let all = places(disk.path());
    let place = |i: usize| (all[i].1, all[i].2);
    put_volume(disk.path(), place(1), "one");
    put_volume(disk.path(), place(2), "two");
    let copy = disk.copy().unwrap();
    let (first, second) = (Daemon::unmounted(disk), Daemon::unmounted(copy));
    let third = Daemon::unmounted(Image::sparse(MIB).unwrap());
    let disk = first.image();
    let mount_second = ["mount", "-o", "partition=second", disk, second.dir()];
    first.mount("partition=first");
    ok(&mount_second);
    let stat = json(&["stat", second.dir()]);
    assert_eq!(stat["part"]["offset"], place(2).0);
    assert_eq!(stat["part"]["size"], place(2).1);
    assert_eq!(stat["journal"]["parts"]["codec"], "jbd2");
    assert_eq!(stat["cache"]["policy"], "clock");
    // Each volume can be opened once, and then nobody can open the whole disk.
    let offset = place(1).0.to_string();
    for part in [
        "partition=2",
        "partition=one",
        &format!("offset={offset}"),
        "offset=0",
    ] {
        fails(&["info", "-o", part, disk], 4, &["in use"]);
    }
    fails(&["info", disk], 4, &["in use"]);
    let copied = format!("{disk}:/copy");
    for (part, pid) in [
        ("partition=first", first.pid()),
        ("partition=second", second.pid()),
    ] {
        let holder = format!("in use by process {pid} ");
        fails(&["ls", "-o", part, &format!("{disk}:/")], 4, &[&holder]);
        fails(&["cp", "-o", part, BINARY, &copied], 4, &[&holder]);
        fails(&["mount", "-o", part, disk, third.dir()], 4, &[&holder]);
    }
    fails(
        &[
            "mount",
            "-o",
            "remount,partition=2",
            second.dir(),
            second.dir(),
        ],
        1,
        &["change the part"],
    );
    ok(&[
        "mount",
        "-o",
        "remount,commit=9,partition=second",
        second.dir(),
        second.dir(),
    ]);

    for dir in [&first.dir, &second.dir] {
        let mut file = File::create(dir.join("file")).unwrap();
        file.write_all(&[7; 300_000]).unwrap();
        file.sync_all().unwrap();
    }
    // One server is killed; the other one goes on.
    first.kill9();
    fs::write(second.file("more"), "more").unwrap();
    let hint = format!("stetfs recover -o offset={offset},size={}", place(1).1);
    fails(&["umount", first.dir()], 6, &["was gone", &hint]);
    ok(&["recover", "-o", "partition=2", disk]);
    ok(&["umount", second.dir()]);
    for i in [1, 2] {
        volume_of(first.image.path(), place(i)).e2fsck_fn().unwrap();
    }
    let file = format!("{disk}:/file");
    for part in ["first", "second"] {
        let option = format!("partition={part}");
        assert_eq!(ok(&["cat", "-o", &option, &file]).len(), 300_000);
    }
}

#[test]
fn sectors_of_4096_bytes() {
    let disk = Image::sparse(DISK).unwrap();
    let mut losetup = Command::new("losetup");
    losetup
        .args(["--find", "--show", "--sector-size", "4096"])
        .arg(disk.path());
    let device = cmd::run(&mut losetup).unwrap();
    let device = Path::new(device.trim());
    partition(device, "label: gpt\nsize=64MiB, name=large\n");
    let all = places(device);
    cmd::run(Command::new("losetup").arg("-d").arg(device)).unwrap();
    put_volume(disk.path(), (all[0].1, all[0].2), "large");
    let info = json(&["info", "-o", "partition=large", text(disk.path())]);
    assert_eq!(info["part"]["offset"], all[0].1);
    // The backup at the end of the disk replaces an overwritten table.
    let file = File::options().write(true).open(disk.path()).unwrap();
    file.write_all_at(&[0; 4096], 4096).unwrap();
    let again = json(&["info", "-o", "partition=1", text(disk.path())]);
    assert_eq!(info["part"], again["part"]);
}

#[test]
fn what_is_not_there_is_said() {
    let disk = disk(MBR);
    let path = text(disk.path());
    let info =
        |option: &str, code, words: &[&str]| fails(&["info", "-o", option, path], code, words);
    info(
        "partition=9",
        3,
        &["it has no partition 9", "partition 2 (Linux)"],
    );
    info("partition=3", 1, &["an extended one"]);
    info("partition=root", 3, &["it has no partition root"]);
    info(
        "partition=2",
        5,
        &["no ext4 volume in its part", "begins with zeroes"],
    );
    info("offset=1G", 1, &["in bytes, not in sectors"]);
    info("offset=1M,size=1G", 1, &["beyond its end"]);
    info("offset=100", 1, &["sectors of 512 bytes"]);
    info("partition=2,offset=512", 1, &["use one or the other"]);
    info("partiton=2", 1, &["did you mean partition?"]);
    let scratch = Scratch::new("parts").unwrap();
    let dir = text(scratch.path());
    fails(
        &["mount", "-o", "partition=9", path, dir],
        3,
        &["no partition 9"],
    );
    assert!(!mount::is_mounted(scratch.path()));
    let whole = Image::make(8 * MIB, &Mkfs::new()).unwrap();
    let words = ["it has no partition table", "remove partition="];
    fails(
        &["info", "-o", "partition=1", text(whole.path())],
        3,
        &words,
    );
}

/// As mount(8) runs it. It does not pass `offset=` on: it makes a loop device for that itself.
#[test]
fn the_mount_helper_takes_a_partition() {
    let disk = disk(GPT);
    let all = places(disk.path());
    put_volume(disk.path(), (all[1].1, all[1].2), "one");
    let scratch = Scratch::new("parts").unwrap();
    let helper = scratch.path().join("mount.stetfs");
    std::os::unix::fs::symlink(BINARY, &helper).unwrap();
    let dir = scratch.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let mut mount = Command::new(&helper);
    mount
        .arg(disk.path())
        .arg(&dir)
        .args(["-o", "rw,partition=first"]);
    cmd::run(&mut mount).unwrap();
    let stat = json(&["stat", text(&dir)]);
    ok(&["umount", text(&dir)]);
    assert_eq!(stat["part"]["offset"], all[1].1);
}
