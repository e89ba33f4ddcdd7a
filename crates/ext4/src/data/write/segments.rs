//! What a write finds: runs of file blocks of one kind.

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_journal::BlockNr;

use crate::data::DataStore;
use crate::data::map::Mapping;
use crate::data::pages::Holds;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use stetfs_ondisk::num::bounded32;

/// A run of file blocks of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) lblk: u32,
    pub(super) len: u32,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Written(BlockNr),
    Unwritten(BlockNr),
    Hole,
}

/// What lies at a range, in order.
pub(super) type Segments = SmallVec<[Segment; 4]>;

/// A run of file blocks that are mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped {
    pub(super) lblk: u32,
    pub(super) len: u32,
    /// Where it lies.
    pub(super) start: BlockNr,
    /// What it holds of the file.
    pub(super) holds: Holds,
}

impl Segment {
    /// The segment, if it may be written as it is.
    pub(super) fn written(&self) -> Option<Mapped> {
        match self.kind {
            Kind::Written(start) => Some(self.mapped(start, Holds::Data)),
            Kind::Unwritten(_) | Kind::Hole => None,
        }
    }

    pub(super) fn mapped(&self, start: BlockNr, holds: Holds) -> Mapped {
        Mapped {
            lblk: self.lblk,
            len: self.len,
            start,
            holds,
        }
    }
}

impl DataStore {
    /// What lies at a range of file blocks.
    pub(super) fn segments(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: &Range<u64>,
    ) -> Result<Segments> {
        let mut segments = Segments::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let lblk = u32::try_from(at).map_err(|_| FsError::Errno(libc::EFBIG))?;
            let (len, kind) = match self.map(inode, body, lblk, bounded32(blocks.end - at))? {
                Mapping::Hole { len } => (len, Kind::Hole),
                Mapping::Mapped {
                    start,
                    len,
                    unwritten: true,
                } => (len, Kind::Unwritten(start)),
                Mapping::Mapped {
                    start,
                    len,
                    unwritten: false,
                } => (len, Kind::Written(start)),
            };
            match segments.last_mut() {
                // Holes are told in pieces.
                Some(last) if last.kind == Kind::Hole && kind == Kind::Hole => last.len += len,
                _ => segments.push(Segment { lblk, len, kind }),
            }
            at += u64::from(len);
        }
        Ok(segments)
    }
}
