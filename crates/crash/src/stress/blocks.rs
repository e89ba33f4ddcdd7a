//! The files that are overwritten in place; the content of each block names block and version.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use serde::Serialize;
use stetfs::low::{BlockDevice, Ctx, Fs, FsError, MemDevice, OpenRef, ROOT_INO};
use stetfs_block::SECTOR;

use crate::tree::Seen;
use crate::volume::{Base, Plan, make};
use crate::workload::script::Progress;

/// A block, numbered: its file's number times [`PER_FILE`] plus its position in the file.
pub(super) type Slot = usize;

/// Blocks of a file.
pub const PER_FILE: usize = 2;
const DIR: &str = "blocks";
/// Space for the files of the changing threads and for metadata.
const ROOM_MIB: u64 = 24;

/// A clean volume with all files at version 0.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    /// The volume.
    pub(super) base: Base,
    /// Offset of each block on the device in bytes.
    homes: Arc<Vec<u64>>,
}

fn name(file: usize) -> String {
    format!("f{file:05}")
}

/// Opens a file.
///
/// # Errors
/// The volume's.
pub(super) fn open(fs: &Arc<Fs>, file: usize, flags: i32) -> Result<OpenRef, FsError> {
    let dir = fs.lookup(ROOT_INO, DIR.as_bytes())?.ino;
    fs.forget(dir, 1);
    let ino = fs.lookup(dir, name(file).as_bytes())?.ino;
    fs.forget(ino, 1);
    fs.open_inode(&Ctx::default(), ino, flags)
}

/// The content of a block: its slot and the version, repeated.
pub(super) fn content(slot: Slot, version: u32, block: u32) -> Vec<u8> {
    let mut unit = (slot as u64).to_le_bytes().to_vec();
    unit.extend(u64::from(version).to_le_bytes());
    unit.repeat(block as usize / unit.len())
}

/// The version in some sectors of a block; `None` if they hold anything else.
fn version(slot: Slot, bytes: &[u8]) -> Option<u32> {
    let told = bytes.get(8..16)?.try_into().ok()?;
    let version = u32::try_from(u64::from_le_bytes(told)).ok()?;
    (content(slot, version, bytes.len() as u32) == bytes).then_some(version)
}

/// A block with wrong content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostBlock {
    /// The file, and the block in it.
    pub place: String,
    /// The version that was acknowledged last.
    pub acked: usize,
    /// The version that was begun last.
    pub begun: usize,
    /// The content after recovery: a version, or a description.
    pub found: String,
    /// The content at its home location before recovery.
    pub home: String,
}

impl fmt::Display for LostBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: version {} was acknowledged and {} begun, found {} (its home held {} before recovery)",
            self.place, self.acked, self.begun, self.found, self.home
        )
    }
}

impl Stage {
    /// The volume of this shape; made once for each shape.
    ///
    /// # Errors
    /// mke2fs fails, or the volume that it made cannot be opened.
    pub(super) fn of(block: u32, journal_mib: u64, files: usize) -> Result<Stage> {
        static MADE: Mutex<BTreeMap<(u32, u64, usize), Stage>> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock();
        if let Some(stage) = made.get(&(block, journal_mib, files)) {
            return Ok(stage.clone());
        }
        let bytes = (files * PER_FILE) as u64 * u64::from(block);
        let plan = Plan {
            block,
            journal_mib,
            rest_mib: ROOM_MIB + bytes.div_ceil(1 << 20),
            inodes: files as u32 + 1024,
        };
        let mut homes = Vec::new();
        let base = make(plan, &mut |fs| {
            homes = fill(fs, block, files)?;
            Ok(())
        })?;
        let stage = Stage {
            base,
            homes: Arc::new(homes),
        };
        made.insert((block, journal_mib, files), stage.clone());
        Ok(stage)
    }

    /// Compares all blocks with the notes about them; `whole` blocks must be of one version.
    pub(super) fn judge(
        &self,
        seen: &Seen,
        crashed: &MemDevice,
        notes: &[Progress],
        whole: bool,
    ) -> Vec<LostBlock> {
        let block = self.base.block as usize;
        let mut lost = Vec::new();
        for (slot, noted) in notes.iter().enumerate() {
            let (file, at) = (slot / PER_FILE, slot % PER_FILE * block);
            let path = format!("{DIR}/{}", name(file));
            let node = seen.find(&path).and_then(|ino| seen.nodes.get(&ino));
            let bytes = node.and_then(|n| n.content.get(at..at + block));
            let unit = if whole { block } else { SECTOR as usize };
            let fits = |bytes: &[u8]| {
                bytes.chunks(unit).all(|sector| {
                    version(slot, sector)
                        .is_some_and(|v| (noted.acked..=noted.begun).contains(&(v as usize)))
                })
            };
            if !bytes.is_some_and(fits) {
                let mut home = vec![0; block];
                let at_home = self.homes.get(slot).map(|at| crashed.read(*at, &mut home));
                lost.push(LostBlock {
                    place: format!("{path}, block {}", slot % PER_FILE),
                    acked: noted.acked,
                    begun: noted.begun,
                    found: bytes.map_or("nothing".into(), |b| shown(slot, b)),
                    home: match at_home {
                        Some(Ok(())) => shown(slot, &home),
                        _ => "unknown".into(),
                    },
                });
            }
        }
        lost
    }
}

/// The versions in a block.
fn shown(slot: Slot, bytes: &[u8]) -> String {
    let mut versions: Vec<String> = bytes
        .chunks(SECTOR as usize)
        .map(|s| version(slot, s).map_or("none of its".into(), |v| v.to_string()))
        .collect();
    versions.dedup();
    versions.join(", ")
}

fn fill(fs: &Arc<Fs>, block: u32, files: usize) -> Result<Vec<u64>> {
    let ctx = Ctx::default();
    let dir = fs.mkdir(&ctx, ROOT_INO, DIR.as_bytes(), 0o755, 0)?.ino;
    let mut homes = Vec::new();
    for file in 0..files {
        let (attr, open) = fs.create(&ctx, dir, name(file).as_bytes(), 0o644, 0, libc::O_RDWR)?;
        for i in 0..PER_FILE {
            let at = i as u64 * u64::from(block);
            let bytes = content(file * PER_FILE + i, 0, block);
            fs.write(&ctx, &open, at, &bytes, false)?;
        }
        for i in 0..PER_FILE as u64 {
            homes.push(fs.bmap(attr.ino, i, block)? * u64::from(block));
        }
        drop(open);
        fs.forget(attr.ino, 1);
    }
    fs.forget(dir, 1);
    Ok(homes)
}
