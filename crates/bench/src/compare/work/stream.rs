//! Sequential writing and reading of a large file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Result, ensure};

use super::measured::{Below, Measured, Meter, Outcome};
use crate::compare::Better;
use crate::compare::{Sizes, Target};

const CALL: usize = 1 << 20;
const SMALL_CALL: usize = 4 << 10;

/// Incompressible bytes, so that no layer below has an advantage by compression.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0u8; bytes];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for word in buffer.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    buffer
}

/// Writes a file in calls of this size, and syncs it.
fn write(
    target: &Target,
    path: &Path,
    sizes: &Sizes,
    call: usize,
    title: &str,
) -> Result<Measured> {
    let calls = sizes.stream_bytes.div_ceil(call as u64).max(1);
    let mut buffer = noise(call);
    let meter = Meter::start(target)?;
    let mut file = File::create_new(path)?;
    for i in 0..calls {
        buffer[..8].copy_from_slice(&i.to_le_bytes());
        file.write_all(&buffer)?;
    }
    file.sync_all()?;
    let rate = (calls * call as u64) as f64 / 1e6 / meter.seconds();
    Ok(measured(title, rate, meter.below(calls as f64)?))
}

fn measured(title: &str, value: f64, below: Below) -> Measured {
    Measured {
        title: title.to_owned(),
        unit: "MB/s".into(),
        better: Better::Higher,
        value,
        below,
    }
}

/// Writes in small calls, as simple programs do.
pub(super) fn small(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let title = "sequential write by 4 KiB + fsync";
    Ok(vec![write(
        target,
        &dir.join("small"),
        sizes,
        SMALL_CALL,
        title,
    )?])
}

pub(super) fn stream(target: &mut Target, name: &str, sizes: &Sizes) -> Result<Outcome> {
    let path = target.work_dir().join(name).join("stream");
    let written = write(target, &path, sizes, CALL, "sequential write + fsync")?;

    target.make_cold(&path)?;
    let path = target.work_dir().join(name).join("stream");
    let meter = Meter::start(target)?;
    let mut file = File::open(&path)?;
    let (mut buffer, mut total) = (vec![0; CALL], 0u64);
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        total += n as u64;
    }
    let read = total as f64 / 1e6 / meter.seconds();
    ensure!(
        total == fs::metadata(&path)?.len() && total >= sizes.stream_bytes,
        "{total} bytes were read back of {}",
        sizes.stream_bytes
    );
    let below = meter.below(total.div_ceil(CALL as u64) as f64)?;
    Ok(vec![
        written,
        measured("sequential read, cold", read, below),
    ])
}
