//! The StetFS log: lanes of frames, each of which proves itself by checksums, and one flush a
//! commit (`docs/format/stet.md`).

mod codec;
mod compress;
mod cut;
mod files;
mod in_region;
mod log;
mod options;
mod pace;
mod pack;
mod parts;
mod payload;
mod policy;
mod read;
mod ring;
mod scan;
mod trim;
mod walk;

pub use codec::StetCodec;
pub use compress::Compression;
pub use files::FileLanes;
pub use log::{StetFormat, StetLog};
pub use options::StetOptions;
pub use parts::{IJOURNAL, LDJ, NVM, STET};
pub use ring::StetRing;
pub use trim::Trim;
