//! The journal: transactions, lanes, commit, checkpoint and recovery.
//!
//! It makes the changes of an operation durable all together or not at all. The file system uses
//! the façade: [`Journal`], [`Handle`], [`CommitPoint`]. Below it a scheme is made of policies
//! ([`policy`]). [`jbd2`], [`stet`] and [`region`] are log formats; `direct` serves volumes without
//! a log. `tx` has the life of a transaction, `engine` runs transactions, and `recovery` replays
//! them after a crash.

#![deny(unsafe_code)]
#![deny(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        clippy::unwrap_used
    )
)]

mod canary;
pub mod compose;
mod damage;
mod direct;
mod edges;
mod engine;
mod error;
mod gate;
mod handle;
mod head;
mod ids;
pub mod jbd2;
mod journal;
mod limits;
mod log;
pub mod policy;
mod records;
mod recovery;
pub mod region;
mod scan;
mod share;
mod stats;
pub mod stet;
mod tx;

pub use canary::Canary;
pub use compose::{Composition, DataMode, Preset};
pub use damage::Damage;
pub use edges::{Dropped, valid_fronts};
pub use engine::config::{Done, FileState, JournalConfig, Submit, Wait};
pub use engine::{CHECKPOINT_THREAD, FlushMark};
pub use error::{JournalError, Result};
pub use handle::{BlockMut, Handle};
pub use head::{Block, Cache, JournalHead};
pub use ids::{BlockNr, CommitPoint, Credits, Ino, Lane, Near, Stamp, TxId};
pub use journal::Journal;
pub use log::{Log, LogFeatures, LogFormat, LogSummary, OpenLog, Record, RecordKind};
pub use policy::{LoggedRecord, RecordPlace};
pub use records::Records;
pub use recovery::{
    Adapt, CannotBe, MOST_MEMORY, Recovery, RecoveryOptions, RecoveryReport, Verdict, recover,
};
pub use share::ShareHome;
pub use stats::{JournalLatency, JournalStats};
pub use stetfs_ondisk::jbd2::fast_commit::{Change, Entry, FastCommit};
pub use tx::{AfterCommit, Image, Snapshot};
