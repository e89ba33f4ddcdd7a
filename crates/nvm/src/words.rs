//! Byte access to words that threads share.
//!
//! Each store of a word is a release: this thread's earlier stores are in memory before it. On x86
//! that costs nothing, and it keeps the compiler from reordering the stores (promise 3 of the
//! crate).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use stetfs_block::{Op, Result, check_range};

use crate::WORD;
use crate::region::word_at;

/// The part of a word that a request touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The word's number.
    pub(crate) word: usize,
    /// The bytes within it.
    pub(crate) bytes: Range<usize>,
}

/// Splits `len` bytes at `offset`, which lie inside the region, into words, upwards.
pub(crate) fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    (offset / WORD..end.div_ceil(WORD)).map(move |word| {
        let start = word * WORD;
        Piece {
            word: word as usize,
            bytes: (offset.max(start) - start) as usize..(end.min(start + WORD) - start) as usize,
        }
    })
}

/// `word` with some of its bytes replaced by the first of `from`.
pub(crate) fn merge(word: u64, bytes: Range<usize>, from: &[u8]) -> u64 {
    let mut all = word.to_ne_bytes();
    for (to, from) in all.iter_mut().take(bytes.end).skip(bytes.start).zip(from) {
        *to = *from;
    }
    u64::from_ne_bytes(all)
}

fn size(words: &[AtomicU64]) -> u64 {
    words.len() as u64 * WORD
}

/// [`Region::read`](crate::Region::read).
pub(crate) fn read(words: &[AtomicU64], offset: u64, buf: &mut [u8]) -> Result<()> {
    check_range(Op::Read, offset, buf.len() as u64, size(words))?;
    let end = offset + buf.len() as u64;
    let first = offset.next_multiple_of(WORD).min(end);
    let last = (end / WORD * WORD).max(first);
    let (head, rest) = buf.split_at_mut((first - offset) as usize);
    let (whole, tail) = rest.split_at_mut((last - first) as usize);
    let load = |word: &AtomicU64| word.load(Ordering::Acquire).to_ne_bytes();
    for (mine, piece) in [
        (head, pieces(offset, first - offset).next()),
        (tail, pieces(last, end - last).next()),
    ] {
        if let Some(piece) = piece {
            mine.copy_from_slice(&load(&words[piece.word])[piece.bytes]);
        }
    }
    let words = words.iter().skip((first / WORD) as usize);
    for (mine, word) in whole.chunks_exact_mut(WORD as usize).zip(words) {
        mine.copy_from_slice(&load(word));
    }
    Ok(())
}

/// [`Region::store`](crate::Region::store).
pub(crate) fn store(words: &[AtomicU64], offset: u64, mut bytes: &[u8]) -> Result<()> {
    check_range(Op::Write, offset, bytes.len() as u64, size(words))?;
    for piece in pieces(offset, bytes.len() as u64) {
        let (mine, rest) = bytes.split_at(piece.bytes.len());
        bytes = rest;
        let word = &words[piece.word];
        match <[u8; WORD as usize]>::try_from(mine) {
            Ok(whole) => word.store(u64::from_ne_bytes(whole), Ordering::Release),
            // Another thread may store to the rest of the word.
            Err(_) => {
                let mut old = word.load(Ordering::Relaxed);
                while let Err(now) = word.compare_exchange_weak(
                    old,
                    merge(old, piece.bytes.clone(), mine),
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    old = now;
                }
            }
        }
    }
    Ok(())
}

/// [`Region::load_u64`](crate::Region::load_u64).
pub(crate) fn load_u64(words: &[AtomicU64], offset: u64) -> Result<u64> {
    let at = word_at(Op::Read, offset, size(words))?;
    Ok(u64::from_le(words[at].load(Ordering::Acquire)))
}

/// [`Region::store_u64`](crate::Region::store_u64).
pub(crate) fn store_u64(words: &[AtomicU64], offset: u64, value: u64) -> Result<()> {
    let at = word_at(Op::Write, offset, size(words))?;
    words[at].store(value.to_le(), Ordering::Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_split_at_words_upwards() {
        let of = |offset, len| pieces(offset, len).collect::<Vec<_>>();
        let piece = |word, bytes| Piece { word, bytes };
        assert_eq!(of(8, 0), []);
        assert_eq!(of(11, 0).iter().map(|p| p.bytes.len()).sum::<usize>(), 0);
        assert_eq!(of(9, 3), [piece(1, 1..4)]);
        assert_eq!(of(7, 17), [piece(0, 7..8), piece(1, 0..8), piece(2, 0..8)]);
    }
}
