//! Bounds-checked access to slices, and the assertion that fixes a layout at compile time.

use crate::error::{Result, corrupt};

/// Fails the build when a structure's size or a field's offset differs from the format.
macro_rules! assert_layout {
    ($t:ty, $size:expr, { $($f:ident: $off:expr),* $(,)? }) => {
        const _: () = {
            assert!(core::mem::size_of::<$t>() == $size);
            assert!(core::mem::align_of::<$t>() == 1);
            $(assert!(core::mem::offset_of!($t, $f) == $off);)*
        };
    };
}
pub(crate) use assert_layout;

/// `N` bytes at `off`, or `None` past the end.
pub(crate) fn array_at<const N: usize>(b: &[u8], off: usize) -> Option<[u8; N]> {
    b.get(off..off.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn le16(b: &[u8], off: usize) -> Option<u16> {
    array_at(b, off).map(u16::from_le_bytes)
}

pub(crate) fn le32(b: &[u8], off: usize) -> Option<u32> {
    array_at(b, off).map(u32::from_le_bytes)
}

pub(crate) fn be32(b: &[u8], off: usize) -> Option<u32> {
    array_at(b, off).map(u32::from_be_bytes)
}

/// Copies `v` to `off`; `None` (and nothing written) when it does not fit.
pub(crate) fn put(b: &mut [u8], off: usize, v: &[u8]) -> Option<()> {
    b.get_mut(off..off.checked_add(v.len())?)?
        .copy_from_slice(v);
    Some(())
}

/// The first `len` bytes of a structure, or an error naming it.
pub(crate) fn prefix<'a>(what: &'static str, b: &'a [u8], len: usize) -> Result<&'a [u8]> {
    b.get(..len).ok_or_else(|| too_short(what, b.len(), len))
}

/// Mutable [`prefix`].
pub(crate) fn prefix_mut<'a>(
    what: &'static str,
    b: &'a mut [u8],
    len: usize,
) -> Result<&'a mut [u8]> {
    let have = b.len();
    b.get_mut(..len).ok_or_else(|| too_short(what, have, len))
}

/// The error for a buffer that is shorter than its structure.
pub(crate) fn too_short(what: &'static str, have: usize, need: usize) -> crate::OnDiskError {
    corrupt!(what, "{have} bytes where {need} are needed")
}
