//! What the journal remembers about a cached block (jbd2: `journal_head`).

use stetfs_cache::PageRef;

use crate::ids::TxId;

/// The journal's notes on one block.
#[derive(Debug, Default)]
pub struct JournalHead {
    /// The newest transaction that lists this block, whatever its phase. `None`: never changed
    /// since it was loaded, or freed by the transaction that had listed it.
    pub(crate) tx: Option<TxId>,
    /// What the block was before that transaction, where it is asked for
    /// ([`Codec::change_unit`](crate::policy::Codec::change_unit)); none if that does not matter.
    pub(crate) base: Option<PageRef>,
    /// The home holds neither the content nor a part of the live log that leads to it: a write home
    /// past the journal failed. The next transaction logs all of the block (changes.C1).
    pub(crate) unlike_home: bool,
}

/// The buffer cache as the journal and the file system share it.
pub type Cache = stetfs_cache::Cache<JournalHead>;
/// A cached block.
pub type Block = stetfs_cache::Block<JournalHead>;
/// A cached block, open for changing.
pub(crate) type BlockWrite<'b> = stetfs_cache::BlockWrite<'b, JournalHead>;
