//! Usage and limits of users, groups and projects (feature `quota`: hidden inodes with a file of
//! entries each).
//!
//! All entries are in memory while the volume is open for writing. Usage is counted where an inode
//! is put into the journal, in the same transaction: the difference to what was counted of the
//! inode before (`InodeBody::counted`). So no operation counts usage itself, and after a crash the
//! entries agree with the inodes.
//!
//! Invariants:
//! * **quota.Q1** An account in memory equals its entry in the cache block, except for promises.
//! * **quota.Q2** Accounts are only added, with the quota file's inode locked; an entry never
//!   moves.
//! * **quota.Q3** An operation that gives an id its first file opens the id's account before its
//!   handle begins ([`Fs::promise`]).
//! * **quota.Q4** Blocks of a quota file change under the lock of the accounts, which is held from
//!   their read to their write.
//!
//! | file | content |
//! | --- | --- |
//! | `tree` | the format's tree, without I/O |
//! | `ops/quota/store` | the blocks of quota files; opening; new accounts |
//! | `usage` | the usage of inodes, and counting it |
//! | `promise` | limits: an operation gets EDQUOT before it has changed anything |

mod project;
pub(crate) mod promise;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod usage;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stetfs_journal::{BlockNr, Credits};
use stetfs_ondisk::ext4::quota::{Entry, Info, QuotaKind};
use stetfs_sync::Mutex;

pub(crate) use crate::state::tally::{Owner, Usage};
pub(crate) use project::check_project;
pub(crate) use promise::Promise;

use crate::inode::Inode;
pub(crate) use crate::state::tally::KINDS;

/// Extra credits of every handle for each quota file: the entries of two inodes, or of an old and a
/// new owner, and one more.
pub(crate) const CREDITS: Credits = 3;

/// The quota files of a volume that is open for writing.
pub(crate) struct Quotas {
    /// A file for each kind that the volume counts.
    pub(crate) files: Vec<QuotaFile>,
    /// The accounts, by kind.
    pub(crate) accounts: Mutex<[Accounts; KINDS]>,
}

/// A quota file.
pub(crate) struct QuotaFile {
    pub(crate) kind: QuotaKind,
    pub(crate) inode: Arc<Inode>,
}

impl QuotaFile {
    pub(crate) fn index(&self) -> usize {
        self.kind as usize
    }
}

/// The accounts of one kind.
#[derive(Default)]
pub(crate) struct Accounts {
    pub(crate) info: Option<Info>,
    /// Ids whose entries have no reference yet.
    pub(crate) loose: HashSet<u32>,
    pub(crate) by_id: HashMap<u32, Account>,
}

/// Usage and limits of one id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) entry: Entry,
    /// The leaf of its entry: a block of the file.
    pub(crate) leaf: u32,
    /// The block of the volume with the entry.
    pub(crate) nr: BlockNr,
    /// Byte offset of the entry in the block.
    pub(crate) offset: usize,
    /// Space promised to operations under way, bytes.
    pub(crate) promised_space: u64,
    /// Inodes promised to operations under way.
    pub(crate) promised_inodes: u64,
}
