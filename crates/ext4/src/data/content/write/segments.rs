//! Segments: the present mappings that a write finds, as runs of one kind.

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_journal::BlockNr;

use crate::data::DataStore;
use crate::data::content::pages::Holds;
use crate::data::maps::map::Mapping;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use stetfs_ondisk::num::bounded32;

/// A run of file blocks of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) lblk: u32,
    pub(crate) len: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Written(BlockNr),
    Unwritten(BlockNr),
    Hole,
}

/// The mappings of a range, in order.
pub(crate) type Segments = SmallVec<[Segment; 4]>;

/// A run of file blocks that is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    pub(super) lblk: u32,
    pub(super) len: u32,
    /// First block of the run on the volume.
    pub(super) start: BlockNr,
    /// The file's content in the blocks.
    pub(super) holds: Holds,
}

impl Segment {
    /// The segment, if it can be overwritten as it is.
    pub(crate) fn written(&self) -> Option<Mapped> {
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
    /// The mappings of a range of file blocks.
    pub(crate) fn segments(
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
                // A hole may be reported in several pieces.
                Some(last) if last.kind == Kind::Hole && kind == Kind::Hole => last.len += len,
                _ => segments.push(Segment { lblk, len, kind }),
            }
            at += u64::from(len);
        }
        Ok(segments)
    }
}
