//! The content of the pages of the flash.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ftl::{Geometry, PAGE, PhysOp, Sink, Tally};

/// A page's bytes.
pub(super) type Page = [u8; PAGE as usize];

/// The content of each physical page; `None`: zeros. A move copies a reference, not the bytes.
#[derive(Clone)]
pub(super) struct Content {
    pages: Vec<Option<Arc<Page>>>,
    block_pages: u32,
}

impl Content {
    /// All zeros.
    pub(super) fn new(geometry: Geometry) -> Content {
        Content {
            pages: vec![None; geometry.pages() as usize],
            block_pages: geometry.block_pages,
        }
    }

    /// A page's content; `None`: zeros.
    pub(super) fn get(&self, page: u32) -> Option<&Arc<Page>> {
        self.pages.get(page as usize)?.as_ref()
    }
}

/// Written pages that are not programmed yet, by logical page.
pub(super) type Buffer = BTreeMap<u32, Arc<Page>>;

/// Applies the steps of a layer to the content.
pub(super) struct Mover<'a> {
    pub(super) content: &'a mut Content,
    /// The source of programmed pages.
    pub(super) buffer: &'a mut Buffer,
    pub(super) tally: &'a mut Tally,
}

impl Sink for Mover<'_> {
    fn op(&mut self, op: PhysOp) {
        self.tally.op(op);
        let pages = &mut self.content.pages;
        match op {
            PhysOp::Program { page, lpn } => {
                let written = self.buffer.remove(&lpn);
                // Zeros take no memory.
                pages[page as usize] = written.filter(|w| w.iter().any(|b| *b != 0));
            }
            PhysOp::Copy { from, to } => pages[to as usize] = pages[from as usize].clone(),
            PhysOp::Erase { block } => {
                let first = (block * self.content.block_pages) as usize;
                pages[first..first + self.content.block_pages as usize].fill(None);
            }
            PhysOp::Read { .. } | PhysOp::ProgramMap | PhysOp::EraseMap => {}
        }
    }
}
