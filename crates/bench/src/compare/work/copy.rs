//! Copying a tree of incompressible files, such as photographs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::measured::{Measured, Meter, Outcome};
use super::shared::Shared;
use crate::compare::Better;
use crate::compare::Target;

/// Directories of the tree, with the number of files in each and their fifths of the bytes.
const PARTS: [(&str, u64, u64); 2] = [("large", 4, 4), ("small", 64, 1)];
/// Bytes per read and write, as in cp.
const CALL: usize = 128 << 10;

/// Makes a tree of about `bytes` random bytes.
pub(super) fn make_tree(dir: &Path, bytes: u64) -> Result<PathBuf> {
    let tree = dir.join("tree");
    let mut rng = fastrand::Rng::with_seed(23);
    let mut piece = vec![0; CALL];
    for (name, files, fifths) in PARTS {
        let part = tree.join(name);
        fs::create_dir_all(&part)?;
        let each = bytes / 5 * fifths / files;
        for i in 0..files {
            let mut file = File::create(part.join(format!("{i}")))?;
            let mut left = each;
            while left > 0 {
                let now = left.min(CALL as u64);
                let piece = &mut piece[..usize::try_from(now)?];
                rng.fill(piece);
                file.write_all(piece)?;
                left -= now;
            }
        }
    }
    Ok(tree)
}

/// Copies the content of `from` into the new directory `to`; returns the number of bytes.
fn copy_tree(from: &Path, to: &Path, buffer: &mut [u8]) -> Result<u64> {
    fs::create_dir(to)?;
    let mut bytes = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            bytes += copy_tree(&entry.path(), &to, buffer)?;
            continue;
        }
        let (mut from, mut to) = (File::open(entry.path())?, File::create_new(to)?);
        loop {
            let n = from.read(buffer)?;
            let Some(data) = buffer.get(..n).filter(|d| !d.is_empty()) else {
                break;
            };
            to.write_all(data)?;
            bytes += n as u64;
        }
    }
    Ok(bytes)
}

/// Reads all files of a tree; returns the number of bytes.
fn read_tree(tree: &Path, buffer: &mut [u8]) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(tree)? {
        let path = entry?.path();
        if path.is_dir() {
            bytes += read_tree(&path, buffer)?;
            continue;
        }
        let mut file = File::open(path)?;
        loop {
            match file.read(buffer)? {
                0 => break,
                n => bytes += n as u64,
            }
        }
    }
    Ok(bytes)
}

/// Copies one file after the other, then calls `syncfs`; an operation is a mebibyte.
pub(super) fn copy(target: &Target, dir: &Path, shared: &Shared) -> Result<Outcome> {
    let tree = shared.tree()?;
    let mut buffer = vec![0; CALL];
    // The tree is cached, so that no target waits for the disk with the tree.
    let expected = read_tree(tree, &mut buffer)?;
    let meter = Meter::start(target)?;
    let copied = dir.join("copy");
    let bytes = copy_tree(tree, &copied, &mut buffer)?;
    target.settle()?;
    let value = bytes as f64 / 1e6 / meter.seconds();
    let below = meter.below(bytes as f64 / f64::from(1 << 20))?;
    let found = read_tree(&copied, &mut buffer)?;
    ensure!(
        bytes == expected && found == expected,
        "{bytes} bytes were copied of {expected}, and {found} are there"
    );
    Ok(vec![Measured {
        title: "copy, incompressible".to_owned(),
        unit: "MB/s".into(),
        better: Better::Higher,
        value,
        below,
    }])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_and_its_copy() {
        let dir = tempfile::tempdir().unwrap();
        let tree = make_tree(dir.path(), 5 << 20).unwrap();
        let (mut buffer, copied) = (vec![0; CALL], dir.path().join("copy"));
        let bytes = copy_tree(&tree, &copied, &mut buffer).unwrap();
        assert_eq!(bytes, 5 << 20);
        assert_eq!(read_tree(&copied, &mut buffer).unwrap(), bytes);
        assert_eq!(fs::read_dir(copied.join("small")).unwrap().count(), 64);
        let read = |name: &str| {
            (
                fs::read(tree.join(name)).unwrap(),
                fs::read(copied.join(name)).unwrap(),
            )
        };
        for name in ["large/0", "large/3", "small/63"] {
            let (from, to) = read(name);
            assert_eq!(from, to, "{name}");
        }
        // Every byte value occurs about as often as any other.
        let (large, _) = read("large/1");
        let zeroes = large.iter().filter(|&&b| b == 0).count() * 256 / large.len();
        assert!((0..=1).contains(&zeroes), "{zeroes}");
    }
}
