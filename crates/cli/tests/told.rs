//! Tests of messages to users: warnings appear, errors have the exit codes of docs/operations.md,
//! and neither sends control sequences to the terminal.
use std::process::{Command, Stdio};

use crate::common::daemon::{BINARY, Daemon, fails, json, ok, stetfs};
use stetfs_testkit::{Image, Mkfs, Scratch};

fn ext2() -> Image {
    let mkfs = Mkfs {
        fs_type: Some("ext2".into()),
        ..Mkfs::new()
    };
    Image::make(16 << 20, &mkfs).unwrap()
}

#[test]
fn who_mounts_is_warned_of_a_volume_without_a_journal() {
    let d = Daemon::unmounted(ext2());
    let mounted = json(&["mount", d.image(), d.dir()]);
    let said = mounted["warnings"].to_string();
    assert!(said.contains("the volume has no journal"), "{mounted}");
    ok(&["umount", d.dir()]);
    let out = stetfs(&["mount", d.image(), d.dir()]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.success() && said.contains("no journal"),
        "{said}"
    );
    ok(&["umount", d.dir()]);
    // Nothing can become inconsistent.
    let mounted = json(&["mount", "-o", "ro", d.image(), d.dir()]);
    assert_eq!(mounted["warnings"], serde_json::json!([]));
}

#[test]
fn colours_are_for_terminals() {
    let image = ext2();
    let place = format!("{}:/x", image.path().display());
    let out = stetfs(&["mkdir", &place]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("WARN"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_remount_names_what_it_does_not_change() {
    let d = Daemon::new("threads=2");
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        json(&["mount", "-o", &options, "none", d.dir()])["warnings"].clone()
    };
    for _ in 0..2 {
        let said = remount("threads=3,io_uring=off,commit=7").to_string();
        assert!(
            said.contains("does not change threads, io_uring:"),
            "{said}"
        );
    }
    // The options of fstab, repeated.
    assert_eq!(remount("threads=2,noatime"), serde_json::json!([]));
}

#[test]
fn archives_do_not_steer_the_terminal_and_are_named() {
    let image = Image::make(16 << 20, &Mkfs::new()).unwrap();
    let place = format!("{}:/", image.path().display());
    let scratch = Scratch::new("told").unwrap();
    let archive = scratch.path().join("a.tar");
    // A name that leads out of the archive.
    let mut header = tar_header(b"../\x1b[31mred");
    header.resize(10240, 0);
    std::fs::write(&archive, &header).unwrap();
    let unpack = || ["tar", "-x", "-f", archive.to_str().unwrap(), &place].map(str::to_owned);
    let args = unpack();
    let args = args.each_ref().map(String::as_str);
    fails(&args, 1, &["\\u{1b}[31mred", "leads out of it"]);
    std::fs::write(&archive, b"\x1f\x8b\x08\0\0\0\0\0\0\x03").unwrap();
    fails(&args, 6, &["gzip failed"]);
    // The same from a pipe.
    let mut child = Command::new(BINARY)
        .args(["tar", "-x", &place])
        .stdin(std::fs::File::open(&archive).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(6));
    // Packed by a program that is not known here.
    std::fs::write(&archive, b"PK\x03\x04\0\0\0\0").unwrap();
    fails(&args, 1, &["a ZIP archive", "zcat"]);
}

/// A header of an empty file, in the POSIX format.
fn tar_header(name: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, b"00000000000\0");
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[test]
fn mistakes_have_the_codes_of_the_table() {
    let image = Image::make(32 << 20, &Mkfs::new()).unwrap();
    let (volume, scratch) = (
        image.path().to_str().unwrap(),
        Scratch::new("told").unwrap(),
    );
    let dir = scratch.path().to_str().unwrap();
    let nvm = ["mount", "-o", "journal=nvm", volume, dir];
    fails(&nvm, 1, &["-o journal=nvm,nvm=PATH"]);
    for address in ["nbd://", "nbds://localhost/", "nbd://localhost/?foo=1"] {
        fails(
            &["info", address],
            1,
            &["not the address", "docs/remote.md"],
        );
    }
    fails(&["stat", "--watch=abc", dir], 1, &["number of seconds"]);
    let out = stetfs(&["ls", "/nonexistent.img:/"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(said.matches("cannot open").count(), 1, "{said}");
}

#[test]
fn help_names_servers_where_they_are_taken() {
    let server = "nbd+unix:///?socket=/nonexistent";
    let scratch = Scratch::new("told").unwrap();
    let (dir, place) = (scratch.path().to_str().unwrap(), format!("{server}:/x"));
    let taken: [&[&str]; 12] = [
        &["mount", server, dir],
        &["info", server],
        &["recover", server],
        &["dump", "journal", server],
        &["advise", server],
        &["quota", server],
        &["ls", &place],
        &["cat", &place],
        &["mkdir", &place],
        &["rm", &place],
        &["cp", &place, dir],
        &["tar", "-c", &place],
    ];
    for args in taken {
        fails(args, 3, &["start the server"]);
        let command = args.iter().take_while(|word| !word.contains('/'));
        let command: Vec<_> = command.copied().filter(|word| *word != "-c").collect();
        let help = ok(&[&command[..], &["--help"]].concat());
        assert!(help.contains("nbd://"), "{command:?}: {help}");
    }
}

#[test]
fn a_full_volume_has_the_code_of_the_table() {
    let image = Image::make(8 << 20, &Mkfs::new()).unwrap();
    let scratch = Scratch::new("told").unwrap();
    let large = scratch.path().join("large");
    std::fs::write(&large, vec![7; 16 << 20]).unwrap();
    let place = format!("{}:/", image.path().display());
    let copy = ["cp", large.to_str().unwrap(), &place];
    fails(&copy, 6, &["No space left"]);
    image.e2fsck_fn().unwrap();
}

/// Commands and options of the usual tools that are not there name what to use.
#[test]
fn unknown_commands_and_options_name_what_to_use() {
    let place = "disk.img:/f";
    for (args, words) in [
        (&["chattr", "+i", place][..], &["'chattr'", "chattr(1)"][..]),
        (&["rename", place, place], &["stetfs mv"]),
        (&["cp", "-p", "x", place], &["'-p'", "-a keeps owners"]),
        (&["cp", "--preserve=all", "x", place], &["-a keeps owners"]),
        (&["rm", "-ri", place], &["'-i'", "no command asks"]),
        (&["tar", "-cpf", "x", place], &["are kept anyway"]),
        (&["ls", "-t", place], &["--json has times"]),
        (&["unmount", "dir"], &["'umount'"]),
        (&["chmod", "u+y", place], &["u+x,go-w"]),
    ] {
        fails(args, 1, words);
    }
    let (code, said) = crate::common::daemon::answer(&["cp", "-p", "x", place]);
    assert_eq!(code, 1);
    assert!(
        said["error"]["hint"]
            .as_str()
            .unwrap()
            .starts_with("-a keeps")
    );
}
