//! SECURITY.md names the test of each promise: the tests are there.

use std::path::{Path, PathBuf};

/// The source files below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn tests_that_are_promised_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    let code: String = files
        .iter()
        .map(|f| std::fs::read_to_string(f).unwrap())
        .collect();
    let text = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let (mut named, mut missing) = (0, Vec::new());
    for word in text.split('`').skip(1).step_by(2) {
        let is_test = word.matches('_').count() > 2
            && word
                .chars()
                .all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit());
        let is_there = match word {
            _ if word.ends_with(".rs") => files.iter().any(|file| file.ends_with(word)),
            _ if is_test => {
                named += 1;
                code.contains(&format!("fn {word}("))
            }
            _ => continue,
        };
        if !is_there {
            missing.push(word);
        }
    }
    assert!(
        missing.is_empty(),
        "SECURITY.md names what is not there: {missing:?}"
    );
    assert!(named > 30, "{named}");
}
