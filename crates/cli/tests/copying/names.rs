//! Tests of file names that contain terminal control sequences.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::{at, image, kernel};
use serde_json::Value;

use crate::common::daemon::{BINARY, json, ok, stetfs};
use stetfs_testkit::cmd;

const NAMES: [&[u8]; 8] = [
    b"\x1b]0;title\x07",
    b"\x1b[31mred\x1b[0m",
    b"a\nb\rc",
    b"it's",
    b"plain",
    b"two words",
    b"\xff\xfe.x",
    b"$(reboot)",
];

#[test]
fn a_terminal_sees_names_as_ls_shows_them() {
    let image = image();
    let mounted = kernel(&image);
    let dir = mounted.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for name in NAMES {
        fs::write(dir.join(OsStr::from_bytes(name)), "").unwrap();
    }
    let mut ls = Command::new("ls");
    ls.args(["-1", "--quoting-style=shell-escape"]).arg(&dir);
    let theirs = cmd::run(ls.env("LC_ALL", "C.UTF-8")).unwrap();
    mounted.umount().unwrap();

    let shown = format!("{BINARY} ls {}", at(&image, "/dir"));
    let mut script = Command::new("script");
    let ours = cmd::run(script.args(["-qec", &shown, "/dev/null"])).unwrap();
    let mut theirs: Vec<&str> = theirs.lines().collect();
    let mut ours: Vec<&str> = ours
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .collect();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, theirs);

    // A program gets the raw names.
    let plain = stetfs(&["ls", &at(&image, "/dir")]).stdout;
    assert_eq!(plain.split(|b| *b == 0x1b).count(), 4);
    // Errors do not print control characters.
    ok(&["mkdir", &at(&image, "/\u{202e}\u{1b}[31m")]);
    let said = stetfs(&["cat", &at(&image, "/\u{202e}\u{1b}[31m")]).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(r"\u{202e}\u{1b}[31m"), "{said:?}");
}

/// JSON cannot hold bytes that are not text: such names are given in Base64, and can be used to
/// name the file.
#[test]
fn what_is_listed_as_json_can_be_named_again() {
    let image = image();
    let mounted = kernel(&image);
    let dir = mounted.path().join(OsStr::from_bytes(b"dir\xff"));
    fs::create_dir(&dir).unwrap();
    for name in NAMES {
        fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    symlink(OsStr::from_bytes(b"\xe9"), dir.join("link")).unwrap();
    mounted.umount().unwrap();
    let decoded = |entry: &Value, what: &str| -> Vec<u8> {
        let Some(text) = entry[format!("{what}_base64")].as_str() else {
            return entry[what].as_str().unwrap().into();
        };
        let script = format!("printf %s {text} | base64 -d");
        let done = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(done.status.success());
        done.stdout
    };
    let listed = json(&["ls", "-R", &at(&image, "/")]);
    let mut read = 0;
    for entry in listed["entries"].as_array().unwrap() {
        let path = decoded(entry, "path");
        let is_text = str::from_utf8(&path).is_ok();
        assert_eq!(entry["path_base64"].is_null(), is_text, "{entry}");
        if entry["type"] == "symlink" {
            assert_eq!(decoded(entry, "target"), b"\xe9");
        }
        if entry["type"] != "file" {
            continue;
        }
        let place = [at(&image, "").as_bytes(), &path].concat();
        let mut cat = Command::new(BINARY);
        let done = cat
            .arg("cat")
            .arg(OsStr::from_bytes(&place))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", cmd::said(&done));
        let name = path.rsplit(|b| *b == b'/').next().unwrap();
        assert_eq!(done.stdout, name);
        read += 1;
    }
    assert_eq!(read, NAMES.len());
}
