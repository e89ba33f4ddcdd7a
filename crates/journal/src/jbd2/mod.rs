//! jbd2's own format: the presets `ordered`, `data` and `writeback`.
//!
//! It is, to the byte, the format that the kernel and e2fsck read and write: checksums v1 to v3,
//! 64-bit tags, escapes, revokes. Fast commits are replayed, but not written.

mod area;
mod codec;
mod collect;
mod fast;
mod log;
mod parts;
mod policy;
mod ring;
mod walk;

pub use area::LogArea;
pub use codec::Jbd2Codec;
pub use log::{Features, Jbd2Format, Jbd2Log, LogSummary};
pub use parts::{CUSTOM, DATA, ORDERED, WRITEBACK};
pub use ring::Jbd2Ring;
pub use walk::{Record, RecordKind, walk};
