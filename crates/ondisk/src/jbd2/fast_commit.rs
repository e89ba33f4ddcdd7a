//! The fast-commit area: enough of it to tell whether it holds something to replay.
//! Unlike the rest of jbd2 it is little-endian.

use crate::bytes::{array_at, le16, le32};

/// Tag and length in front of each value.
const TLV_LEN: usize = 4;
const TAG_HEAD: u16 = 9;
const TAG_TAIL: u16 = 8;
const TAG_PAD: u16 = 7;

/// What the first block of the area says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastCommitHead {
    /// Feature bits of the writer.
    pub features: u32,
    /// Transaction the fast commits follow.
    pub tid: u32,
}

/// The head tag at the start of the area's first block, if there is one.
#[must_use]
pub fn head(block: &[u8]) -> Option<FastCommitHead> {
    if le16(block, 0)? != TAG_HEAD || usize::from(le16(block, 2)?) < 8 {
        return None;
    }
    Some(FastCommitHead {
        features: le32(block, TLV_LEN)?,
        tid: le32(block, TLV_LEN + 4)?,
    })
}

/// The tags of one block in order: tag number and the value's length in bytes. Ends at padding, at
/// a tail, or where the bytes stop making sense.
pub fn tags(block: &[u8]) -> impl Iterator<Item = (u16, usize)> + '_ {
    let mut at = Some(0usize);
    core::iter::from_fn(move || {
        let here = at?;
        let tag = array_at::<2>(block, here).map(u16::from_le_bytes)?;
        let len = usize::from(le16(block, here + 2)?);
        if tag == 0 || tag > TAG_HEAD || here + TLV_LEN + len > block.len() {
            return None;
        }
        at = (tag != TAG_TAIL && tag != TAG_PAD).then_some(here + TLV_LEN + len);
        Some((tag, len))
    })
}
