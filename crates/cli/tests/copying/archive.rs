//! Tests of hostile archives.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tar::{Builder, EntryType, Header};

use super::{at, image, text};
use crate::common::daemon::{BINARY, fails, ok};
use stetfs_testkit::{Image, Scratch, cmd};

/// An entry: type, name, and the target of a link or the content of a file.
type Made<'a> = (EntryType, &'a str, &'a str);

const DIR: EntryType = EntryType::Directory;
const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

/// An archive of exactly these entries.
fn archive(scratch: &Scratch, entries: &[Made<'_>]) -> PathBuf {
    let path = scratch.path().join("archive.tar");
    let mut builder = Builder::new(File::create(&path).unwrap());
    for (kind, name, with) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o777);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        let content = match *kind {
            FILE => with.as_bytes(),
            _ => {
                header.set_link_name_literal(with).unwrap();
                b""
            }
        };
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap().flush().unwrap();
    path
}

/// An image with `/etc/passwd`, `/etc/dir/x` and `/out`.
fn image_with_victims() -> Image {
    let image = image();
    ok(&["mkdir", "-p", &at(&image, "/etc/dir"), &at(&image, "/out")]);
    let scratch = Scratch::new("victims").unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "whole").unwrap();
    for to in ["/etc/passwd", "/etc/dir/x"] {
        ok(&["cp", text(&file), &at(&image, to)]);
    }
    image
}

#[track_caller]
fn is_whole(image: &Image) {
    for path in ["/etc/passwd", "/etc/dir/x"] {
        assert_eq!(ok(&["cat", &at(image, path)]), "whole");
    }
    assert_eq!(ok(&["ls", &at(image, "/etc")]), "dir\npasswd\n");
    assert_eq!(ok(&["ls", &at(image, "/etc/dir")]), "x\n");
    assert!(ok(&["ls", "-l", &at(image, "/etc")]).starts_with("drwxr-xr-x"));
    image.e2fsck_fn().unwrap();
}

#[test]
fn no_archive_leaves_the_directory_that_it_is_unpacked_into() {
    let scratch = Scratch::new("hostile").unwrap();
    let attacks: [&[Made<'_>]; 9] = [
        &[(LINK, "l", "/etc"), (FILE, "l/passwd", "changed")],
        &[(LINK, "l", "../etc"), (FILE, "l/new", "new")],
        &[(LINK, "l", "/"), (DIR, "l/etc/dir/", "")],
        &[(LINK, "l", "/etc"), (DIR, "l/dir/sub/", "")],
        &[
            (LINK, "l", "/etc"),
            (HARD, "h", "l/passwd"),
            (FILE, "h", "changed"),
        ],
        &[
            (LINK, "a", "/etc"),
            (HARD, "b", "a"),
            (FILE, "b/passwd", "changed"),
        ],
        &[
            (LINK, "a", "/etc"),
            (LINK, "b", "a"),
            (FILE, "b/dir/y", "new"),
        ],
        &[(LINK, "l", "/etc"), (FILE, "l/.wh.passwd", "")],
        &[(LINK, "l", "/etc"), (FILE, "l/.wh..wh..opq", "")],
    ];
    let image = image_with_victims();
    for entries in attacks {
        let file = archive(&scratch, entries);
        let words = ["leads through a symbolic link that came from the archive"];
        let place = at(&image, "/out");
        for more in [&[][..], &["--whiteouts"]] {
            let args = [&["tar", "-x", "-f", text(&file)], more, &[&place]].concat();
            if more.is_empty() && entries.iter().any(|(_, name, _)| name.contains(".wh.")) {
                continue;
            }
            fails(&args, 1, &words);
            is_whole(&image);
            ok(&["rm", "-r", &place]);
            ok(&["mkdir", &place]);
        }
    }
}

/// Of two entries with one name the last counts, as with GNU tar.
#[test]
fn of_two_entries_the_last_counts() {
    let scratch = Scratch::new("two").unwrap();
    let file = scratch.path().join("archive.tar");
    let mut builder = Builder::new(File::create(&file).unwrap());
    for (kind, name, mode, time) in [
        (DIR, "d/", 0o700, 1000),
        (FILE, "d/f", 0o600, 1),
        (DIR, "d/", 0o755, 2000),
        (FILE, "d/f", 0o640, 2),
    ] {
        let mut header = header(kind, name, 0);
        header.set_mode(mode);
        header.set_mtime(time);
        header.set_cksum();
        builder.append(&header, &b""[..]).unwrap();
    }
    builder.into_inner().unwrap().flush().unwrap();
    let theirs = scratch.path().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    let mut tar = Command::new("tar");
    cmd::run(tar.args(["-xpf", text(&file), "-C"]).arg(&theirs)).unwrap();
    let image = image();
    ok(&["tar", "-x", "-f", text(&file), &at(&image, "/")]);
    for (path, mode, time) in [("d", 0o755, 2000), ("d/f", 0o640, 2)] {
        let m = std::fs::metadata(theirs.join(path)).unwrap();
        assert_eq!((m.mode() & 0o7777, m.mtime()), (mode, time), "{path}");
        let stat = image.debugfs(&format!("stat /{path}")).unwrap();
        assert!(stat.contains(&format!("Mode:  {mode:04o}")), "{stat}");
        assert!(stat.contains(&format!("mtime: 0x{time:08x}")), "{stat}");
    }
}

/// The attributes of a directory in the archive are not set on a file that replaced it.
#[test]
fn a_link_in_the_place_of_a_directory_gets_nothing_of_it() {
    let scratch = Scratch::new("replaced").unwrap();
    let image = image_with_victims();
    let entries = [(DIR, "d/", ""), (DIR, "d/dir/", ""), (LINK, "d", "/etc")];
    let file = archive(&scratch, &entries);
    let place = at(&image, "/out");
    ok(&["tar", "-x", "--whiteouts", "-f", text(&file), &place]);
    is_whole(&image);
}

/// A layer goes through symbolic links of lower layers, as long as these stay in the directory.
#[test]
fn links_that_were_there_are_followed_but_not_out() {
    let scratch = Scratch::new("layers").unwrap();
    let image = image_with_victims();
    let place = at(&image, "/out");
    let lower = [
        (DIR, "usr/lib/", ""),
        (LINK, "lib", "usr/lib"),
        (LINK, "usr/up", "../lib"),
        (LINK, "out", "../etc"),
        (LINK, "etc", "/etc"),
        (LINK, "self", "self"),
    ];
    let file = archive(&scratch, &lower);
    ok(&["tar", "-x", "-f", text(&file), &place]);
    let upper = [
        (FILE, "lib/a", "a"),
        (FILE, "usr/up/b", "b"),
        (FILE, "lib/.wh.gone", ""),
    ];
    let file = archive(&scratch, &upper);
    ok(&["tar", "-x", "--whiteouts", "-f", text(&file), &place]);
    assert_eq!(ok(&["ls", &at(&image, "/out/usr/lib")]), "a\nb\n");
    for (through, word) in [
        ("out/passwd", "leads out of the directory"),
        ("etc/passwd", "leads out of the directory"),
        ("out/.wh.passwd", "leads out of the directory"),
        ("self/x", "too many symbolic links"),
    ] {
        let file = archive(&scratch, &[(FILE, through, "changed")]);
        let args = ["tar", "-x", "--whiteouts", "-f", text(&file), &place];
        fails(&args, 1, &[through, word]);
        is_whole(&image);
    }
    // The root is the whole volume.
    let file = archive(&scratch, &[(FILE, "out/etc/new", "new")]);
    ok(&["tar", "-x", "-f", text(&file), &at(&image, "/")]);
    assert_eq!(ok(&["cat", &at(&image, "/etc/new")]), "new");
}

/// An archive cannot remove the base.
#[test]
fn the_directory_that_is_unpacked_into_stays() {
    let scratch = Scratch::new("base").unwrap();
    let image = image_with_victims();
    let place = at(&image, "/etc/dir");
    for entries in [[(LINK, "./", "/")], [(FILE, ".", "file")]] {
        let file = archive(&scratch, &entries);
        let args = ["tar", "-x", "--whiteouts", "-f", text(&file), &place];
        fails(&args, 1, &["is a directory here, but not in the archive"]);
        is_whole(&image);
    }
}

/// Most memory for unpacking, bytes.
const MEMORY: u64 = 256 << 20;

/// Longest time for unpacking.
const PATIENCE: Duration = Duration::from_secs(60);

/// Unpacks within the limits of time and memory; returns the exit code and the messages.
#[track_caller]
fn unpack(file: &Path, image: &Image) -> (Option<i32>, String) {
    let args = ["tar", "-x", "-f", text(file), &at(image, "/out")];
    let mut command = Command::new(BINARY);
    let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
    let (began, mut most) = (Instant::now(), 0);
    while child.try_wait().unwrap().is_none() {
        most = most.max(crate::cost::peak(child.id()).unwrap_or(0));
        if most > MEMORY || began.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    }
    let done = child.wait_with_output().unwrap();
    assert!(most <= MEMORY, "it took {most} bytes");
    (done.status.code(), cmd::said(&done))
}

/// A header of an entry of this type and size.
fn header(kind: EntryType, name: &str, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_path(name).unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_cksum();
    header
}

/// A file with 8 EiB of holes, in 1 KiB of archive.
#[test]
fn holes_take_no_time() {
    let scratch = Scratch::new("holes").unwrap();
    let image = image_with_victims();
    let file = scratch.path().join("archive.tar");
    for (size, code) in [(1u64 << 62, 1), (8 << 40, 0)] {
        let mut header = header(EntryType::GNUSparse, "holes", 512);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(size);
        gnu.sparse[0].set_offset(size - 512);
        gnu.sparse[0].set_length(512);
        header.set_cksum();
        let bytes = [&header.as_bytes()[..], &[b'x'; 512], &[0; 1024]].concat();
        std::fs::write(&file, bytes).unwrap();
        let (got, said) = unpack(&file, &image);
        assert_eq!(got, Some(code), "{said}");
        assert!(
            code == 0 || said.contains("holes: an invalid list of holes"),
            "{said}"
        );
    }
    let listed = crate::common::daemon::json(&["ls", &at(&image, "/out")]);
    assert_eq!(listed["entries"][0]["size"], 8u64 << 40);
    image.e2fsck_fn().unwrap();
}

/// Names and PAX headers of 600 MB.
#[test]
fn long_headers_take_no_memory() {
    let scratch = Scratch::new("long").unwrap();
    let image = image_with_victims();
    let file = scratch.path().join("archive.tar");
    for (kind, word) in [
        (EntryType::GNULongName, "a name of"),
        (EntryType::GNULongLink, "a name of"),
        (EntryType::XHeader, "a PAX header of"),
        (EntryType::XGlobalHeader, "a PAX header of"),
    ] {
        let archive = File::create(&file).unwrap();
        let head = header(kind, "long", 600 << 20);
        (&archive).write_all(head.as_bytes()).unwrap();
        archive.set_len(601 << 20).unwrap();
        let (code, said) = unpack(&file, &image);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("long: ") && said.contains(word), "{said}");
    }
    // Many headers, each of one attribute.
    for kind in [EntryType::XHeader, EntryType::XGlobalHeader] {
        let archive = File::create(&file).unwrap();
        for n in 0..50u64 {
            let size = 7 << 20;
            let record = format!("{size} SCHILY.xattr.user.{n:02}=");
            let place = n * (size + 512);
            let head = header(kind, "many", size);
            archive.write_all_at(head.as_bytes(), place).unwrap();
            archive
                .write_all_at(record.as_bytes(), place + 512)
                .unwrap();
            archive.write_all_at(b"\n", place + 512 + size - 1).unwrap();
        }
        let (code, said) = unpack(&file, &image);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("many: a PAX header of"), "{said}");
    }
    // The size of a PAX header counts, as before.
    let pax = b"13 size=1024\n";
    let content = [b'x'; 1024];
    let heads = [
        (EntryType::XHeader, "pax", 13),
        (FILE, "sized", 0),
        (FILE, "next", 0),
    ];
    let [extended, sized, next] = heads.map(|(kind, name, size)| header(kind, name, size));
    let parts: [&[u8]; 6] = [
        extended.as_bytes(),
        &[&pax[..], &[0; 512 - 13]].concat(),
        sized.as_bytes(),
        &content,
        next.as_bytes(),
        &[0; 1024],
    ];
    std::fs::write(&file, parts.concat()).unwrap();
    let (code, said) = unpack(&file, &image);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(ok(&["ls", &at(&image, "/out")]), "next\nsized\n");
    assert_eq!(ok(&["cat", &at(&image, "/out/sized")]).as_bytes(), content);
}

/// A directory inside 30,000 others, and one that is named a million times.
#[test]
fn deep_and_many_names_are_bounded() {
    let scratch = Scratch::new("deep").unwrap();
    let image = image_with_victims();
    let file = scratch.path().join("archive.tar");
    let deep = "d/".repeat(30_000);
    let mut builder = Builder::new(File::create(&file).unwrap());
    let mut dir = header(DIR, "x", 0);
    builder.append_data(&mut dir, &deep, &b""[..]).unwrap();
    builder.into_inner().unwrap().flush().unwrap();
    let (code, said) = unpack(&file, &image);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("d/d/d/") && said.contains("more than 8000"),
        "{said}"
    );

    let archive = File::create(&file).unwrap();
    let mut archive = BufWriter::new(archive);
    for _ in 0..200_000 {
        archive
            .write_all(header(DIR, "same/", 0).as_bytes())
            .unwrap();
    }
    archive.write_all(&[0; 1024]).unwrap();
    archive.flush().unwrap();
    let (code, said) = unpack(&file, &image);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(ok(&["ls", &at(&image, "/out")]), "same\n");
}
