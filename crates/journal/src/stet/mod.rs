//! The StetFS log: lanes of frames that prove themselves, one flush a commit (`docs/format/stet.md`).

mod codec;
mod compress;
mod log;
mod ring;

pub use codec::StetCodec;
pub use compress::Compression;
pub use log::{StetLog, StetOptions};
pub use ring::StetRing;
