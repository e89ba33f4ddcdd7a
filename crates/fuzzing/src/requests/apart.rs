//! The directory that no request names; it must never change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use stetfs::low::{Ctx, Fs, MemDevice, ROOT_INO, preset};
use stetfs_crash::tree::{Seen, SeenNode};
use stetfs_crash::volume::{base, options};

/// The name of the directory.
pub(super) const APART: &str = "kept apart from all requests";

/// A volume with blocks of `block` bytes and with some files in that directory.
pub(super) fn volume(block: u32) -> Arc<MemDevice> {
    static MADE: OnceLock<[Arc<MemDevice>; 2]> = OnceLock::new();
    let make = |block| {
        let device = Arc::new(base(block).unwrap().image.fork());
        let fs = Fs::open(device.clone(), options(preset::ORDERED)).unwrap();
        let ctx = Ctx::default();
        let dir = fs
            .mkdir(&ctx, ROOT_INO, APART.as_bytes(), 0o755, 0)
            .unwrap()
            .ino;
        for (name, len) in [("one", 10), ("two", 5000), ("three", 200_000)] {
            let (attr, file) = fs
                .create(&ctx, dir, name.as_bytes(), 0o644, 0, libc::O_RDWR)
                .unwrap();
            fs.write(&ctx, &file, 0, &vec![b'k'; len], false).unwrap();
            drop(file);
            fs.forget(attr.ino, 1);
        }
        fs.forget(dir, 1);
        fs.unmount().unwrap();
        device
    };
    let made = MADE.get_or_init(|| [make(1024), make(4096)]);
    Arc::new(made[usize::from(block != 1024)].fork())
}

/// The directory and its files.
pub(super) fn kept(device: &Arc<MemDevice>) -> Result<BTreeMap<u32, SeenNode>, String> {
    let fs = Fs::open(device.clone(), options(preset::ORDERED)).map_err(|e| e.to_string())?;
    let seen = Seen::capture(&fs)?;
    fs.unmount().map_err(|e| e.to_string())?;
    let root = seen.nodes.get(&ROOT_INO).ok_or("no root")?;
    let dir = *root
        .entries
        .get(APART)
        .ok_or("the directory that no request named is gone")?;
    let below = seen
        .nodes
        .get(&dir)
        .ok_or("it leads nowhere")?
        .entries
        .values();
    let inos = BTreeSet::from_iter(below.copied().chain([dir]));
    Ok(seen
        .nodes
        .into_iter()
        .filter(|(ino, _)| inos.contains(ino))
        .collect())
}
