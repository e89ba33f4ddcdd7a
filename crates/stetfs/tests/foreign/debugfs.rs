//! Journals written by e2fsprogs' debugfs.

use std::fs;
use std::process::Command;

use fastrand::Rng;
use stetfs_testkit::{Image, Mkfs, cmd};

use super::judge::Dirty;

/// Checksum versions, as `journal_open` accepts them.
pub const VERSIONS: [u8; 4] = [0, 1, 2, 3];

/// A kind of journal that debugfs writes.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    pub block: u32,
    pub version: u8,
    pub wide: bool,
}

impl Maker {
    pub fn all() -> Vec<Maker> {
        let mut all = Vec::new();
        for version in VERSIONS {
            for wide in [true, false] {
                all.extend([1024, 4096].map(|block| Maker {
                    block,
                    version,
                    wide,
                }));
            }
        }
        all
    }

    pub fn random(rng: &mut Rng) -> Maker {
        Maker {
            block: 1024 << rng.u8(0..3),
            version: rng.u8(0..4),
            wide: rng.bool(),
        }
    }

    /// Number of images in a descriptor whose tags fill the block.
    pub fn full(self) -> usize {
        let tag = match (self.version, self.wide) {
            (3, _) => 16,
            (2, true) => 14,
            (2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        };
        let tail = if self.version >= 2 { 4 } else { 0 };
        (self.block as usize - 12 - 16 - tail) / tag
    }

    /// Transactions over the blocks of a file: `counts` images each, with random places and
    /// contents, and revokes of blocks that earlier ones wrote. The last one may lack its commit
    /// block.
    pub fn make(self, counts: &[usize], revokes: bool, seed: u64) -> Dirty {
        let mut rng = Rng::with_seed(seed);
        let what = format!("debugfs {self:?}, {counts:?}, revokes {revokes}, seed {seed}");
        let bits = if self.wide { "64bit" } else { "^64bit" };
        let sums = if self.version >= 2 {
            "metadata_csum"
        } else {
            "^metadata_csum"
        };
        let mkfs = Mkfs::blocks(self.block).feature(bits).feature(sums);
        let image = Image::make(24 << 20, &mkfs.journal_mib((self.block >> 10).max(1))).unwrap();
        let most = counts.iter().copied().max().unwrap_or(1).max(400);
        let content = image.dir().join("content");
        fs::write(&content, vec![7; most * self.block as usize]).unwrap();
        let write = format!("write {} target", content.display());
        image.debugfs_write(&write).unwrap();
        let listed = image.debugfs("blocks /target").unwrap();
        let mut blocks: Vec<u64> = listed
            .split_whitespace()
            .map(|nr| nr.parse().unwrap())
            .collect();
        // The file has one extent or two; a block of its map must not be overwritten with noise.
        assert!(blocks.len() >= most, "{what}");
        let mut script = match self.version {
            0 => "journal_open\n".to_owned(),
            version => format!("journal_open -c -v {version}\n"),
        };
        for (i, count) in counts.iter().enumerate() {
            rng.shuffle(&mut blocks);
            let images = image.dir().join(format!("images{i}"));
            fs::write(&images, self.images(*count, &mut rng)).unwrap();
            let list: Vec<String> = blocks.iter().take(*count).map(u64::to_string).collect();
            // debugfs includes revoke blocks in its checksums; no other implementation does.
            if revokes && self.version != 1 && i > 0 {
                let gone: Vec<String> = blocks
                    .iter()
                    .skip(*count)
                    .take(30)
                    .map(u64::to_string)
                    .collect();
                if !gone.is_empty() {
                    script += &format!("journal_write -r {}\n", gone.join(","));
                }
            }
            script += &format!("journal_write -b {} {}\n", list.join(","), images.display());
        }
        script += "journal_close\n";
        let commands = image.dir().join("commands");
        fs::write(&commands, script).unwrap();
        let mut debugfs = Command::new("debugfs");
        debugfs.arg("-w").arg("-f").arg(&commands);
        cmd::run(debugfs.arg(image.path())).unwrap_or_else(|e| panic!("{what}: {e:#}"));
        Dirty::of(what, image.path())
    }

    /// Noise, some of which looks like blocks of the journal.
    fn images(self, count: usize, rng: &mut Rng) -> Vec<u8> {
        let size = self.block as usize;
        let mut bytes = vec![0; count * size];
        for image in bytes.chunks_mut(size) {
            rng.fill(image);
            if rng.u8(0..4) == 0 {
                image[..12].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2, 0, 0, 0, 2]);
            }
        }
        bytes
    }
}
