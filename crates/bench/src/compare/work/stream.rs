//! Sequential writing and reading.

use std::fs::File;
use std::io::{Read, Write};

use anyhow::{Result, ensure};

use super::{Measured, Meter, Outcome};
use crate::compare::report::Better;
use crate::compare::{Sizes, Target};

const CALL: usize = 1 << 20;

pub(super) fn stream(target: &mut Target, name: &str, sizes: &Sizes) -> Result<Outcome> {
    let calls = sizes.stream_bytes.div_ceil(CALL as u64).max(1);
    let megabytes = (calls * CALL as u64) as f64 / 1e6;
    // Not compressible, so that no layer below can cheat.
    let mut buffer = vec![0u8; CALL];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for word in buffer.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }

    let path = target.work_dir().join(name).join("stream");
    let (write, below) = {
        let meter = Meter::start(target)?;
        let mut file = File::create_new(&path)?;
        for i in 0..calls {
            buffer[..8].copy_from_slice(&i.to_le_bytes());
            file.write_all(&buffer)?;
        }
        file.sync_all()?;
        (megabytes / meter.seconds(), meter.below(calls as f64)?)
    };

    target.make_cold(&path)?;
    let path = target.work_dir().join(name).join("stream");
    let meter = Meter::start(target)?;
    let mut file = File::open(&path)?;
    let mut total = 0u64;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        total += n as u64;
    }
    let read = megabytes / meter.seconds();
    ensure!(
        total == calls * CALL as u64,
        "{total} bytes were read back of {}",
        calls * CALL as u64
    );
    let read_below = meter.below(calls as f64)?;
    let rate = |title: &str, value, below| Measured {
        title: title.to_owned(),
        unit: "MB/s",
        better: Better::Higher,
        value,
        below,
    };
    Ok(vec![
        rate("sequential write + fsync", write, below),
        rate("sequential read, cold", read, read_below),
    ])
}
