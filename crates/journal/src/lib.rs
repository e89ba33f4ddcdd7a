//! Transactions, lanes, commit, checkpoint, recovery; one folder per scheme.
//!
//! The file system uses the façade: [`Journal`], [`Handle`], [`CommitPoint`]. Schemes are made of
//! four policies ([`policy`]) below it; [`jbd2`] is the first; `direct` is for volumes without a
//! log. Files are the phases of a transaction's life: `handle`, `tx`, `engine/commit`,
//! `engine/checkpoint`, `recovery`.

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
mod log;
pub mod policy;
mod recovery;
pub mod region;
mod scan;
mod share;
mod stats;
pub mod stet;
mod tx;

pub use compose::{Composition, DataMode, Preset};
pub use damage::Damage;
pub use edges::{Dropped, valid_fronts};
pub use engine::{
    CHECKPOINT_THREAD, Canary, Done, FileState, FlushMark, Journal, JournalConfig, Records, Submit,
    Wait,
};
pub use error::{JournalError, Result};
pub use handle::{BlockMut, Handle};
pub use head::{Block, Cache, JournalHead};
pub use ids::{BlockNr, CommitPoint, Credits, Ino, Lane, Stamp, TxId};
pub use log::{Log, LogFeatures, LogFormat, LogSummary, OpenLog, Record, RecordKind};
pub use policy::{LoggedRecord, RecordPlace};
pub use recovery::{
    Adapt, CannotBe, MOST_MEMORY, Recovery, RecoveryOptions, RecoveryReport, Verdict, recover,
};
pub use share::ShareHome;
pub use stats::{JournalLatency, JournalStats};
pub use stetfs_ondisk::jbd2::fast_commit::{Change, Entry, FastCommit};
pub use tx::{AfterCommit, Image, Snapshot};
