//! The header of the log: two copies, written alternately; the valid one with the higher generation
//! counts.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use crate::error::{Result, corrupt};
use crate::num::count16;

/// Bytes of one copy.
pub const COPY_BYTES: usize = 4096;
/// Maximum number of lanes in a header.
pub const MAX_LANES: usize = (COPY_BYTES - size_of::<Fixed>()) / size_of::<RawLane>();

const MAGIC: [u8; 8] = *b"stetlog1";
/// The magic of a log whose records of files are in a region: software that does not know these
/// must refuse the volume.
const MAGIC_REGION: [u8; 8] = *b"stetlog2";
/// The magic of a log whose transactions are in the region, too: positions of the first lane are
/// lines of the region.
const MAGIC_IN_REGION: [u8; 8] = *b"stetlog3";
/// Offset of `sum`.
const SUM_AT: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fixed {
    magic: [u8; 8],
    sum: U64,
    generation: U64,
    epoch: U64,
    horizon: U64,
    uuid: [u8; 16],
    block_size: U32,
    lanes: U16,
    file_lanes: U16,
}

const _: () = assert!(size_of::<Fixed>() == 64);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLane {
    first: U64,
    end: U64,
    tail_at: U64,
    tail_seq: U64,
}

const _: () = assert!(size_of::<RawLane>() == 32);

/// One lane: a ring of log blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// First log block.
    pub first: u64,
    /// One past the last log block.
    pub end: u64,
    /// Log block where the oldest live frame starts; 0 if the lane is empty.
    pub tail_at: u64,
    /// Sequence of that frame, or of the next one.
    pub tail_seq: u64,
}

/// The content of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// Generation; it grows with each write.
    pub generation: u64,
    /// Drawn when the log is made: content of an earlier log can never pass for this one's.
    pub epoch: u64,
    /// The file-record horizon, a stamp.
    pub horizon: u64,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Bytes in a log block.
    pub block_size: u32,
    /// The lanes, by number.
    pub lanes: Vec<Lane>,
    /// Number of lanes, counted from the last, that hold file-level records (i-lanes). At least one
    /// lane does not.
    pub file_lanes: u16,
    /// Whether file-level records are in a region of persistent memory with the log's epoch, not in
    /// lanes.
    pub region: bool,
    /// Whether transactions are there, too: then there is one lane, whose positions are lines of
    /// the region.
    pub in_region: bool,
}

impl LogHeader {
    /// The bytes of a copy. Lanes beyond [`MAX_LANES`] are left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let lanes = self.lanes.len().min(MAX_LANES);
        let fixed = Fixed {
            magic: match (self.in_region, self.region) {
                (true, _) => MAGIC_IN_REGION,
                (_, true) => MAGIC_REGION,
                _ => MAGIC,
            },
            sum: 0.into(),
            generation: self.generation.into(),
            epoch: self.epoch.into(),
            horizon: self.horizon.into(),
            uuid: self.uuid,
            block_size: self.block_size.into(),
            lanes: count16(lanes).into(),
            file_lanes: self.file_lanes.into(),
        };
        let mut bytes = fixed.as_bytes().to_vec();
        for lane in self.lanes.iter().take(lanes) {
            let raw = RawLane {
                first: lane.first.into(),
                end: lane.end.into(),
                tail_at: lane.tail_at.into(),
                tail_seq: lane.tail_seq.into(),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        bytes.resize(COPY_BYTES, 0);
        let sum = checksum(&bytes);
        crate::bytes::put(&mut bytes, SUM_AT, &sum.to_le_bytes());
        bytes
    }

    /// Decodes a copy, of a log of `blocks` blocks.
    ///
    /// # Errors
    /// `Corrupt`: not a header, damaged, or lanes that lie outside the log or overlap.
    pub fn decode(bytes: &[u8], blocks: u64) -> Result<LogHeader> {
        const WHAT: &str = "StetFS log header";
        let bytes = bytes
            .get(..COPY_BYTES)
            .ok_or_else(|| corrupt!(WHAT, "{} bytes", bytes.len()))?;
        let (fixed, rest) =
            Fixed::read_from_prefix(bytes).map_err(|_| corrupt!(WHAT, "too short"))?;
        let in_region = fixed.magic == MAGIC_IN_REGION;
        let region = in_region || fixed.magic == MAGIC_REGION;
        if fixed.magic != MAGIC && !region {
            return Err(corrupt!(WHAT, "magic {:02x?}", fixed.magic));
        }
        let mut blank = bytes.to_vec();
        crate::bytes::put(&mut blank, SUM_AT, &[0; 8]);
        if checksum(&blank) != fixed.sum.get() {
            return Err(corrupt!(WHAT, "checksum does not match"));
        }
        let count = usize::from(fixed.lanes.get());
        let file_lanes = fixed.file_lanes.get();
        if count == 0 || count > MAX_LANES || usize::from(file_lanes) >= count {
            return Err(corrupt!(WHAT, "{count} lanes, {file_lanes} for files"));
        }
        let (raw, _) = <[RawLane]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| corrupt!(WHAT, "{count} lanes"))?;
        let lanes: Vec<Lane> = raw
            .iter()
            .map(|l| Lane {
                first: l.first.get(),
                end: l.end.get(),
                tail_at: l.tail_at.get(),
                tail_seq: l.tail_seq.get(),
            })
            .collect();
        if in_region && count != 1 {
            return Err(corrupt!(WHAT, "{count} lanes in a region"));
        }
        // The log does not record the size of the region.
        let blocks = if in_region { u64::MAX } else { blocks };
        let mut free = 1;
        for (i, lane) in lanes.iter().enumerate() {
            let inside = lane.tail_at == 0 || (lane.first..lane.end).contains(&lane.tail_at);
            if lane.first < free || lane.end <= lane.first || lane.end > blocks || !inside {
                return Err(corrupt!(
                    WHAT,
                    "lane {i}: {lane:?} in a log of {blocks} blocks"
                ));
            }
            free = lane.end;
        }
        Ok(LogHeader {
            generation: fixed.generation.get(),
            epoch: fixed.epoch.get(),
            horizon: fixed.horizon.get(),
            uuid: fixed.uuid,
            block_size: fixed.block_size.get(),
            lanes,
            file_lanes,
            region,
            in_region,
        })
    }
}

/// Log blocks of one copy.
#[must_use]
pub fn copy_blocks(block_size: u32) -> u64 {
    super::pieces(COPY_BYTES, block_size as usize) as u64
}

/// First log block of copy 0 or 1: they follow the jbd2 superblock.
#[must_use]
pub fn copy_at(copy: u64, block_size: u32) -> u64 {
    1 + (copy & 1) * copy_blocks(block_size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> LogHeader {
        let lane = |i: u64| Lane {
            first: 3 + i * 100,
            end: 103 + i * 100,
            tail_at: i * 150,
            tail_seq: 7 + i,
        };
        LogHeader {
            generation: 9,
            epoch: 0x1234_5678_9abc_def0,
            horizon: 77,
            uuid: *b"0123456789abcdef",
            block_size: 4096,
            lanes: vec![lane(0), lane(1)],
            file_lanes: 1,
            region: false,
            in_region: false,
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(LogHeader::decode(&header().encode(), 300), Ok(header()));
        let elsewhere = LogHeader {
            region: true,
            ..header()
        };
        assert_eq!(LogHeader::decode(&elsewhere.encode(), 300), Ok(elsewhere));
        let all = LogHeader {
            region: true,
            in_region: true,
            lanes: vec![Lane {
                first: 128,
                end: 1 << 20,
                tail_at: 4711,
                tail_seq: 7,
            }],
            file_lanes: 0,
            ..header()
        };
        assert_eq!(LogHeader::decode(&all.encode(), 300), Ok(all.clone()));
        let (lane, region) = (all.lanes[0], all);
        let two = LogHeader {
            lanes: vec![lane, lane],
            ..region
        };
        assert!(LogHeader::decode(&two.encode(), 300).is_err());
    }

    #[test]
    fn lanes_outside_the_log_are_refused() {
        assert!(LogHeader::decode(&header().encode(), 202).is_err());
        let mut over = header();
        over.lanes[1].first = 50;
        assert!(LogHeader::decode(&over.encode(), 300).is_err());
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(at in 0..COPY_BYTES, by in 1u8..) {
            let mut bytes = header().encode();
            bytes[at] ^= by;
            prop_assert!(LogHeader::decode(&bytes, 300).is_err());
        }

        #[test]
        fn noise_is_no_header(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(LogHeader::decode(&bytes, 300).is_err());
        }
    }
}
