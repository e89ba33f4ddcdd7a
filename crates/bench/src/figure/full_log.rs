//! A volume whose journal is full: each block of a file is in the log once, and not in its home
//! location.
//!
//! No StetFS journal leaves such a log, because it checkpoints at half of the log, or at its bound
//! of memory. The kernel's journal may.

use anyhow::{Context, Result, ensure};
use stetfs::low::{BlockDevice, Ctx, FsOptions, MemDevice, ROOT_INO};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::superblock::Superblock;
use stetfs_ondisk::jbd2::commit::{self, TransactionSum};
use stetfs_ondisk::jbd2::descriptor::{self, Tag, image_checksum, tags_per_block};
use stetfs_ondisk::jbd2::{Config, JournalSuperblock};
use stetfs_testkit::{Image, Mkfs};
use zerocopy::IntoBytes;

/// Size of a block, bytes.
pub(super) const BLOCK: u64 = 4096;
/// Number of blocks of a transaction.
const TRANSACTION: usize = 64;
/// The offset of the superblock, bytes.
const SUPER: u64 = 1024;

/// The volume, and the content of its log.
pub(super) struct FullLog {
    pub volume: MemDevice,
    /// Number of images of file blocks in the log.
    pub images: u64,
}

/// Makes a volume with a journal of `journal_mib` and a file of the same size. Its blocks are
/// logged in runs of `run`, in random order, each once.
pub(super) fn make(journal_mib: u32, run: usize) -> Result<FullLog> {
    let image = Image::sparse(u64::from(journal_mib) << 22)?;
    image.mkfs(&Mkfs::blocks(BLOCK as u32).journal_mib(journal_mib))?;
    let volume = MemDevice::load(image.path())?;
    let journal = journal_blocks(&image.debugfs("extents <8>")?)?;
    let mut homes = places(&volume, u64::from(journal_mib) << 20)?;
    // Whole runs in another order.
    let mut runs: Vec<Vec<u64>> = homes.chunks(run).map(<[u64]>::to_vec).collect();
    fastrand::Rng::with_seed(9).shuffle(&mut runs);
    homes = runs.concat();
    let images = Writer::open(&volume, journal)?.fill(&homes)?;
    Ok(FullLog { volume, images })
}

/// The volume's block numbers of the journal, from debugfs' list of its extents: lines with level
/// and depth, number and count, first and last block of the file, first and last of the volume, and
/// more.
fn journal_blocks(extents: &str) -> Result<Vec<u64>> {
    let mut blocks = Vec::new();
    for line in extents.lines() {
        let words = line.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        if let [level, depth, _, _, logical, _, first, last, ..] = numbers[..]
            && level == depth
        {
            ensure!(logical == blocks.len() as u64, "a hole in the journal");
            blocks.extend(first..=last);
        }
    }
    ensure!(!blocks.is_empty(), "no journal in {extents:?}");
    Ok(blocks)
}

/// Makes a file of so many bytes; returns its block numbers on the volume.
fn places(volume: &MemDevice, bytes: u64) -> Result<Vec<u64>> {
    let device = std::sync::Arc::new(volume.fork());
    let fs = stetfs::low::Fs::open(device.clone(), FsOptions::default())?;
    let ctx = Ctx::default();
    let (attr, file) = fs.create(&ctx, ROOT_INO, b"file", 0o644, 0, libc::O_RDWR)?;
    // The file is written, so that checkpoints overwrite.
    let ones = vec![1; 1 << 20];
    for at in (0..bytes).step_by(ones.len()) {
        fs.write(&ctx, &file, at, &ones, false)?;
    }
    let homes = (0..bytes / BLOCK).map(|i| Ok(fs.bmap(attr.ino, i, BLOCK as u32)?));
    let homes = homes.collect::<Result<Vec<u64>>>()?;
    drop(file);
    fs.unmount()?;
    drop(fs);
    ensure!(!homes.contains(&0), "blocks that lie nowhere");
    for range in volume.differences(&device) {
        let mut changed = vec![0; (range.end - range.start) as usize];
        device.read(range.start, &mut changed)?;
        volume.write(range.start, &changed)?;
    }
    Ok(homes)
}

/// Writes transactions in jbd2's format.
struct Writer<'v> {
    volume: &'v MemDevice,
    /// The volume's block numbers, by log block.
    log: Vec<u64>,
    sb: JournalSuperblock,
    config: Config,
    /// The next log block.
    at: usize,
}

impl Writer<'_> {
    fn open(volume: &MemDevice, log: Vec<u64>) -> Result<Writer<'_>> {
        let mut block = vec![0; BLOCK as usize];
        let first = log.first().context("a journal without blocks")?;
        volume.read(first * BLOCK, &mut block)?;
        let sb = JournalSuperblock::decode(&block, BLOCK as u32, log.len() as u64)?;
        Ok(Writer {
            volume,
            log,
            config: sb.config(),
            at: sb.s_first.get() as usize,
            sb,
        })
    }

    /// Logs as many of these blocks as fit; returns their number.
    fn fill(mut self, homes: &[u64]) -> Result<u64> {
        let per_descriptor = tags_per_block(&self.config);
        ensure!(per_descriptor >= TRANSACTION, "small descriptors");
        let mut rng = fastrand::Rng::with_seed(7);
        let mut tid = self.sb.s_sequence.get();
        let mut logged = 0;
        for homes in homes.chunks(TRANSACTION) {
            if self.at + homes.len() + 2 > self.sb.ring_end() as usize {
                break;
            }
            self.transaction(tid, homes, &mut rng)?;
            tid = tid.wrapping_add(1);
            logged += homes.len() as u64;
        }
        self.sb.s_start = self.sb.s_first;
        self.sb.update_checksum();
        let first = self.log.first().context("a journal without blocks")?;
        self.volume.write(first * BLOCK, self.sb.as_bytes())?;
        let mut bytes = vec![0; 1024];
        self.volume.read(SUPER, &mut bytes)?;
        let mut sb = Superblock::decode(&bytes)?;
        sb.set_incompat(sb.incompat() | Incompat::RECOVER);
        sb.update_checksum();
        sb.encode(&mut bytes)?;
        self.volume.write(SUPER, &bytes)?;
        Ok(logged)
    }

    fn transaction(&mut self, tid: u32, homes: &[u64], rng: &mut fastrand::Rng) -> Result<()> {
        let mut pages = vec![vec![0; BLOCK as usize]; homes.len()];
        let mut tags = Vec::with_capacity(homes.len());
        for (nr, page) in homes.iter().zip(&mut pages) {
            rng.fill(page);
            tags.push(Tag {
                block: *nr,
                flags: 0,
                checksum: image_checksum(&self.config, tid, page),
            });
        }
        let mut block = vec![0; BLOCK as usize];
        descriptor::encode(&self.config, tid, &self.sb.s_uuid, &tags, &mut block);
        self.append(&block)?;
        for page in &pages {
            self.append(page)?;
        }
        block.fill(0);
        let time = (u64::from(tid), 0);
        commit::encode(
            &self.config,
            tid,
            time,
            TransactionSum::default(),
            &mut block,
        );
        self.append(&block)
    }

    fn append(&mut self, block: &[u8]) -> Result<()> {
        let nr = self.log.get(self.at).context("behind the log")?;
        self.volume.write(nr * BLOCK, block)?;
        self.at += 1;
        Ok(())
    }
}
