//! Costly volumes: a few MiB that claim to hold far more, by sparse files, well-packed logs, and
//! structures that refer to each other or to themselves again and again.

mod attributes;
mod directories;
mod fast;
mod layout;
mod logs;
mod made;
mod orphans;
mod raw;
mod records;
mod trees;

use std::fs;
use std::path::Path;

pub use made::Make;

/// All of them, by kind: the name of the kind, and its volumes.
pub const ALL: [(&str, &[(&str, Make)]); 8] = [
    ("logs", &logs::ALL),
    ("fast commits", &fast::ALL),
    ("records", &records::ALL),
    ("orphans", &orphans::ALL),
    ("trees", &trees::ALL),
    ("directories", &directories::ALL),
    ("attributes", &attributes::ALL),
    ("layouts", &layout::ALL),
];

/// Bytes that a file takes on the host.
pub fn taken(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}
