//! Multiple mount protection: the block that records the user of the volume (`struct mmp_struct`).

use super::checksum::{ChecksumMode, SpareWord, ext4_crc32c};
use crate::bytes::{assert_layout, prefix};
use crate::error::{Result, corrupt};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `EXT4_MMP_MAGIC`: "MMP" and a zero.
pub const MAGIC: u32 = 0x004D_4D50;
/// Sequence of an unused volume.
pub const SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// Sequence of a volume under e2fsck.
pub const SEQ_FSCK: u32 = 0xE24D_4D50;
/// Largest sequence of a volume in use.
pub const SEQ_MAX: u32 = 0xE24D_4D4F;
/// Bytes of the structure; the rest of its block is zero.
pub const LEN: usize = 1024;
/// The unit that a device writes atomically, in bytes.
const SECTOR: usize = 512;

/// The MMP block.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Mmp {
    magic: U32,
    /// Changes with every update.
    pub seq: U32,
    /// Last update, seconds since 1970.
    pub time: U64,
    /// The name of the machine that updates it.
    pub nodename: [u8; 64],
    /// The name of the device on that machine.
    pub bdevname: [u8; 32],
    /// Seconds between two reads that tell whether the volume is in use.
    pub check_interval: U16,
    pad1: U16,
    /// Unused by other software.
    spare: U32,
    pad2: [U32; 225],
    checksum: U32,
}

assert_layout!(Mmp, LEN, {
    magic: 0x0, seq: 0x4, time: 0x8, nodename: 0x10, bdevname: 0x50, check_interval: 0x70, pad1: 0x72, spare: 0x74, pad2: 0x78,
    checksum: 0x3FC,
});

impl Mmp {
    /// The block of a volume that nobody uses, with `check_interval` in seconds. Write its
    /// [`made_plain`](Self::made_plain) bytes.
    #[must_use]
    pub fn unused(check_interval: u16) -> Mmp {
        let mut mmp = Mmp::new_zeroed();
        mmp.magic.set(MAGIC);
        mmp.seq.set(SEQ_CLEAN);
        mmp.check_interval.set(check_interval);
        mmp
    }

    /// Decodes and checks a block.
    ///
    /// # Errors
    /// A wrong magic number or checksum.
    pub fn decode(block: &[u8], mode: &ChecksumMode) -> Result<Mmp> {
        let bytes = prefix("MMP block", block, LEN)?;
        let mut mmp = Mmp::new_zeroed();
        mmp.as_mut_bytes().copy_from_slice(bytes);
        if mmp.magic.get() != MAGIC {
            return Err(corrupt!("MMP block", "magic {:#010x}", mmp.magic.get()));
        }
        if mmp.expected(mode).is_some_and(|c| c != mmp.checksum.get()) {
            return Err(corrupt!("MMP block", "checksum does not match"));
        }
        Ok(mmp)
    }

    /// The first sector of the block. It contains all changing fields. An unused word takes the
    /// value that keeps the checksum, in the second sector, valid: a power failure leaves the old
    /// block or the new one.
    pub fn first_sector(&mut self, mode: &ChecksumMode) -> &[u8] {
        if mode.metadata_seed().is_some() {
            let mut copy = self.clone();
            let mut compute = |word| {
                copy.spare.set(word);
                copy.expected(mode).unwrap_or(0)
            };
            let zero = compute(0);
            let word = SpareWord::new(compute).keeping(self.checksum.get(), zero);
            // A solution always exists: the 32 bits of a word reach every CRC.
            self.spare.set(word.unwrap_or(0));
        }
        self.as_bytes().get(..SECTOR).unwrap_or_default()
    }

    /// All meaningful bytes of the block, with the spare word zero. They are two sectors: a power
    /// failure while they are written can leave a block with a wrong checksum.
    pub fn made_plain(&mut self, mode: &ChecksumMode) -> &[u8] {
        self.spare.set(0);
        self.checksum.set(self.expected(mode).unwrap_or(0));
        self.as_bytes()
    }

    fn expected(&self, mode: &ChecksumMode) -> Option<u32> {
        let covered = self.as_bytes().get(..LEN - 4).unwrap_or_default();
        Some(ext4_crc32c(mode.metadata_seed()?, covered))
    }

    /// The name of the machine that last updated it, for messages.
    #[must_use]
    pub fn node(&self) -> String {
        let end = self.nodename.iter().position(|b| *b == 0);
        let name = self.nodename.get(..end.unwrap_or(self.nodename.len()));
        String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
    }
}
