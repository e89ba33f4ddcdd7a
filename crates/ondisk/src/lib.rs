//! Byte layouts of ext4, jbd2 and the StetFS log: encode, decode, checksums; no I/O.
//!
//! Everything here works on byte slices that the caller read or will write. Every byte read is
//! untrusted: decoders answer [`OnDiskError`] and never panic. The layouts follow the ext4
//! documentation (`Documentation/filesystems/ext4` in the Linux tree), whose field names are kept.

#![forbid(unsafe_code)]
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
        clippy::cast_sign_loss
    )
)]

mod bytes;
pub mod error;
pub mod ext4;
pub mod foreign;
pub mod jbd2;
pub mod num;
pub mod partitions;
pub mod stet;
pub mod uuid;

pub use error::{OnDiskError, Result};
