//! The StetFS log: lanes of frames that prove themselves, one flush a commit (`docs/format/stet.md`).

mod codec;
mod compress;
mod files;
mod log;
mod pace;
mod pack;
mod payload;
mod read;
mod ring;
mod scan;
mod trim;
mod walk;

pub use codec::StetCodec;
pub use compress::Compression;
pub(crate) use files::lost;
pub use files::{FileLanes, LoggedRecord, RecordPlace};
pub use log::{StetLog, StetOptions};
pub use ring::StetRing;
pub use trim::Trim;
pub(crate) use walk::walk;
