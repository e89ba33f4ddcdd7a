//! SHARE as ioctls of a served device (`include/stetfs-share.h`).

use stetfs::low::{BlockDevice, FsError, Share, SharePair};

use crate::api::ops::{IoctlArgs, IoctlReply};

/// The type of the ioctls, in bits 8 to 15 of their number.
const TYPE: u32 = 0xef;
/// The ioctl that shares a batch. Its argument is as long as the batch.
const SHARE: u32 = 1;
/// The ioctl that returns the device's limits.
const LIMITS: u32 = 2;
/// The only flag of the limits.
const ATOMIC: u32 = 1;
/// Bytes before the pairs, and bytes of a pair.
const HEAD: usize = 8;
const PAIR: usize = 24;

/// A decoded ioctl.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Query of the limits.
    Limits,
    /// Share of this batch.
    Batch(Vec<SharePair>),
}

fn invalid() -> FsError {
    FsError::Errno(libc::EINVAL)
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn long(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

fn pair(bytes: &[u8]) -> Option<SharePair> {
    Some(SharePair {
        dst: long(bytes)?,
        src: long(bytes.get(8..)?)?,
        len: long(bytes.get(16..)?)?,
    })
}

/// Decodes an ioctl.
///
/// # Errors
/// ENOTTY for another ioctl, EINVAL for an invalid argument.
pub(crate) fn parse(args: &IoctlArgs<'_>) -> Result<Call, FsError> {
    match (args.cmd >> 8 & 0xff, args.cmd & 0xff) {
        (TYPE, LIMITS) => Ok(Call::Limits),
        (TYPE, SHARE) => {
            let count = word(args.input).ok_or_else(invalid)? as usize;
            let flags = args.input.get(4..).and_then(word).ok_or_else(invalid)?;
            let pairs = args.input.get(HEAD..).unwrap_or_default();
            if flags != 0 || pairs.len() != count.checked_mul(PAIR).ok_or_else(invalid)? {
                return Err(invalid());
            }
            let pairs: Option<_> = pairs.chunks_exact(PAIR).map(pair).collect();
            pairs.map(Call::Batch).ok_or_else(invalid)
        }
        _ => Err(FsError::Errno(libc::ENOTTY)),
    }
}

/// Runs a decoded ioctl.
///
/// # Errors
/// ENOTTY if the device cannot share; otherwise the device's error.
pub(crate) fn run(device: &impl BlockDevice, call: &Call) -> Result<IoctlReply, FsError> {
    let share: &dyn Share = device.share().ok_or(FsError::Errno(libc::ENOTTY))?;
    let data = match call {
        Call::Limits => {
            let limits = share.limits();
            let words = [limits.unit, if limits.atomic { ATOMIC } else { 0 }];
            let longs = [limits.pairs, limits.references];
            let words = words.iter().flat_map(|n| n.to_ne_bytes());
            words
                .chain(longs.iter().flat_map(|n| n.to_ne_bytes()))
                .collect()
        }
        Call::Batch(pairs) => {
            share.share_batch(pairs).map_err(|e| {
                tracing::debug!("{e}");
                FsError::Errno(e.errno())
            })?;
            Vec::new()
        }
    };
    Ok(IoctlReply { result: 0, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(cmd: u32, input: &[u8]) -> Result<Call, i32> {
        let args = IoctlArgs {
            cmd,
            input,
            out_size: 0,
            arg: 0,
        };
        parse(&args).map_err(|e| match e {
            FsError::Errno(errno) => errno,
            _ => 0,
        })
    }

    #[test]
    fn a_batch_is_as_long_as_it_says() {
        let mut input: Vec<u8> = [2u32, 0].iter().flat_map(|n| n.to_ne_bytes()).collect();
        input.extend([1u64, 2, 3, 4, 5, 6].iter().flat_map(|n| n.to_ne_bytes()));
        let cmd = 0x4000_0000 | (56 << 16) | 0xef01;
        let pair = |dst, src, len| SharePair { dst, src, len };
        let both = vec![pair(1, 2, 3), pair(4, 5, 6)];
        assert_eq!(parsed(cmd, &input), Ok(Call::Batch(both)));
        for wrong in [0, 3, 4, 8, 32, 55] {
            assert_eq!(
                parsed(cmd, &input[..wrong]),
                Err(libc::EINVAL),
                "{wrong} bytes"
            );
        }
        input[4] = 1;
        assert_eq!(parsed(cmd, &input), Err(libc::EINVAL), "flags");
        input[..8].fill(0xff);
        assert_eq!(
            parsed(cmd, &input),
            Err(libc::EINVAL),
            "a count that is too large"
        );
        assert_eq!(parsed(0x8018_ef02, &[]), Ok(Call::Limits));
        assert_eq!(parsed(0x8018_ef03, &[]), Err(libc::ENOTTY));
        assert_eq!(parsed(0x5401, &[]), Err(libc::ENOTTY));
    }
}
