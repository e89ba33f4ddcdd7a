//! Transactions in a region of persistent memory: a head that one word seals, the revoked blocks,
//! and the changed words of each block (`docs/format/region.md`).

use std::ops::Range;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use super::region::{LINE, SUM_AT, unsealed_sum};
use crate::bytes::{assert_layout, put};
use crate::error::{Result, corrupt};
use crate::num::{count16, count32};

const WHAT: &str = "transaction in a region";
/// First word of a transaction.
pub const CHANGES_MAGIC: [u8; 8] = *b"stetnvt1";
/// Bytes of a transaction's head.
pub const CHANGES_HEAD: usize = size_of::<RawHead>();
/// Bytes of a word, the unit of changes.
pub const WORD: usize = 8;
const PLACE_AT: usize = 56;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 8],
    sum: U64,
    seal: U64,
    epoch: U64,
    seq: U64,
    stamp: U64,
    floor: U64,
    at: U64,
    rest_sum: U64,
    rest_bytes: U64,
    images: U32,
    revokes: U32,
    padding: [u8; 40],
}

assert_layout!(RawHead, 128, {
    magic: 0, sum: 8, seal: 16, epoch: 24, seq: 32, stamp: 40, floor: 48, at: 56, rest_sum: 64,
    rest_bytes: 72, images: 80, revokes: 84, padding: 88,
});

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawImage {
    nr: U64,
    runs: U16,
    flags: U16,
    words: U32,
}

assert_layout!(RawImage, 16, { nr: 0, runs: 8, flags: 10, words: 12 });

/// Flag: the image is its runs over zeros, not over the home block.
const FRESH: u16 = 1;
/// Bytes of an image without its runs.
pub const IMAGE_BYTES: usize = size_of::<RawImage>();
/// Bytes of a run without its words.
pub const RUN_BYTES: usize = 4;

/// The head of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangesHead {
    /// The epoch of the volume's log.
    pub epoch: u64,
    /// Its sequence in its lane.
    pub seq: u64,
    /// Its stamp in the order of all commits.
    pub stamp: u64,
    /// The stamp up to which it supersedes records of files.
    pub floor: u64,
    /// The byte of the region where its head begins.
    pub at: u64,
    /// Checksum of the part behind the head.
    pub rest_sum: u64,
    /// Bytes of that part, without the padding to a line.
    pub rest_bytes: u64,
    /// Number of changed blocks.
    pub images: u32,
    /// Number of blocks whose older images are void.
    pub revokes: u32,
}

impl ChangesHead {
    /// The bytes of the unsealed head, and the word that seals it.
    #[must_use]
    pub fn encode(&self) -> ([u8; CHANGES_HEAD], u64) {
        let raw = RawHead {
            magic: CHANGES_MAGIC,
            sum: 0.into(),
            seal: 0.into(),
            epoch: self.epoch.into(),
            seq: self.seq.into(),
            stamp: self.stamp.into(),
            floor: self.floor.into(),
            at: self.at.into(),
            rest_sum: self.rest_sum.into(),
            rest_bytes: self.rest_bytes.into(),
            images: self.images.into(),
            revokes: self.revokes.into(),
            padding: [0; 40],
        };
        let mut bytes: [u8; CHANGES_HEAD] = zerocopy::transmute!(raw);
        let sum = checksum(&bytes);
        put(&mut bytes, SUM_AT, &sum.to_le_bytes());
        (bytes, sum)
    }

    /// Writes the position, byte `at` of the region, into an encoded head; returns the word that
    /// seals it.
    pub fn place(head: &mut [u8; CHANGES_HEAD], at: u64) -> u64 {
        put(head, PLACE_AT, &at.to_le_bytes());
        let sum = unsealed_sum(head);
        put(head, SUM_AT, &sum.to_le_bytes());
        sum
    }

    /// Decodes a head with a valid checksum, and returns whether it is sealed.
    ///
    /// # Errors
    /// `Corrupt`: there is none, or it is damaged.
    pub fn decode(bytes: &[u8; CHANGES_HEAD]) -> Result<(ChangesHead, bool)> {
        let raw: RawHead = zerocopy::transmute!(*bytes);
        if raw.magic != CHANGES_MAGIC {
            return Err(corrupt!(WHAT, "magic {:02x?}", raw.magic));
        }
        if unsealed_sum(bytes) != raw.sum.get() {
            return Err(corrupt!(WHAT, "the head's checksum does not match"));
        }
        let head = ChangesHead {
            epoch: raw.epoch.get(),
            seq: raw.seq.get(),
            stamp: raw.stamp.get(),
            floor: raw.floor.get(),
            at: raw.at.get(),
            rest_sum: raw.rest_sum.get(),
            rest_bytes: raw.rest_bytes.get(),
            images: raw.images.get(),
            revokes: raw.revokes.get(),
        };
        Ok((head, raw.seal == raw.sum))
    }

    /// Lines of the whole transaction; `None` on overflow.
    #[must_use]
    pub fn lines(&self) -> Option<u64> {
        let bytes = self.rest_bytes.checked_add(CHANGES_HEAD as u64)?;
        Some(bytes.div_ceil(LINE as u64))
    }
}

/// Appends a revoked block.
pub fn put_revoke(rest: &mut Vec<u8>, nr: u64) {
    rest.extend_from_slice(&nr.to_le_bytes());
}

/// Appends the changes of block `nr`: these runs of words of `page`, in ascending order. With
/// `fresh` the rest of the block is zero.
pub fn put_image(rest: &mut Vec<u8>, nr: u64, page: &[u8], runs: &[Range<usize>], fresh: bool) {
    let words: usize = runs.iter().map(ExactSizeIterator::len).sum();
    let raw = RawImage {
        nr: nr.into(),
        runs: count16(runs.len()).into(),
        flags: (if fresh { FRESH } else { 0 }).into(),
        words: count32(words).into(),
    };
    rest.extend_from_slice(raw.as_bytes());
    for run in runs {
        rest.extend_from_slice(&count16(run.start).to_le_bytes());
        rest.extend_from_slice(&count16(run.len()).to_le_bytes());
    }
    for run in runs {
        let bytes = page.get(run.start * WORD..run.end * WORD);
        rest.extend_from_slice(bytes.unwrap_or_default());
    }
}

/// The changes of a block, as stored in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<'b> {
    /// The block.
    pub nr: u64,
    /// Whether the rest of the block is zero, whatever its home block holds.
    pub fresh: bool,
    /// Runs of words, and their bytes.
    pub runs: Vec<(Range<usize>, &'b [u8])>,
}

impl Changed<'_> {
    /// Applies the changes to `page`. It holds the home block's content, of the length given to
    /// [`contents`].
    pub fn apply(&self, page: &mut [u8]) {
        if self.fresh {
            page.fill(0);
        }
        for (run, bytes) in &self.runs {
            put(page, run.start * WORD, bytes);
        }
    }
}

/// Reads the image that begins at byte `at` of the part behind a head, for blocks of `block` bytes.
/// Also returns its end.
///
/// # Errors
/// `Corrupt`: there is no valid image.
pub fn image(rest: &[u8], at: usize, block: usize) -> Result<(Changed<'_>, usize)> {
    let short = || corrupt!(WHAT, "an image at byte {at} of {}", rest.len());
    let tail = rest.get(at..).ok_or_else(short)?;
    let (raw, tail) = RawImage::read_from_prefix(tail).map_err(|_| short())?;
    let count = usize::from(raw.runs.get());
    let table = tail.get(..count * RUN_BYTES).ok_or_else(short)?;
    let mut bytes = tail.get(count * RUN_BYTES..).ok_or_else(short)?;
    let mut runs = Vec::with_capacity(count);
    let mut free = 0;
    for run in table.chunks_exact(RUN_BYTES) {
        let half = |i: usize| usize::from(u16::from_le_bytes([run[i], run[i + 1]]));
        let (start, len) = (half(0), half(2));
        if start < free || (start + len) * WORD > block {
            return Err(corrupt!(
                WHAT,
                "words {start} to {} of block {}",
                start + len,
                raw.nr
            ));
        }
        free = start + len;
        let (now, later) = bytes.split_at_checked(len * WORD).ok_or_else(short)?;
        runs.push((start..start + len, now));
        bytes = later;
    }
    let words: usize = runs.iter().map(|(run, _)| run.len()).sum();
    if words != raw.words.get() as usize {
        return Err(corrupt!(
            WHAT,
            "{words} words of block {}, which says {}",
            raw.nr,
            raw.words
        ));
    }
    let changed = Changed {
        nr: raw.nr.get(),
        fresh: raw.flags.get() & FRESH != 0,
        runs,
    };
    Ok((changed, rest.len() - bytes.len()))
}

/// Reads the part behind a head: the revoked blocks, and the offset of each block's image.
///
/// # Errors
/// `Corrupt`: the content contradicts the head.
#[allow(clippy::type_complexity)]
pub fn contents(
    rest: &[u8],
    head: &ChangesHead,
    block: usize,
) -> Result<(Vec<u64>, Vec<(u64, usize)>)> {
    let revoked = (head.revokes as usize).saturating_mul(8);
    let table = rest
        .get(..revoked)
        .ok_or_else(|| corrupt!(WHAT, "{} revokes", head.revokes))?;
    let word = |b: &[u8]| b.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let revokes = table.chunks_exact(8).map(word).collect();
    let mut images = Vec::new();
    let mut at = revoked;
    for _ in 0..head.images {
        let (changed, end) = image(rest, at, block)?;
        images.push((changed.nr, at));
        at = end;
    }
    if at != rest.len() {
        return Err(corrupt!(
            WHAT,
            "{} bytes behind its images",
            rest.len() - at
        ));
    }
    Ok((revokes, images))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::super::region::SEAL_AT;
    use super::*;

    const BLOCK: usize = 1024;

    fn head(rest: &[u8], images: u32, revokes: u32) -> ChangesHead {
        ChangesHead {
            epoch: 7,
            seq: 3,
            stamp: 9,
            floor: 2,
            at: 0,
            rest_sum: checksum(rest),
            rest_bytes: rest.len() as u64,
            images,
            revokes,
        }
    }

    #[test]
    fn heads_are_sealed_in_their_place() {
        let head = head(b"rest", 1, 2);
        let (mut bytes, _) = head.encode();
        let seal = ChangesHead::place(&mut bytes, 8192);
        let placed = ChangesHead { at: 8192, ..head };
        assert_eq!(ChangesHead::decode(&bytes), Ok((placed, false)));
        put(&mut bytes, SEAL_AT, &seal.to_le_bytes()).unwrap();
        assert_eq!(ChangesHead::decode(&bytes), Ok((placed, true)));
        assert_eq!(placed.lines(), Some(3));
        assert_eq!(
            ChangesHead {
                rest_bytes: u64::MAX,
                ..head
            }
            .lines(),
            None
        );
    }

    #[test]
    fn contents_round_trip() {
        let page: Vec<u8> = (0..BLOCK).map(|i| i as u8).collect();
        let mut rest = Vec::new();
        put_revoke(&mut rest, 77);
        put_image(&mut rest, 5, &page, &[0..1, 3..5, 127..128], false);
        put_image(&mut rest, 6, &page, &[], true);
        let head = head(&rest, 2, 1);
        let (revokes, images) = contents(&rest, &head, BLOCK).unwrap();
        assert_eq!((revokes, images.len()), (vec![77], 2));
        let mut home = vec![0xee; BLOCK];
        image(&rest, images[0].1, BLOCK).unwrap().0.apply(&mut home);
        for (i, byte) in home.iter().enumerate() {
            let changed = [0..1, 3..5, 127..128]
                .iter()
                .any(|r| r.contains(&(i / WORD)));
            assert_eq!(*byte, if changed { i as u8 } else { 0xee }, "byte {i}");
        }
        image(&rest, images[1].1, BLOCK).unwrap().0.apply(&mut home);
        assert_eq!(home, vec![0; BLOCK]);
        assert!(contents(&rest[..rest.len() - 1], &head, BLOCK).is_err());
        assert!(contents(&rest, &head, 512).is_err(), "beyond the block");
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_fits(rest in proptest::collection::vec(any::<u8>(), 0..600), images in 0u32..9) {
            let head = ChangesHead { images, revokes: 1, ..head(&rest, 0, 0) };
            if let Ok((_, images)) = contents(&rest, &head, BLOCK) {
                for (_, at) in images {
                    let mut page = vec![0; BLOCK];
                    image(&rest, at, BLOCK).unwrap().0.apply(&mut page);
                }
            }
        }

        #[test]
        fn any_changed_byte_of_a_head_is_noticed(at in 0..CHANGES_HEAD, by in 1u8..) {
            let (mut bytes, _) = head(b"", 0, 0).encode();
            bytes[at] ^= by;
            let seal = (SEAL_AT..SEAL_AT + 8).contains(&at);
            prop_assert_eq!(ChangesHead::decode(&bytes).is_err(), !seal);
        }
    }
}
