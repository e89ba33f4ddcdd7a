//! The places of a directory's first blocks, remembered because each lookup of a name needs them.
//!
//! Blocks of a directory never move: a directory only grows, and its blocks are freed when it is
//! deleted. So an answer of the map stays right as long as the inode is in memory.

use stetfs_journal::BlockNr;
use stetfs_sync::{Mutex, Rank};

/// The number of blocks remembered for one directory. It bounds the memory of a large directory to
/// 4 KiB.
const MOST: usize = 512;

/// The remembered places of a directory's first blocks.
pub(crate) struct DirPlaces {
    /// Indexed by file block; 0 for a place that is not known.
    known: Mutex<Vec<BlockNr>>,
}

impl Default for DirPlaces {
    fn default() -> DirPlaces {
        DirPlaces {
            known: Mutex::new(Rank::InodeLeaf, Vec::new()),
        }
    }
}

impl DirPlaces {
    /// The place of file block `lblk`, if it is remembered.
    pub(crate) fn get(&self, lblk: u32) -> Option<BlockNr> {
        let known = self.known.lock().get(lblk as usize).copied();
        known.filter(|nr| *nr != 0)
    }

    /// Remembers that file block `lblk` lies at `nr`.
    pub(crate) fn note(&self, lblk: u32, nr: BlockNr) {
        let at = lblk as usize;
        if at >= MOST {
            return;
        }
        let mut known = self.known.lock();
        if known.len() <= at {
            known.resize(at + 1, 0);
        }
        if let Some(place) = known.get_mut(at) {
            *place = nr;
        }
    }
}
