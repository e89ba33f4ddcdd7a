//! The payload of a frame, built while its chunks arrive one after the other.

use std::sync::Arc;

use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::num::{count32, to_usize};

use crate::error::Result;
use crate::policy::Early;

/// The number of bytes that are worth a write of their own while later chunks are being packed.
const EARLY: usize = 1 << 20;

/// The complete blocks of a payload that are not written yet, and the beginning of the next block.
pub(super) struct Payload {
    size: usize,
    /// The position of the first of `ready`, in log blocks from the start of the frame.
    at: u64,
    ready: Vec<PageRef>,
    /// The number of blocks that were written early.
    sent: u64,
    begun: Vec<u8>,
    /// The position of each image, in log blocks from the start of the frame; none if it is packed.
    places: Vec<Option<u32>>,
}

impl Payload {
    /// The payload of a frame whose head takes `head` blocks of `size` bytes.
    pub(super) fn new(size: usize, head: u64) -> Payload {
        Payload {
            size: size.max(1),
            at: head,
            ready: Vec::new(),
            sent: 0,
            begun: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Adds a packed chunk of `images` images.
    pub(super) fn packed(&mut self, bytes: &[u8], images: usize) {
        self.begun.extend_from_slice(bytes);
        let whole = self.begun.len() / self.size * self.size;
        let rest = self.begun.split_off(whole);
        let blocks = self.begun.chunks(self.size);
        self.ready
            .extend(blocks.map(|b| Arc::new(Page::copy_of(b))));
        self.begun = rest;
        self.places.resize(self.places.len() + images, None);
    }

    /// Adds a raw chunk, from the next block boundary on (`stetfs_ondisk::stet::frame::place`).
    pub(super) fn verbatim(&mut self, images: &[PageRef]) {
        self.fill();
        for image in images {
            self.places
                .push(Some(count32(to_usize(self.at) + self.ready.len())));
            self.ready.push(Arc::clone(image));
        }
    }

    /// Completes a begun block with zeroes.
    fn fill(&mut self) {
        if !self.begun.is_empty() {
            self.ready
                .push(Arc::new(Page::padded(self.size, &self.begun)));
            self.begun.clear();
        }
    }

    /// Writes the complete blocks early, if there are many.
    ///
    /// # Errors
    /// The errors of `early`.
    pub(super) fn send(&mut self, early: &mut Early<'_>) -> Result<()> {
        if self.ready.len() * self.size >= EARLY {
            early(self.at, &self.ready)?;
            self.at += self.ready.len() as u64;
            self.sent += self.ready.len() as u64;
            self.ready.clear();
        }
        Ok(())
    }

    /// The blocks that are left, the number of those written before, and the position of each
    /// verbatim image.
    pub(super) fn finish(mut self) -> (Vec<PageRef>, u64, Vec<Option<u32>>) {
        self.fill();
        (self.ready, self.sent, self.places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_out_whole_and_in_order() -> Result<()> {
        let image = |v: u8| Arc::new(Page::copy_of(&[v; 1024]));
        let mut payload = Payload::new(1024, 2);
        let mut log: Vec<u8> = Vec::new();
        let mut next = 2;
        let mut early = |at: u64, blocks: &[PageRef]| {
            assert_eq!(at, next);
            next += blocks.len() as u64;
            blocks.iter().for_each(|b| log.extend_from_slice(b));
            Ok(())
        };
        payload.packed(&[1; 700], 3);
        payload.packed(&[2; 700], 1);
        payload.verbatim(&[image(3), image(4)]);
        for _ in 0..3000 {
            payload.packed(&[5; 500], 2);
            payload.send(&mut early)?;
        }
        let (rest, sent, places) = payload.finish();
        assert_eq!(sent, next - 2);
        assert!(sent >= 1024, "nothing went out early");
        rest.iter().for_each(|b| log.extend_from_slice(b));
        assert_eq!(log.get(..1400), Some(&[[1; 700], [2; 700]].concat()[..]));
        // Verbatim images start on a block boundary; packed ones do not.
        assert_eq!(
            places.get(..7),
            Some(&[None, None, None, None, Some(4), Some(5), None][..])
        );
        assert_eq!(
            log.get(2048..4096),
            Some(&[[3; 1024], [4; 1024]].concat()[..])
        );
        assert!(log.iter().skip(4096).take(1_500_000).all(|b| *b == 5));
        assert_eq!(places.len(), 6 + 6000);
        Ok(())
    }
}
