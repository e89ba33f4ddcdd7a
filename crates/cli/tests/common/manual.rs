//! Checks of manual pages, as man(1) shows them.

use std::path::Path;
use std::process::Command;

use stetfs_testkit::cmd;

/// A page, which man(1) formats at 80 columns without warnings.
#[track_caller]
fn formatted(path: &Path) -> String {
    let mut man = Command::new("man");
    man.args(["--warnings", "-l"])
        .arg(path)
        .env("MANWIDTH", "80");
    let out = cmd::output(&mut man).unwrap();
    let said = cmd::said(&out);
    let is_fine = out.status.success() && out.stderr.is_empty();
    assert!(is_fine, "{}: {said}", path.display());
    String::from_utf8_lossy(&out.stdout).replace('\u{2010}', "-")
}

/// Checks that the directory's `stetfs.1` names each page, and that no line is too long.
#[track_caller]
pub(crate) fn all_are_listed(dir: &Path) {
    let main = formatted(&dir.join("stetfs.1"));
    for found in dir.read_dir().unwrap() {
        let name = found.unwrap().file_name().into_string().unwrap();
        let text = formatted(&dir.join(&name));
        assert!(!name.contains("help"), "{name}");
        let name = name.replace(".1", "(1)");
        assert!(name == "stetfs(1)" || main.contains(&name), "{name}");
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{name}");
    }
}

/// Checks that a page has all these words.
#[track_caller]
pub(crate) fn has(path: &Path, words: &[&str]) {
    let text = formatted(path);
    for word in words {
        let name = path.display();
        assert!(text.contains(word), "{word:?} is not in {name}:\n{text}");
    }
}
