//! The damaged structures: a directory for each, with that structure in it and undamaged files
//! around it; and the location of the structure on the image.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use stetfs_testkit::{Image, cmd};

/// Bytes in a block of the images.
pub(crate) const BLOCK: u64 = 1024;
/// Number of names in a directory with an index of two levels, each of [`NAME`] bytes.
const MANY: usize = 1000;
/// Number of names in a directory with an index of one level.
const SOME: usize = 60;
const NAME: usize = 100;

/// A structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    FileInode,
    DirInode,
    ShortLink,
    LongLink,
    /// The block with a long link's target: data, which no checksum covers.
    LinkTarget,
    /// Content in the inode, where the volume has `inline_data`.
    SmallFile,
    TinyDir,
    SmallDir,
    /// A block in the middle of a directory, without an index where the volume has no `dir_index`.
    DirBlock,
    IndexRoot,
    IndexLeaf,
    DeepRoot,
    DeepNode,
    DeepLeaf,
    ExtentLeaf,
    /// The upper and the lower of two levels of extent blocks.
    DeepExtentNode,
    DeepExtentLeaf,
    /// An indirect block of a block-mapped file: no checksum covers it.
    Indirect,
    AttrBlock,
    AclBlock,
    ValueInode,
    Value,
}

pub(crate) const KINDS: [Kind; 22] = [
    Kind::FileInode,
    Kind::DirInode,
    Kind::ShortLink,
    Kind::LongLink,
    Kind::LinkTarget,
    Kind::SmallFile,
    Kind::TinyDir,
    Kind::SmallDir,
    Kind::DirBlock,
    Kind::IndexRoot,
    Kind::IndexLeaf,
    Kind::DeepRoot,
    Kind::DeepNode,
    Kind::DeepLeaf,
    Kind::ExtentLeaf,
    Kind::DeepExtentNode,
    Kind::DeepExtentLeaf,
    Kind::Indirect,
    Kind::AttrBlock,
    Kind::AclBlock,
    Kind::ValueInode,
    Kind::Value,
];

impl Kind {
    /// Whether it is part of a directory's index.
    pub(crate) fn is_indexed(self) -> bool {
        use Kind::{DeepLeaf, DeepNode, DeepRoot, IndexLeaf, IndexRoot};
        matches!(self, IndexRoot | IndexLeaf | DeepRoot | DeepNode | DeepLeaf)
    }
}

/// The kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// One bit is flipped.
    Flip,
    Zero,
    /// All bytes become random.
    Garble,
}

pub(crate) const HOWS: [How; 3] = [How::Flip, How::Zero, How::Garble];

/// A range of bytes on the image, and the byte in it of which a bit is flipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) flip: u64,
}

/// One structure of each kind, damaged in one way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) how: How,
}

impl Case {
    /// The directory's name.
    pub(crate) fn dir(self) -> String {
        format!("{:?}-{:?}", self.kind, self.how)
    }

    /// Whether a checksum covers the structure, on a volume with or without `metadata_csum`. Values
    /// of attributes in inodes of their own have one of their own.
    pub(crate) fn covered(self, csum: bool) -> bool {
        match self.kind {
            Kind::Value => true,
            Kind::LinkTarget | Kind::Indirect => false,
            _ => csum,
        }
    }

    /// Makes the directory below `root`.
    pub(crate) fn plant(self, root: &Path) {
        let dir = root.join(self.dir());
        fs::create_dir(&dir).unwrap();
        for (name, len) in [("a-good-one", 3000), ("gone", 500), ("z-good-one", 9000)] {
            fs::write(dir.join(name), content(&self.dir(), len)).unwrap();
        }
        let victim = dir.join("victim");
        let file = |blocks: u64| {
            let file = File::create(&victim).unwrap();
            for i in 0..blocks {
                let block = content(&self.dir(), BLOCK as usize);
                file.write_all_at(&block, i * 2 * BLOCK).unwrap();
            }
        };
        match self.kind {
            Kind::FileInode => file(3),
            Kind::DirInode | Kind::SmallDir => names(&victim, &dir, 8, NAME),
            Kind::SmallFile => fs::write(&victim, content(&self.dir(), 100)).unwrap(),
            Kind::TinyDir => names(&victim, &dir, 3, 8),
            Kind::ShortLink => symlink("a-good-one", &victim).unwrap(),
            Kind::LongLink | Kind::LinkTarget => symlink("long/".repeat(40), &victim).unwrap(),
            Kind::DirBlock | Kind::IndexRoot | Kind::IndexLeaf => names(&victim, &dir, SOME, NAME),
            Kind::DeepRoot | Kind::DeepNode | Kind::DeepLeaf => names(&victim, &dir, MANY, NAME),
            Kind::ExtentLeaf => file(20),
            Kind::DeepExtentNode | Kind::DeepExtentLeaf => file(400),
            Kind::Indirect => {
                File::create(&victim).unwrap();
                cmd::run(Command::new("chattr").arg("-e").arg(&victim)).unwrap();
                file(30);
            }
            Kind::AttrBlock => attribute(&victim, &content(&self.dir(), 400)),
            Kind::ValueInode | Kind::Value => attribute(&victim, &content(&self.dir(), 5000)),
            Kind::AclBlock => {
                File::create(&victim).unwrap();
                let id = 2000
                    + KINDS.iter().position(|k| *k == self.kind).unwrap() * 10
                    + HOWS.iter().position(|h| *h == self.how).unwrap();
                let list: Vec<_> = (0..30).map(|i| format!("u:{}:r", id + i * 1000)).collect();
                let list = list.join(",");
                cmd::run(Command::new("setfacl").args(["-m", &list]).arg(&victim)).unwrap();
            }
        }
    }

    /// The location of the structure.
    pub(crate) fn find(self, raw: &Raw<'_>) -> Region {
        let victim = format!("{}/victim", self.dir());
        let slot = raw.slot(&victim);
        let block = |nr: u64, flip| Region {
            at: nr * BLOCK,
            len: BLOCK,
            flip: nr * BLOCK + flip,
        };
        let inode = |at| Region {
            at,
            len: 256,
            flip: at + 5,
        };
        // The second entry of an index block: the block of the directory that it points to.
        let below = |nr: u64, entry| raw.bmap(&victim, u64::from(raw.u32(nr * BLOCK + entry)));
        let dir = || raw.bmap(&victim, 0);
        let (root_entry, node_entry) = (44, 20);
        // The first entry of an extent node: the block that it points to.
        let extents = |at: u64| {
            assert_eq!(raw.u16(at), 0xf30a, "{victim} has extents");
            u64::from(raw.u32(at + 16))
        };
        let depth = || raw.u16(slot + 40 + 6);
        match self.kind {
            Kind::FileInode | Kind::DirInode | Kind::ShortLink | Kind::LongLink => inode(slot),
            Kind::SmallFile | Kind::TinyDir => Region {
                flip: slot + 50,
                ..inode(slot)
            },
            Kind::DirBlock => block(raw.bmap(&victim, 3), 34),
            Kind::LinkTarget => block(raw.bmap(&victim, 0), 10),
            Kind::SmallDir => block(dir(), 34),
            Kind::IndexRoot | Kind::DeepRoot => block(dir(), root_entry),
            Kind::IndexLeaf => block(below(dir(), root_entry), 34),
            Kind::DeepNode => {
                assert_eq!(raw.u8(dir() * BLOCK + 30), 1, "levels of {victim}");
                block(below(dir(), root_entry), node_entry)
            }
            Kind::DeepLeaf => block(below(below(dir(), root_entry), node_entry), 34),
            Kind::ExtentLeaf => {
                assert_eq!(depth(), 1, "{victim}");
                block(extents(slot + 40), 20)
            }
            Kind::DeepExtentNode => {
                assert_eq!(depth(), 2, "{victim}");
                block(extents(slot + 40), 16)
            }
            Kind::DeepExtentLeaf => block(extents(extents(slot + 40) * BLOCK), 20),
            Kind::Indirect => block(u64::from(raw.u32(slot + 40 + 12 * 4)), 1),
            Kind::AttrBlock | Kind::AclBlock => block(raw.attributes(slot), 60),
            Kind::ValueInode => inode(raw.slot(&format!("<{}>", raw.value(slot)))),
            Kind::Value => block(raw.bmap(&format!("<{}>", raw.value(slot)), 0), 100),
        }
    }
}

/// Content that is unique to its key.
pub(crate) fn content(key: &str, len: usize) -> Vec<u8> {
    let seed = key
        .bytes()
        .fold(len as u64, |n, b| n.wrapping_mul(131) + u64::from(b));
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.alphanumeric() as u8).collect()
}

/// Makes a directory with `count` names of one file, each of `len` bytes.
fn names(dir: &Path, good: &Path, count: usize, len: usize) {
    fs::create_dir(dir).unwrap();
    for i in 0..count {
        let name = format!("{i:04}{}", "n".repeat(len - 4));
        fs::hard_link(good.join("a-good-one"), dir.join(name)).unwrap();
    }
}

fn attribute(path: &Path, value: &[u8]) {
    let file = File::create(path).unwrap();
    rustix::fs::fsetxattr(&file, "user.v", value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// An image's bytes, with debugfs to locate structures.
pub(crate) struct Raw<'a> {
    image: &'a Image,
    file: File,
}

impl Raw<'_> {
    pub(crate) fn new(image: &Image) -> Raw<'_> {
        let file = File::options().read(true).write(true).open(image.path());
        Raw {
            image,
            file: file.unwrap(),
        }
    }

    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn u8(&self, at: u64) -> u8 {
        u8::from_le_bytes(self.bytes(at))
    }

    pub(crate) fn u16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    pub(crate) fn u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    /// Byte of the image at which an inode begins.
    pub(crate) fn slot(&self, path: &str) -> u64 {
        let said = self.image.debugfs(&format!("imap {path}")).unwrap();
        let place = said.split("located at block ").nth(1);
        let (block, offset) = place
            .and_then(|p| p.trim().split_once(", offset 0x"))
            .unwrap_or_else(|| panic!("{path}: {said}"));
        let offset = u64::from_str_radix(offset, 16).unwrap();
        block.parse::<u64>().unwrap() * BLOCK + offset
    }

    /// Block of the volume with block `nr` of a file.
    pub(crate) fn bmap(&self, path: &str, nr: u64) -> u64 {
        let said = self.image.debugfs(&format!("bmap {path} {nr}")).unwrap();
        match said.trim().parse() {
            Ok(found) if found > 0 => found,
            _ => panic!("block {nr} of {path}: {said}"),
        }
    }

    /// The attribute block of the inode at `slot`.
    fn attributes(&self, slot: u64) -> u64 {
        match u64::from(self.u32(slot + 104)) {
            0 => panic!("no attribute block"),
            nr => nr,
        }
    }

    /// The inode that holds the value of an attribute of the inode at `slot`.
    fn value(&self, slot: u64) -> u32 {
        let extra = u64::from(self.u16(slot + 128));
        let mut lists = vec![slot + 128 + extra + 4];
        if self.u32(slot + 104) != 0 {
            lists.push(self.attributes(slot) * BLOCK + 32);
        }
        for mut at in lists {
            while self.u32(at) != 0 {
                if self.u32(at + 4) != 0 {
                    return self.u32(at + 4);
                }
                at += (16 + u64::from(self.u8(at))).next_multiple_of(4);
            }
        }
        panic!("no value has an inode of its own");
    }

    /// The bytes of a region.
    pub(crate) fn read(&self, region: Region) -> Vec<u8> {
        let mut bytes = vec![0; region.len as usize];
        self.file.read_exact_at(&mut bytes, region.at).unwrap();
        bytes
    }

    /// Damages a region.
    pub(crate) fn damage(&self, region: Region, how: How) {
        self.damage_with(region, how, 4);
    }

    /// Damages a region; `mask` says which bits of its byte are flipped.
    pub(crate) fn damage_with(&self, region: Region, how: How, mask: u8) {
        let mut bytes = vec![0; region.len as usize];
        let (at, bytes) = match how {
            How::Flip => {
                let [old] = self.bytes(region.flip);
                (region.flip, vec![old ^ mask])
            }
            How::Zero => (region.at, bytes),
            How::Garble => {
                fastrand::Rng::with_seed(region.at).fill(&mut bytes);
                (region.at, bytes)
            }
        };
        self.file.write_all_at(&bytes, at).unwrap();
    }
}
