//! Tests of failing devices below commands of both programs: the failure is reported, and nothing
//! else is lost.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, Scratch, cmd, mount};

use crate::common::daemon::{fails, json, ok, stetfs};
use crate::common::prometheus::{at, of, parse};
use crate::common::{kernel, stetfs as stetfs_mounter};
use crate::served::Served;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// A device that fails on command; each error is reported with kind, time, place and error number.
#[test]
fn errors_of_the_device_are_counted() {
    let served = Served::new(&["--model", "nvme-ssd", "--size", "64M"]);
    let mut mke2fs = Command::new("mke2fs");
    cmd::run(
        mke2fs
            .args(["-q", "-F", "-t", "ext4", "-b", "4096"])
            .arg(served.disk()),
    )
    .unwrap();
    let scratch = Scratch::new("stat").unwrap();
    let dir = scratch.path().to_str().unwrap();
    ok(&["mount", served.disk().to_str().unwrap(), dir]);
    let _mounted = Unmounting(dir);
    let errors = || json(&["stat", dir])["device"]["errors"].clone();
    let kinds = ["read", "write", "flush", "discard", "share"];
    let counts = |all: &Value| kinds.map(|kind| all[kind]["count"].as_u64().unwrap());
    let before = errors();
    assert_eq!(counts(&before), [0; 5], "{before}");
    assert!(before["write"].get("first").is_none(), "{before}");
    let samples = parse(&ok(&["stat", "--prometheus", dir]));
    assert_eq!(of(&samples, "stetfs_device_errors_total").len(), 5);
    assert!(of(&samples, "stetfs_device_last_error_timestamp_seconds").is_empty());
    assert!(ok(&["stat", dir]).contains("flush    none\n"));

    let mut file = File::create_new(scratch.path().join("file")).unwrap();
    file.write_all(&[1; 8192]).unwrap();
    file.sync_all().unwrap();
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    served.fault(&["error-writes"]);
    file.write_all(&[2; 8192]).unwrap();
    assert!(file.sync_all().is_err());

    let after = errors();
    let failed = after["write"]["count"].as_u64().unwrap();
    assert!(failed > 0, "{after}");
    assert_eq!(after["read"]["count"], 0, "{after}");
    for which in ["first", "last"] {
        let one = &after["write"][which];
        assert!(number(&one["time"]) >= begin.as_secs_f64(), "{one}");
        assert_eq!(
            (&one["device"], &one["errno"]),
            (&"volume".into(), &libc::EIO.into())
        );
        let (block, offset) = (number(&one["block"]), number(&one["offset"]));
        assert_eq!((offset / 4096.0).floor(), block, "{one}");
        assert!(
            offset < f64::from(64 << 20) && number(&one["bytes"]) > 0.0,
            "{one}"
        );
    }
    let human = ok(&["stat", dir]);
    let mut lines = human.lines().skip_while(|line| line.trim() != "errors:");
    let line = lines
        .find(|line| line.trim().starts_with("write "))
        .unwrap();
    for word in [" UTC, block ", ": Input/output error (os error 5)"] {
        assert!(line.contains(word), "{word:?} is not in {line}");
    }
    let samples = parse(&ok(&["stat", "--prometheus", dir]));
    let real = scratch.path().canonicalize().unwrap();
    let write = |name| {
        at(
            &samples,
            name,
            real.to_str().unwrap(),
            Some(("kind", "write")),
        )
    };
    assert!(write("stetfs_device_errors_total") >= failed as f64);
    let first = write("stetfs_device_first_error_timestamp_seconds");
    assert!(first >= begin.as_secs_f64());
    assert!(write("stetfs_device_last_error_timestamp_seconds") >= first);
    drop(file);
    served.fault(&["pass"]);
    drop(_mounted);
    served.end();
}

/// Takes a mount down that its failing device may leave unclean.
struct Unmounting<'a>(&'a str);

impl Drop for Unmounting<'_> {
    fn drop(&mut self) {
        let _ = stetfs(&["umount", self.0]);
        mount::detach(Path::new(self.0));
    }
}

/// A volume that stopped because its device failed can be read, also after a refused remount.
#[test]
fn a_volume_that_stopped_is_read_after_a_refused_remount() {
    let served = Served::new(&["--size", "64M"]);
    let mut mke2fs = Command::new("mke2fs");
    cmd::run(mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(served.disk())).unwrap();
    let mounted = stetfs_mounter().mount(&served.disk()).unwrap();
    let (dir, file) = (mounted.path(), mounted.path().join("file"));
    let mut open = File::create_new(&file).unwrap();
    open.write_all(b"kept").unwrap();
    open.sync_all().unwrap();
    served.fault(&["error-writes"]);
    open.write_all(b" not").unwrap();
    open.sync_all().unwrap_err();
    drop(open);
    served.fault(&["pass"]);
    for options in ["commit=7", "journal=data", "ro", "ro,journal=data"] {
        let options = format!("remount,{options}");
        let dir = dir.to_str().unwrap();
        fails(&["mount", "-o", &options, "none", dir], 1, &["as it was"]);
        let there = std::fs::read(&file).unwrap();
        assert!(there.starts_with(b"kept"), "{options}");
    }
    let _ = mounted.umount();
    served.end();
}

/// A device cannot read a part of one file: the data before it is copied, and an archive has zeroes
/// after it.
#[test]
fn what_a_device_cannot_read_ends_one_file() {
    let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
    let mounted = kernel().mount(image.path()).unwrap();
    let tree = mounted.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["a", "large", "zzz"] {
        let bytes = if name == "large" { 4 << 20 } else { 10 };
        fs::write(tree.join(name), vec![b'x'; bytes]).unwrap();
    }
    mounted.umount().unwrap();
    let block = image.debugfs("bmap /tree/large 600").unwrap();
    let sector = block.trim().parse::<u64>().unwrap() * 8;
    let served = Served::new(&["--model", "nvme-ssd", "--image", text(image.path())]);
    served.fault(&[&format!("error-reads={sector}+8")]);
    let place = format!("{}:/tree", served.disk().display());
    let scratch = Scratch::new("unread").unwrap();
    let out = scratch.path().join("out");
    let archive = scratch.path().join("archive.tar");
    for args in [
        &["cp", "-a", &place, text(&out)][..],
        &["tar", "-c", "-f", text(&archive), &place],
    ] {
        let done = stetfs(args);
        let said = cmd::said(&done);
        assert_eq!(done.status.code(), Some(6), "{said}");
        assert!(
            said.contains("/tree/large") && said.contains("1 error, reported above"),
            "{said}"
        );
    }
    served.fault(&["pass"]);
    served.end();
    let unpacked = scratch.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    cmd::run(tar.arg("-xf").arg(&archive).arg("-C").arg(&unpacked)).unwrap();
    for dir in [&out, &unpacked] {
        for name in ["a", "zzz"] {
            assert_eq!(fs::read(dir.join(name)).unwrap(), [b'x'; 10]);
        }
    }
    let read = fs::read(out.join("large")).unwrap();
    assert!(read.len() <= 600 * 4096 && read.iter().all(|b| *b == b'x'));
    let packed = fs::read(unpacked.join("large")).unwrap();
    assert_eq!(packed.len(), 4 << 20);
    let (before, behind) = packed.split_at(read.len());
    assert!(before.iter().all(|b| *b == b'x') && behind.ends_with(&[0; 4096]));
}
