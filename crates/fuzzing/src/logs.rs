//! Fuzz target for logs of both formats: reads them record by record, and replays them. Checksums
//! are ignored, because the fuzzer could not get past them.

use std::sync::{Arc, OnceLock};

use stetfs::low::{BlockDevice, MemDevice, Preset, preset};
use stetfs_journal::policy::CopyHome;
use stetfs_journal::{Canary, Log, RecoveryOptions};

use crate::images::with_log;
use crate::input::Input;

const BLOCK: u64 = 1024;
const PATCHES: usize = 64;
/// Most records to read; a log has no more blocks.
const RECORDS: usize = 1 << 16;

/// A volume, and the place of its log: first block and number of blocks.
struct Base {
    device: Arc<MemDevice>,
    log: (u64, u64),
}

/// Finds the log by its superblock: magic number and type 4, then the length in blocks.
fn base(preset: Preset) -> Base {
    let device = with_log(preset);
    let mut block = vec![0; BLOCK as usize];
    let blocks = device.size() / BLOCK;
    let found = (0..blocks).find_map(|nr| {
        device.read(nr * BLOCK, &mut block).unwrap();
        let field = |at: usize| u32::from_be_bytes(block[at..at + 4].try_into().unwrap());
        (field(0) == 0xc03b_3998 && field(4) == 4).then(|| (nr, u64::from(field(16))))
    });
    Base {
        device,
        log: found.expect("the volume has a log"),
    }
}

/// Fuzzes a log. The bytes choose a format, then places in the log and new content for them: block,
/// offset, length, content.
pub fn run(bytes: &[u8]) {
    static BASES: OnceLock<[Base; 2]> = OnceLock::new();
    let bases = BASES.get_or_init(|| [base(preset::DATA), base(preset::LDJ)]);
    let mut input = Input::new(bytes);
    let how = input.byte();
    let base = &bases[usize::from(how & 1)];
    let device = Arc::new(base.device.fork());
    let (first, blocks) = base.log;
    for _ in 0..PATCHES {
        if input.is_empty() {
            break;
        }
        let nr = first + u64::from(input.word()) % blocks;
        let offset = u64::from(input.word()) % BLOCK;
        let len = usize::from(input.byte()).min((BLOCK - offset) as usize);
        device.write(nr * BLOCK + offset, input.take(len)).unwrap();
    }
    let canary = Canary {
        skip_checksums: how & 2 == 0,
        ..Canary::default()
    };
    let volume = device.size() / BLOCK;
    let Ok(log) = Log::open(device, BLOCK as u32, &[base.log], canary) else {
        return;
    };
    let mut records = 0;
    let _ = log.walk(&mut |_| {
        records += 1;
        assert!(records < RECORDS, "a log without an end");
        Ok(())
    });
    let how = |dry_run, salvage| RecoveryOptions {
        dry_run,
        salvage,
        ..RecoveryOptions::default()
    };
    let recover = |how| log.recover(volume, how, Box::new(CopyHome), &mut |_, _| {});
    let _ = recover(how(true, false));
    if recover(how(false, false)).is_ok_and(|found| found.records.is_empty())
        || recover(how(false, true)).is_ok_and(|found| found.records.is_empty())
    {
        let again = log.reopen().expect("a log that was replayed is sound");
        assert!(!again.is_dirty(), "a log that was replayed is empty");
    }
}
