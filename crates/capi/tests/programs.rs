//! Tests of the C API: a C program, and Python with an installed wheel, checked with e2fsck.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stetfs_testkit::{Image, Mkfs};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// The directory where cargo puts the libraries: that of this program.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().into()
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    let told = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{command:?}: {told}{said}");
    out
}

/// Compiles a C program, and returns its path.
fn compile(dir: &Path, source: &str, library: &[&str]) -> PathBuf {
    let (include, program) = (root().join("crates/capi/include"), dir.join("program"));
    let source = root().join("crates/capi").join(source);
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-D_GNU_SOURCE",
        "-I",
    ])
    .arg(include)
    .arg("-o")
    .arg(&program)
    .arg(source);
    run(cc.args(library));
    program
}

/// The directory with the shared library under its soname.
fn shared(dir: &Path) -> String {
    let shared = dir.join("libstetfs.so.0");
    fs::copy(libraries().join("libstetfs_c.so"), &shared).unwrap();
    shared.to_str().unwrap().into()
}

fn image() -> Image {
    Image::make(32 << 20, &Mkfs::blocks(4096).journal_mib(8)).unwrap()
}

#[test]
fn a_c_program_uses_volumes_and_e2fsck_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "tests/capi.c", &[&shared(dir.path())]);
    let image = image();
    run(Command::new(program)
        .arg(image.path())
        .env("LD_LIBRARY_PATH", dir.path()));
    image.e2fsck_fn().unwrap();
    let said = image.debugfs("cat /var/log/messages").unwrap();
    assert_eq!(said, "hello!");
}

/// An image with two accounts, for the examples to change.
fn accounts() -> Image {
    let image = image();
    let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new()).unwrap();
    volume.write("/from", "100").unwrap();
    volume.write("/to", "0").unwrap();
    volume.close().unwrap();
    image
}

#[track_caller]
fn is_transferred(image: &Image) {
    image.e2fsck_fn().unwrap();
    let held = ["/from", "/to"].map(|path| image.debugfs(&format!("cat {path}")).unwrap());
    assert_eq!(held, [" 90", "10"]);
}

#[test]
fn the_example_in_c_changes_two_files_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "examples/transfer.c", &[&shared(dir.path())]);
    let image = accounts();
    run(Command::new(program)
        .arg(image.path())
        .env("LD_LIBRARY_PATH", dir.path()));
    is_transferred(&image);
}

/// The static archive has all journal parts, although nothing refers to them.
#[test]
fn a_c_program_has_the_library_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let archive = libraries().join("libstetfs_c.a");
    let archive = archive.to_str().unwrap();
    let with = [
        "-Wl,--whole-archive",
        archive,
        "-Wl,--no-whole-archive",
        "-lm",
    ];
    let program = compile(dir.path(), "tests/capi.c", &with);
    let image = image();
    run(Command::new(program).arg(image.path()));
    image.e2fsck_fn().unwrap();
}

/// The names in a text of the form `stetfs_…(`.
fn functions(text: &str) -> BTreeSet<String> {
    let word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let named = text.match_indices("stetfs_").map(|(at, _)| {
        let name: String = text[at..].chars().take_while(word).collect();
        (text[at + name.len()..].starts_with('('), name)
    });
    named
        .filter(|(called, _)| *called)
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn the_header_declares_what_there_is() {
    let header = fs::read_to_string(root().join("crates/capi/include/stetfs.h")).unwrap();
    let comments = header
        .find("/*")
        .map_or(0, |_| header.matches("stetfs_last_error()").count());
    assert!(comments > 0, "the header is the one that is meant");
    let mut made = BTreeSet::new();
    for file in fs::read_dir(root().join("crates/capi/src")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let parts = text.split("pub extern \"C\" fn ").skip(1);
        made.extend(parts.filter_map(|part| part.split('(').next().map(str::to_owned)));
    }
    assert!(made.len() > 25, "{made:?}");
    assert_eq!(functions(&header), made);
}

/// pip builds the module from its folder, without downloading packages.
#[test]
fn pip_installs_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let venv = dir.path().join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let before = fs::read_dir(root().join("python")).unwrap().count();
    let library = libraries().join("libstetfs_c.so");
    run(Command::new(venv.join("bin/python"))
        .args(["-m", "pip", "install", "-q", "--no-index"])
        .args(["--disable-pip-version-check", "--no-cache-dir"])
        .arg(root().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("STETFS_LIBRARY", library));
    let after = fs::read_dir(root().join("python")).unwrap().count();
    assert_eq!(before, after, "something is left in the folder");
    let image = image();
    run(Command::new(venv.join("bin/python"))
        .arg(root().join("python/tests/test_stetfs.py"))
        .current_dir(dir.path())
        .env("STETFS_IMAGE", image.path()));
    image.e2fsck_fn().unwrap();
    let version = "import importlib.metadata as m; print(m.version('stetfs'))";
    let said = run(Command::new(venv.join("bin/python")).args(["-c", version]));
    let said = String::from_utf8_lossy(&said.stdout);
    assert_eq!(said.trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn python_installs_the_wheel_and_uses_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    run(Command::new("python3")
        .arg(root().join("python/build_wheel.py"))
        .arg("--library")
        .arg(libraries().join("libstetfs_c.so"))
        .arg("--out")
        .arg(path("wheels")));
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(path("venv")));
    let wheel = fs::read_dir(path("wheels")).unwrap().next().unwrap();
    let pip = [
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--disable-pip-version-check",
    ];
    run(Command::new(path("venv/bin/python"))
        .args(pip)
        .arg(wheel.unwrap().path()));
    let image = image();
    run(Command::new(path("venv/bin/python"))
        .arg(root().join("python/tests/test_stetfs.py"))
        .current_dir(dir.path())
        .env("STETFS_IMAGE", image.path()));
    image.e2fsck_fn().unwrap();
    let said = image.debugfs("cat /from/python").unwrap();
    assert_eq!(said, "line 1\nline 2\n");
    let image = accounts();
    run(Command::new(path("venv/bin/python"))
        .arg(root().join("python/examples/transfer.py"))
        .arg(image.path()));
    is_transferred(&image);
}
