//! `edit`: the editor's copy, what is written back, and what stays when that fails.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::daemon::{BINARY, ok};
use crate::files::{at, image, text};
use stetfs_testkit::{Image, Scratch, cmd};

struct Site {
    image: Image,
    scratch: Scratch,
}

impl Site {
    /// An image with a file `/f` of another owner.
    fn new() -> Site {
        let (image, scratch) = (image(), Scratch::new("edit").unwrap());
        let file = scratch.path().join("f");
        std::fs::write(&file, "one\ntwo\n").unwrap();
        ok(&["cp", "--owner", "5:6", text(&file), &at(&image, "/f")]);
        ok(&["chmod", "4640", &at(&image, "/f")]);
        ok(&["setfattr", "-n", "user.n", "-v", "v", &at(&image, "/f")]);
        std::fs::create_dir(scratch.path().join("tmp")).unwrap();
        Site { image, scratch }
    }

    fn tmp(&self) -> PathBuf {
        self.scratch.path().join("tmp")
    }

    fn edit(&self, editor: &str, path: &str) -> Output {
        let mut edit = Command::new(BINARY);
        edit.args(["edit", &at(&self.image, path)])
            .env("TMPDIR", self.tmp());
        edit.env_remove("VISUAL").env("EDITOR", editor);
        edit.output().unwrap()
    }

    fn read(&self, path: &str) -> String {
        ok(&["cat", &at(&self.image, path)])
    }

    /// The copies that were left.
    fn left(&self) -> Vec<PathBuf> {
        let dirs = std::fs::read_dir(self.tmp()).unwrap();
        dirs.map(|dir| dir.unwrap().path()).collect()
    }
}

fn script(dir: &Path, text: &str) -> String {
    let path = dir.join("editor.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_changed_copy_is_written_back_and_all_else_stays() {
    let site = Site::new();
    let inode = || ok(&["stat", "-c", "%i %a %u %g %h", &at(&site.image, "/f")]);
    let before = inode();
    let done = site.edit("sed -i s/two/three/", "/f");
    assert!(done.status.success(), "{}", cmd::said(&done));
    assert_eq!(site.read("/f"), "one\nthree\n");
    assert_eq!(inode(), before);
    assert!(ok(&["getfattr", &at(&site.image, "/f")]).contains("user.n"));
    // Shorter, empty and longer than before.
    for content in ["x", "", "much longer than it was\n"] {
        let done = site.edit(
            &format!("sh -c 'printf \"%s\" \"$1\" > \"$2\"' sh '{content}'"),
            "/f",
        );
        assert!(done.status.success(), "{}", cmd::said(&done));
        assert_eq!(site.read("/f"), content);
    }
    // A link leads to the file, and a file that is not there is made.
    ok(&["ln", "-s", "f", &at(&site.image, "/link")]);
    assert!(site.edit("sed -i s/much/not/", "/link").status.success());
    assert!(site.read("/f").starts_with("not longer"));
    assert!(site.edit("cp /etc/hostname", "/new").status.success());
    assert_eq!(
        site.read("/new"),
        std::fs::read_to_string("/etc/hostname").unwrap()
    );
    assert_eq!(
        ok(&["stat", "-c", "%a %u", &at(&site.image, "/new")]),
        "644 0\n"
    );
    assert_eq!(site.left(), [""; 0].map(PathBuf::from));
    site.image.e2fsck_fn().unwrap();
}

/// The image is not even opened for writing.
#[test]
fn what_is_not_changed_is_not_written() {
    let site = Site::new();
    let before = std::fs::read(site.image.path()).unwrap();
    let done = site.edit("true", "/f");
    assert!(done.status.success());
    assert!(cmd::said(&done).contains("not changed"));
    assert!(site.edit("true", "/none").status.success());
    let failed = site.edit("false", "/f");
    assert_eq!(failed.status.code(), Some(1));
    assert!(cmd::said(&failed).contains("the editor false failed"));
    for (path, code) in [("/lost+found", 1), ("/no/file", 3)] {
        assert_eq!(site.edit("touch", path).status.code(), Some(code), "{path}");
    }
    assert!(std::fs::read(site.image.path()).unwrap() == before);
    assert_eq!(site.left(), [""; 0].map(PathBuf::from));
}

#[test]
fn what_cannot_be_written_back_stays_and_is_named() {
    let site = Site::new();
    // The editor fails after it has written.
    let editor = script(site.scratch.path(), "echo mine > \"$1\"; exit 3");
    let kept = |done: &Output, reason: &str| {
        let said = cmd::said(done);
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
        let left = site.left();
        let [dir] = &left[..] else { panic!("{left:?}") };
        assert_eq!(
            std::fs::metadata(dir).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let copy = dir.join("f");
        assert!(said.contains(copy.to_str().unwrap()), "{said}");
        assert_eq!(std::fs::read_to_string(copy).unwrap(), "mine\n");
        std::fs::remove_dir_all(dir).unwrap();
    };
    kept(&site.edit(&editor, "/f"), "failed");
    assert_eq!(site.read("/f"), "one\ntwo\n");
    // Somebody else changes the file meanwhile; the volume is not held by the editor.
    let theirs = format!("echo theirs | {BINARY} cp - {}", at(&site.image, "/f"));
    let editor = script(
        site.scratch.path(),
        &format!("echo mine > \"$1\"; {theirs}"),
    );
    kept(&site.edit(&editor, "/f"), "was changed while it was edited");
    assert_eq!(site.read("/f"), "theirs\n");
    // The file may not be changed.
    let editor = script(site.scratch.path(), "echo mine > \"$1\"");
    site.image
        .debugfs_write("set_inode_field /f flags 0x80010")
        .unwrap();
    kept(&site.edit(&editor, "/f"), "Operation not permitted");
    assert_eq!(site.read("/f"), "theirs\n");
    site.image.e2fsck_fn().unwrap();
}

/// Ctrl-C reaches the editor and the command alike.
#[test]
fn ctrl_c_in_the_editor_leaves_the_command() {
    let site = Site::new();
    let editor = script(
        site.scratch.path(),
        "trap : INT; kill -INT $PPID; echo mine > \"$1\"",
    );
    // The shell between both is replaced by the editor where it may be, so it is not in the way.
    let done = site.edit(&format!("exec {editor}"), "/f");
    assert!(done.status.success(), "{}", cmd::said(&done));
    assert_eq!(site.read("/f"), "mine\n");
    assert_eq!(site.left(), [""; 0].map(PathBuf::from));
}

/// There is no room for what was written, and what was there stays.
#[test]
fn a_full_volume_keeps_the_old_content() {
    let site = Site::new();
    let editor = script(
        site.scratch.path(),
        "head -c 260000000 /dev/zero | tr '\\0' x >> \"$1\"",
    );
    let done = site.edit(&editor, "/f");
    assert_eq!(done.status.code(), Some(6), "{}", cmd::said(&done));
    assert_eq!(site.read("/f"), "one\ntwo\n");
    assert_eq!(site.left().len(), 1);
    let done = site.edit(&editor, "/new");
    assert_eq!(done.status.code(), Some(6), "{}", cmd::said(&done));
    let listed = ok(&["ls", &at(&site.image, "/")]);
    assert_eq!(listed, "f\nlost+found\n");
    site.image.e2fsck_fn().unwrap();
}
