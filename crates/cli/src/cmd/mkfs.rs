//! `stetfs mkfs`: a new volume.

use serde_json::json;
use stetfs::low::Formatted;

use crate::args::MkfsArgs;
use crate::failure::{Failure, Result};
use crate::{log, print};

/// Makes a volume, and says what it is.
pub(crate) fn run(args: &MkfsArgs, json: bool) -> Result {
    log::to_stderr();
    let (target, numbers) = args.read()?;
    let path = &args.volume;
    let made =
        stetfs::low::format(path, &target, &numbers).map_err(|e| Failure::of_format(path, &e))?;
    match json {
        true => print::value(&json!(made), true),
        false => tell(&made),
    }
    Ok(())
}

fn tell(made: &Formatted) {
    let what = if made.written { "made" } else { "would make" };
    let journal = match made.journal_bytes {
        0 => "no journal".to_owned(),
        bytes => format!("a journal of {} KiB", bytes >> 10),
    };
    outln!(
        "{}: {what} an ext4 volume of {} blocks of {} bytes, {} inodes, {journal}",
        made.volume.display(),
        made.blocks,
        made.block_size,
        made.inodes
    );
    outln!("UUID {}", made.uuid);
    for note in &made.notes {
        outln!("{note}");
    }
}
