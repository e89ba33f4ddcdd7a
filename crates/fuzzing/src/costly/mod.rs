//! Volumes of a few MiB that claim to hold far more: sparse files, logs that are well packed, and
//! structures that name each other, or themselves, again and again.

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

/// All of them, by what they claim: name of the kind, and volumes of it.
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

/// Bytes that the file takes.
pub fn taken(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}
