//! Records of files in a region of persistent memory: the header in two copies, and records that
//! one word seals (`docs/format/region.md`).

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use crate::bytes::{array_at, assert_layout, put};
use crate::error::{OnDiskError, Result, corrupt};
use crate::num::{count16, count32, low16};

const HEADER: &str = "region header";
const RECORD: &str = "region record";
/// First word of a header.
pub const HEADER_MAGIC: [u8; 8] = *b"stetnvm1";
/// First word of a record.
pub const RECORD_MAGIC: [u8; 8] = *b"stetnvr1";
const VERSION: u16 = 1;
/// The version of a region that holds transactions, too.
const VERSION_LOG: u16 = 2;
/// Bytes of a line: the unit of positions.
pub const LINE: usize = 64;
/// Bytes of a copy of the header.
pub const HEADER_BYTES: usize = LINE;
/// Offsets of the copies: in different pages and sectors.
pub const COPIES: [u64; 2] = [0, 4096];
/// Offset of the lanes.
pub const LANES_AT: u64 = 8192;
/// Maximum number of lanes.
pub const MAX_LANES: u16 = 64;
/// Bytes of a record's head.
pub const HEAD_BYTES: usize = size_of::<RawHead>();
/// Offset of the word that seals a record or a transaction.
pub const SEAL_AT: usize = 16;
/// Offset of `sum` in a header and in a record's head.
pub(super) const SUM_AT: usize = 8;
const DURABLE_BYTES: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    sum: U64,
    generation: U64,
    epoch: U64,
    uuid: [u8; 16],
    size: U64,
    version: U16,
    state: U16,
    lanes: U16,
    log_block_size: U16,
}

assert_layout!(RawHeader, 64, {
    magic: 0, sum: 8, generation: 16, epoch: 24, uuid: 32, size: 48, version: 56, state: 58, lanes: 60, log_block_size: 62,
});

/// Whether the volume may have records in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum State {
    /// No record counts.
    Empty = 0,
    /// There may be records.
    InUse = 1,
}

/// The content of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionHeader {
    /// Generation; it grows with each write.
    pub generation: u64,
    /// The epoch of the volume's log, drawn when the log is made: that of a mount.
    pub epoch: u64,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Bytes of the region.
    pub size: u64,
    /// Whether there may be records.
    pub state: State,
    /// Number of lanes, which have equal size.
    pub lanes: u16,
    /// Bytes of a page: a block of the volume.
    pub block_size: u32,
    /// Whether the first half of the room is the log of transactions.
    pub log: bool,
}

impl RegionHeader {
    /// Byte range of the log of transactions: whole lines, empty if there is no log.
    #[must_use]
    pub fn log_room(&self) -> Range<u64> {
        let room = self.size.saturating_sub(LANES_AT);
        let half = if self.log { room / 2 } else { 0 };
        LANES_AT..LANES_AT + half / LINE as u64 * LINE as u64
    }

    /// Byte range behind it: the lanes of records.
    #[must_use]
    pub fn lanes_room(&self) -> Range<u64> {
        let start = self.log_room().end;
        start..self.size.max(start)
    }

    /// The bytes of a copy, which goes to `COPIES[generation % 2]`.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawHeader {
            magic: HEADER_MAGIC,
            sum: 0.into(),
            generation: self.generation.into(),
            epoch: self.epoch.into(),
            uuid: self.uuid,
            size: self.size.into(),
            version: (if self.log { VERSION_LOG } else { VERSION }).into(),
            state: (self.state as u16).into(),
            lanes: self.lanes.into(),
            log_block_size: low16(self.block_size.max(1).ilog2()).into(),
        };
        let mut bytes: [u8; HEADER_BYTES] = zerocopy::transmute!(raw);
        let sum = checksum(&bytes);
        put(&mut bytes, SUM_AT, &sum.to_le_bytes());
        bytes
    }

    /// Decodes a copy.
    ///
    /// # Errors
    /// `Corrupt`: not a header, or damaged; `Unsupported`: of a later version.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<RegionHeader> {
        let raw: RawHeader = zerocopy::transmute!(*bytes);
        if raw.magic != HEADER_MAGIC {
            return Err(corrupt!(HEADER, "magic {:02x?}", raw.magic));
        }
        if blank_sum(bytes) != raw.sum.get() {
            return Err(corrupt!(HEADER, "checksum does not match"));
        }
        let version = raw.version.get();
        if version != VERSION && version != VERSION_LOG {
            return Err(OnDiskError::Unsupported {
                feature: format!("version {version} of a region's format"),
            });
        }
        let (lanes, log_block_size) = (raw.lanes.get(), u32::from(raw.log_block_size.get()));
        if lanes == 0 || lanes > MAX_LANES || !(10..=16).contains(&log_block_size) {
            return Err(corrupt!(
                HEADER,
                "{lanes} lanes, blocks of 2^{log_block_size} bytes"
            ));
        }
        Ok(RegionHeader {
            generation: raw.generation.get(),
            epoch: raw.epoch.get(),
            uuid: raw.uuid,
            size: raw.size.get(),
            state: match raw.state.get() {
                0 => State::Empty,
                1 => State::InUse,
                other => return Err(corrupt!(HEADER, "state {other}")),
            },
            lanes,
            block_size: 1 << log_block_size,
            log: version == VERSION_LOG,
        })
    }
}

/// The checksum of a head with `sum` and the sealing word counted as zero.
pub(super) fn unsealed_sum(head: &[u8]) -> u64 {
    let mut unsealed = head.to_vec();
    put(&mut unsealed, SEAL_AT, &[0; 8]);
    blank_sum(&unsealed)
}

/// The checksum of `bytes` with `sum` counted as zero.
fn blank_sum(bytes: &[u8]) -> u64 {
    let mut blank = bytes.to_vec();
    put(&mut blank, SUM_AT, &[0; 8]);
    checksum(&blank)
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 8],
    sum: U64,
    seal: U64,
    epoch: U64,
    seq: U64,
    stamp: U64,
    at: U64,
    lane: U16,
    durable: U16,
    pages: U32,
    before: U64,
    settled: U64,
    rest_sum: U64,
    body_bytes: U32,
    padding: [u8; 36],
}

assert_layout!(RawHead, 128, {
    magic: 0, sum: 8, seal: 16, epoch: 24, seq: 32, stamp: 40, at: 48, lane: 56, durable: 58, pages: 60,
    before: 64, settled: 72, rest_sum: 80, body_bytes: 88, padding: 92,
});

/// The number of items of each kind in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Other lanes whose durable position it records.
    pub durable: usize,
    /// Pages, each a block of the volume.
    pub pages: usize,
    /// Bytes of its body.
    pub body: usize,
}

impl Counts {
    /// Bytes of the table: whole lines.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        (self.durable * DURABLE_BYTES + self.pages * 8 + self.body).next_multiple_of(LINE)
    }

    /// Bytes of the record, with pages of `block_size` bytes: whole lines.
    #[must_use]
    pub fn bytes(&self, block_size: usize) -> u64 {
        (HEAD_BYTES + self.table_bytes()) as u64 + self.pages as u64 * block_size as u64
    }
}

/// A record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// The header's epoch.
    pub epoch: u64,
    /// Its sequence in the lane.
    pub seq: u64,
    /// Its stamp in the order of commits.
    pub stamp: u64,
    /// The byte of the region where it begins.
    pub at: u64,
    /// Its lane.
    pub lane: u16,
    /// Stamp of the previous record in the lane.
    pub before: u64,
    /// The sequence up to which the records of its lane were durable.
    pub settled: u64,
    /// The number of items in the parts that follow.
    pub counts: Counts,
    /// Checksum of table and pages.
    pub rest_sum: u64,
}

impl RecordHead {
    /// The bytes of the unsealed head, and the word that seals it.
    #[must_use]
    pub fn encode(&self) -> ([u8; HEAD_BYTES], u64) {
        let raw = RawHead {
            magic: RECORD_MAGIC,
            sum: 0.into(),
            seal: 0.into(),
            epoch: self.epoch.into(),
            seq: self.seq.into(),
            stamp: self.stamp.into(),
            at: self.at.into(),
            lane: self.lane.into(),
            durable: count16(self.counts.durable).into(),
            pages: count32(self.counts.pages).into(),
            before: self.before.into(),
            settled: self.settled.into(),
            rest_sum: self.rest_sum.into(),
            body_bytes: count32(self.counts.body).into(),
            padding: [0; 36],
        };
        let mut bytes: [u8; HEAD_BYTES] = zerocopy::transmute!(raw);
        let sum = checksum(&bytes);
        put(&mut bytes, SUM_AT, &sum.to_le_bytes());
        (bytes, sum)
    }

    /// Decodes a head with a valid checksum, and returns whether it is sealed.
    ///
    /// # Errors
    /// `Corrupt`: there is none, or it is damaged.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<(RecordHead, bool)> {
        let raw: RawHead = zerocopy::transmute!(*bytes);
        if raw.magic != RECORD_MAGIC {
            return Err(corrupt!(RECORD, "magic {:02x?}", raw.magic));
        }
        if unsealed_sum(bytes) != raw.sum.get() {
            return Err(corrupt!(RECORD, "the head's checksum does not match"));
        }
        let head = RecordHead {
            epoch: raw.epoch.get(),
            seq: raw.seq.get(),
            stamp: raw.stamp.get(),
            at: raw.at.get(),
            lane: raw.lane.get(),
            before: raw.before.get(),
            settled: raw.settled.get(),
            counts: Counts {
                durable: raw.durable.get().into(),
                pages: raw.pages.get() as usize,
                body: raw.body_bytes.get() as usize,
            },
            rest_sum: raw.rest_sum.get(),
        };
        Ok((head, raw.seal == raw.sum))
    }
}

/// The table between a record's head and its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The durable positions at the time of writing: of a lane of transactions the sequence, of a
    /// lane of records the stamp.
    pub durable: Vec<(u16, u64)>,
    /// The block of the volume of each page.
    pub blocks: Vec<u64>,
    /// The body of the record.
    pub body: Vec<u8>,
}

impl Table {
    /// The number of items of each kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            durable: self.durable.len(),
            pages: self.blocks.len(),
            body: self.body.len(),
        }
    }

    /// The bytes of the table: whole lines.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let size = self.counts().table_bytes();
        let mut bytes = Vec::with_capacity(size);
        for (lane, number) in &self.durable {
            bytes.extend_from_slice(&u64::from(*lane).to_le_bytes());
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for block in &self.blocks {
            bytes.extend_from_slice(&block.to_le_bytes());
        }
        bytes.extend_from_slice(&self.body);
        bytes.resize(size, 0);
        bytes
    }

    /// Decodes a table of the size that `counts` gives.
    ///
    /// # Errors
    /// `Corrupt`: too short, or an impossible lane.
    pub fn decode(bytes: &[u8], counts: Counts) -> Result<Table> {
        let short = || corrupt!(RECORD, "{} bytes for {counts:?}", bytes.len());
        let word = |at: usize| array_at(bytes, at).map(u64::from_le_bytes);
        let blocks_at = counts.durable * DURABLE_BYTES;
        let body_at = blocks_at + counts.pages * 8;
        let durable = (0..counts.durable).map(|i| {
            let at = i * DURABLE_BYTES;
            let (lane, number) = word(at).zip(word(at + 8)).ok_or_else(short)?;
            let lane = u16::try_from(lane).map_err(|_| corrupt!(RECORD, "lane {lane}"))?;
            Ok((lane, number))
        });
        let blocks = (0..counts.pages).map(|i| word(blocks_at + i * 8).ok_or_else(short));
        let body = bytes.get(body_at..body_at.saturating_add(counts.body));
        Ok(Table {
            durable: durable.collect::<Result<_>>()?,
            blocks: blocks.collect::<Result<_>>()?,
            body: body.ok_or_else(short)?.to_vec(),
        })
    }
}

/// The checksum of a record's table and pages, computed piece by piece.
#[derive(Default)]
pub struct RestSum(Xxh3Default);

impl RestSum {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> RegionHeader {
        RegionHeader {
            generation: 9,
            epoch: 0x1234_5678_9abc_def0,
            uuid: *b"0123456789abcdef",
            size: 1 << 20,
            state: State::InUse,
            lanes: 3,
            block_size: 4096,
            log: false,
        }
    }

    fn head() -> RecordHead {
        RecordHead {
            epoch: 7,
            seq: 3,
            stamp: 99,
            at: 8192,
            lane: 1,
            before: 98,
            settled: 2,
            counts: table().counts(),
            rest_sum: 5,
        }
    }

    fn table() -> Table {
        Table {
            durable: vec![(0, 17), (65535, u64::MAX)],
            blocks: vec![1, 2, 3],
            body: b"a body".to_vec(),
        }
    }

    #[test]
    fn round_trips() {
        assert_eq!(RegionHeader::decode(&header().encode()), Ok(header()));
        let log = RegionHeader {
            log: true,
            ..header()
        };
        assert_eq!(RegionHeader::decode(&log.encode()), Ok(log));
        assert_eq!(log.log_room().end, log.lanes_room().start);
        assert_eq!(
            (header().log_room().end, log.lanes_room().end),
            (LANES_AT, 1 << 20)
        );
        let (mut bytes, seal) = head().encode();
        assert_eq!(RecordHead::decode(&bytes), Ok((head(), false)));
        put(&mut bytes, SEAL_AT, &seal.to_le_bytes()).unwrap();
        assert_eq!(RecordHead::decode(&bytes), Ok((head(), true)));
        let bytes = table().encode();
        assert_eq!(bytes.len(), 64);
        assert_eq!(Table::decode(&bytes, table().counts()), Ok(table()));
        let none = Table::default();
        assert_eq!(Table::decode(&[], none.counts()), Ok(none));
    }

    #[test]
    fn a_sum_in_pieces_is_that_of_all() {
        let bytes: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        let mut sum = RestSum::default();
        bytes.chunks(700).for_each(|piece| sum.add(piece));
        assert_eq!(sum.sum(), checksum(&bytes));
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = header().encode();
        bytes[56] = 3;
        let sum = blank_sum(&bytes);
        put(&mut bytes, SUM_AT, &sum.to_le_bytes()).unwrap();
        let decoded = RegionHeader::decode(&bytes);
        assert!(matches!(decoded, Err(OnDiskError::Unsupported { .. })));
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(at in 0..HEAD_BYTES, by in 1u8..) {
            let mut bytes = header().encode();
            bytes[at % HEADER_BYTES] ^= by;
            prop_assert!(RegionHeader::decode(&bytes).is_err());
            let (mut bytes, seal) = head().encode();
            put(&mut bytes, SEAL_AT, &seal.to_le_bytes()).unwrap();
            bytes[at] ^= by;
            let decoded = RecordHead::decode(&bytes);
            prop_assert!(!matches!(decoded, Ok((_, true))), "{:?}", decoded);
        }

        #[test]
        fn noise_is_no_table(bytes in proptest::collection::vec(any::<u8>(), 0..300), durable in 0..20usize, pages in 0..20usize, body in 0..300usize) {
            let counts = Counts { durable, pages, body };
            if let Ok(table) = Table::decode(&bytes, counts) {
                prop_assert_eq!(table.counts(), counts);
            }
        }
    }
}
