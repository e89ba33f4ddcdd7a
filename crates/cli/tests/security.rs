//! Test that the tests named in SECURITY.md, one for each promise, exist.

use std::path::Path;

use crate::sources::{root, sources};

#[test]
fn tests_that_are_promised_are_there() {
    let files = sources(&["crates"], ".rs");
    let code: String = files.iter().map(|file| file.lines.join("\n")).collect();
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (mut named, mut missing) = (0, Vec::new());
    for word in text.split('`').skip(1).step_by(2) {
        let is_test = word.matches('_').count() > 2
            && word
                .chars()
                .all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit());
        let is_there = match word {
            _ if word.ends_with(".rs") => files
                .iter()
                .any(|file| Path::new(&file.path).ends_with(word)),
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
