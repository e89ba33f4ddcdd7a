//! Conversions of numbers to another width: the only place where bits may be lost, each way with
//! its reason.
//!
//! Everywhere else the crates above deny `as` where it may change a number. Values from a disk or a
//! caller go through `try_from`, with an error; conversions to a wider type go through `from`.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

const _: () = assert!(usize::BITS == 64, "lengths and offsets are of 64 bits");

/// A 64-bit number as a length or an index in memory, which has the same width.
#[must_use]
pub const fn to_usize(n: u64) -> usize {
    n as usize
}

/// The low half of a number that the format splits, or that wraps around, such as a `tid`.
#[must_use]
pub const fn low32(n: u64) -> u32 {
    n as u32
}

/// The high half of a number that the format splits.
#[must_use]
pub const fn high32(n: u64) -> u32 {
    (n >> 32) as u32
}

/// Like [`low32`], of a 32-bit number. Of 48 bits, the high 16 are `low16(high32(n))`.
#[must_use]
pub const fn low16(n: u32) -> u16 {
    n as u16
}

/// Like [`high32`], of a 32-bit number.
#[must_use]
pub const fn high16(n: u32) -> u16 {
    (n >> 16) as u16
}

/// A count of things in memory, for a field of 32 bits. Callers keep it far below the limit. Beyond
/// it all bits are set, which contradicts the data behind the field; a truncated number might pass
/// for a true one.
#[must_use]
pub const fn count32(n: usize) -> u32 {
    bounded32(n as u64)
}

/// A 64-bit number that an earlier check keeps to 32 bits; beyond that all bits are set, as with
/// [`count32`].
#[must_use]
pub const fn bounded32(n: u64) -> u32 {
    if n > u32::MAX as u64 {
        u32::MAX
    } else {
        n as u32
    }
}

/// [`count32`], for a field of 16 bits.
#[must_use]
pub const fn count16(n: usize) -> u16 {
    if n > u16::MAX as usize {
        u16::MAX
    } else {
        n as u16
    }
}

/// A number as a floating-point value, for means and ratios; exact up to 2⁵³.
#[must_use]
pub const fn approx(n: u64) -> f64 {
    n as f64
}

/// A byte as a signed `char` widens it.
#[must_use]
pub const fn sign_extended(byte: u8) -> u32 {
    (byte.cast_signed() as i32).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_make_the_whole() {
        let n = 0x0123_4567_89ab_cdef;
        assert_eq!((high32(n), low32(n)), (0x0123_4567, 0x89ab_cdef));
        assert_eq!((high16(low32(n)), low16(low32(n))), (0x89ab, 0xcdef));
        assert_eq!(to_usize(n), 0x0123_4567_89ab_cdef);
    }

    #[test]
    fn a_count_is_never_cut_short() {
        assert_eq!((count16(0xffff), count16(0x1_0000)), (0xffff, 0xffff));
        assert_eq!(count32(0xffff_ffff), u32::MAX);
        assert_eq!(count32(0x1_0000_0001), u32::MAX);
        assert_eq!(bounded32(0x1_0000_0001), u32::MAX);
        assert_eq!(bounded32(7), 7);
    }

    #[test]
    fn a_signed_char_keeps_its_sign() {
        assert_eq!(sign_extended(0x7f), 0x7f);
        assert_eq!(sign_extended(0x80), 0xffff_ff80);
    }
}
