//! The repository's own files, for the tests that read them.

use std::path::{Path, PathBuf};

/// A file of text.
pub(crate) struct Source {
    /// The path from the root of the repository.
    pub(crate) path: String,
    pub(crate) lines: Vec<String>,
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap()
}

/// All files below these places with this ending, by path.
pub(crate) fn sources(places: &[&str], end: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = places.iter().map(|place| root().join(place)).collect();
    while let Some(path) = todo.pop() {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if name.ends_with("__pycache__") {
            continue;
        }
        if path.is_dir() {
            let entries = path.read_dir().unwrap();
            todo.extend(entries.map(|entry| entry.unwrap().path()));
        } else if name.ends_with(end) {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push(Source {
                path: name.into(),
                lines: text.lines().map(String::from).collect(),
            });
        }
    }
    assert!(!found.is_empty(), "{places:?}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
