//! Where the first blocks of a directory lie, which each look at a name asks.
//!
//! Blocks of a directory never move: it grows, and gives them back when it is deleted. So what its
//! map said once stands as long as the inode is in memory.

use stetfs_journal::BlockNr;
use stetfs_sync::{Mutex, Rank};

/// Blocks that are remembered of one directory, so that a large one takes 4 KiB at most.
const MOST: usize = 512;

/// Places of a directory's first blocks, as far as they were asked for.
pub(crate) struct DirPlaces {
    /// By file block; 0 where nobody asked.
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
    pub(super) fn get(&self, lblk: u32) -> Option<BlockNr> {
        let known = self.known.lock().get(lblk as usize).copied();
        known.filter(|nr| *nr != 0)
    }

    /// Remembers what the map said of file block `lblk`.
    pub(super) fn note(&self, lblk: u32, nr: BlockNr) {
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
