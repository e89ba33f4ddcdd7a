//! Inode timestamps: 32-bit seconds, widened by two epoch bits and 30 bits of nanoseconds
//! ("Inode Timestamps" in the ext4 documentation).

use crate::num::{high32, low32};

/// A point in time as ext4 can store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC, possibly negative.
    pub sec: i64,
    /// Nanoseconds, below 1 000 000 000.
    pub nsec: u32,
}

impl Timestamp {
    /// Smallest second that fits in any inode.
    pub const MIN_SEC: i64 = i32::MIN as i64;
    /// Largest second that fits in an inode with the extra fields.
    pub const MAX_SEC: i64 = Self::MIN_SEC + (1 << 34) - 1;
    /// Largest second that fits without the extra fields.
    pub const MAX_SEC_32: i64 = i32::MAX as i64;

    /// The nearest time that an inode can hold, by the kernel's rule (`timestamp_truncate`): at the
    /// ends of the range without nanoseconds. `extra` says whether the inode has the extra fields.
    #[must_use]
    pub fn storable(self, extra: bool) -> Self {
        let max = if extra {
            Self::MAX_SEC
        } else {
            Self::MAX_SEC_32
        };
        let sec = self.sec.clamp(Self::MIN_SEC, max);
        let whole = !extra || sec == Self::MIN_SEC || sec == max;
        Timestamp {
            sec,
            nsec: if whole { 0 } else { self.nsec },
        }
    }

    /// Decodes `i_Xtime` and, if the inode has it, `i_Xtime_extra`. Nanoseconds of 10⁹ or more,
    /// which only corruption makes, read as 999 999 999.
    #[must_use]
    pub fn decode(seconds: u32, extra: Option<u32>) -> Self {
        let low = i64::from(seconds.cast_signed());
        match extra {
            None => Timestamp { sec: low, nsec: 0 },
            Some(x) => Timestamp {
                sec: low + (i64::from(x & 3) << 32),
                nsec: (x >> 2).min(999_999_999),
            },
        }
    }

    /// Encodes `(i_Xtime, i_Xtime_extra)`; seconds out of range are clamped, as in the kernel.
    #[must_use]
    pub fn encode(self) -> (u32, u32) {
        let sec = self.sec.clamp(Self::MIN_SEC, Self::MAX_SEC);
        let low = low32(sec.cast_unsigned());
        let epoch = high32((sec - i64::from(low.cast_signed())).cast_unsigned()) & 3;
        (low, (self.nsec.min(999_999_999) << 2) | epoch)
    }

    /// Encodes `i_Xtime` alone, for inodes without the extra fields; clamped to 32 bits.
    #[must_use]
    pub fn encode_32(self) -> u32 {
        let sec = self.sec.clamp(Self::MIN_SEC, Self::MAX_SEC_32);
        low32(sec.cast_unsigned())
    }
}

/// A superblock time: 32 low bits and 8 high bits, unsigned (`s_wtime`, `s_wtime_hi`).
#[must_use]
pub fn superblock_time(lo: u32, hi: u8) -> u64 {
    u64::from(lo) | (u64::from(hi) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn table_of_the_documentation() {
        // The rows of "extra epoch bits / MSB of 32-bit time / adjustment".
        assert_eq!(Timestamp::decode(0xFFFF_FFFF, Some(0)).sec, -1);
        assert_eq!(Timestamp::decode(0x8000_0000, Some(1)).sec, 0x8000_0000);
        assert_eq!(Timestamp::decode(0, Some(1)).sec, 0x1_0000_0000);
        assert_eq!(Timestamp::decode(0x7FFF_FFFF, Some(3)).sec, 0x3_7FFF_FFFF);
        assert_eq!(Timestamp::MAX_SEC, 0x3_7FFF_FFFF);
    }

    #[test]
    fn the_ends_of_the_range_have_no_nanoseconds() {
        let t = |sec, nsec| Timestamp { sec, nsec };
        assert_eq!(t(5, 7).storable(true), t(5, 7));
        assert_eq!(t(5, 7).storable(false), t(5, 0));
        assert_eq!(t(i64::MIN, 7).storable(true), t(-0x8000_0000, 0));
        assert_eq!(t(-0x8000_0000, 7).storable(true), t(-0x8000_0000, 0));
        assert_eq!(t(i64::MAX, 7).storable(true), t(0x3_7FFF_FFFF, 0));
        assert_eq!(t(i64::MAX, 7).storable(false), t(0x7FFF_FFFF, 0));
    }

    proptest! {
        #[test]
        fn round_trip(sec in Timestamp::MIN_SEC..=Timestamp::MAX_SEC, nsec in 0u32..1_000_000_000) {
            let t = Timestamp { sec, nsec };
            let (lo, extra) = t.encode();
            prop_assert_eq!(Timestamp::decode(lo, Some(extra)), t);
        }

        #[test]
        fn any_bits_decode_to_something_storable(lo: u32, extra: u32) {
            let t = Timestamp::decode(lo, Some(extra));
            prop_assert!(t.nsec < 1_000_000_000);
            let (lo2, extra2) = t.encode();
            prop_assert_eq!(Timestamp::decode(lo2, Some(extra2)), t);
        }
    }
}
