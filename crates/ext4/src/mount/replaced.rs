//! `Replaced`: files in records whose names later records give to other files.
//!
//! Such a file does not exist in the state after a complete recovery. An interrupted recovery may
//! already have removed it and given its name to the other file. Then making it again would collide
//! with the other file (replay.A4).

use std::collections::{HashMap, HashSet};

use stetfs_ondisk::stet::record::{FileRecord, Name, Node};

use crate::error::Result;
use crate::types::Ino;

/// The takeovers of names in the records of a log.
#[derive(Default)]
pub(super) struct Replaced<'r> {
    /// Names of unlinked files: the last record that gives each to another file, and that file.
    takers: HashMap<(Ino, &'r [u8]), (usize, Ino)>,
    /// All files and directories that records make.
    made: HashSet<Ino>,
    /// Files that are known to be replaced.
    gone: HashSet<Ino>,
}

impl<'r> Replaced<'r> {
    /// The takeovers in these records, in their order.
    pub(super) fn of(records: impl Iterator<Item = &'r FileRecord>) -> Replaced<'r> {
        let mut replaced = Replaced::default();
        for (at, record) in records.enumerate() {
            for node in record.dirs.iter().chain([&record.file]) {
                let Some(Name {
                    parent,
                    name,
                    replaces,
                }) = &node.name
                else {
                    continue;
                };
                replaced.made.insert(node.ino);
                if *replaces {
                    let taker = (at, node.ino);
                    replaced.takers.insert((*parent, name), taker);
                }
            }
        }
        replaced
    }

    /// Whether [`note`](Self::note) found that this file is replaced.
    pub(super) fn is_gone(&self, ino: Ino) -> bool {
        self.gone.contains(&ino)
    }

    /// Returns whether a later record replaces the file of record `at`, which is missing.
    ///
    /// A record of a committed file does not contain the file's name. Then one of the names that
    /// later records take over was its name, and was already removed from it: `leads_to` returns
    /// the inode that a name in a directory has now.
    ///
    /// # Errors
    /// Errors of `leads_to`.
    pub(super) fn note(
        &mut self,
        at: usize,
        node: &Node,
        leads_to: impl Fn(Ino, &[u8]) -> Result<Option<Ino>>,
    ) -> Result<bool> {
        let is_later = |taker: &(usize, Ino)| taker.0 > at && taker.1 != node.ino;
        let is_replaced = match &node.name {
            Some(name) => {
                let taker = self.takers.get(&(name.parent, &name.name[..]));
                taker.is_some_and(is_later)
            }
            None => self.any_is_taken(is_later, leads_to)?,
        };
        if is_replaced {
            self.gone.insert(node.ino);
        }
        Ok(is_replaced)
    }

    /// Whether one of the names that these records take over has been removed from a committed
    /// file.
    fn any_is_taken(
        &self,
        is_later: impl Fn(&(usize, Ino)) -> bool,
        leads_to: impl Fn(Ino, &[u8]) -> Result<Option<Ino>>,
    ) -> Result<bool> {
        let later = self.takers.iter().filter(|(_, taker)| is_later(taker));
        // A directory that a record makes has no committed files.
        for ((dir, name), _) in later.filter(|((dir, _), _)| !self.made.contains(dir)) {
            if leads_to(*dir, name)?.is_none_or(|ino| self.made.contains(&ino)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
