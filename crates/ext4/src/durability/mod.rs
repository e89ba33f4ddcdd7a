//! Ledgers of what is not durable yet of an inode: one of its data, one of its metadata.
//! [`Found::plan`] decides by them what a sync has to do.
//!
//! [`DataLedger`] tracks two things of each block: the place of its newest content, and the newest
//! record that holds it. Only these verbs change them:
//!
//! | verb | content before | content after | record of the block |
//! | --- | --- | --- | --- |
//! | `change` | anywhere | dirty | now holds an older state |
//! | `take` | dirty | leaving | |
//! | `came_home` | leaving | at its home location, not flushed | |
//! | `was_lost` | leaving | lost if the home location has nothing of the file, else older | |
//! | `replaced` | lost, with newer content | the newer content | |
//! | `free` | dirty or lost | nowhere | |
//! | `record` | dirty, or written back for an invalid transaction | same | holds present state |
//! | `unlogged` | anywhere | the same | forgotten if not alive |
//!
//! Invariants:
//! * **durability.L1** If the file has records, the blocks `unlogged` are the dirty ones that no
//!   record holds in their present state.
//! * **durability.L2** Only a block that a record holds can be noted as changed since its record.
//! * **durability.L3** Each block that is taken is later reported exactly once, as written back or
//!   as lost.
//! * **durability.L4** A transaction waits for the file's data only while some of it is dirty or
//!   being written back.
//!
//! [`MetadataLedger`] tracks the newest transaction with a change of each part (the inode, what is
//! needed to read its data, places of blocks, its name, its attributes). The part is durable when
//! that transaction is valid, or when a record contains it:
//!
//! | verb | before | after |
//! | --- | --- | --- |
//! | `changed`, `needed` | any | held by this transaction, which a sync commits |
//! | `touched`, `unrecorded_need`, `moved`, `made` | any | needed in a record until it is valid |
//! | `attributes`, `names_changed`, `grouped`, `reformed` | any | impossible in a record |
//! | `after` | not known | as if all had changed, and no record could contain it |
//! | `recorded` | needed in a record | in a record, until transactions supersede it |
//! | `prune` | held by a valid transaction | durable |
//!
//! * **durability.L5** A change in a transaction that is not valid is not durable for a sync unless
//!   a record contains it: `upto` names that transaction, and `any` tells that there is something
//!   to do.

mod data;
mod metadata;
#[cfg(test)]
mod metadata_tests;
mod names;
mod plan;
mod recorded;
#[cfg(test)]
mod tests;

pub(crate) use data::{Changed, DataLedger, Dropping, Leaving, Overwriting, Unlogged};
pub(crate) use metadata::{MetadataLedger, Naming};
pub(crate) use names::{Before, NAMES};
pub(crate) use plan::{Found, Plan, Room, SyncReason, SyncReasons};
