//! `stetfs mkfs`: a new volume.

use serde_json::json;
use stetfs::low::{FormatError, Formatted};

use crate::args::MkfsArgs;
use crate::failure::{Code, Failure, Result};
use crate::{log, print};

/// Makes a volume, and says what it is.
pub(crate) fn run(args: &MkfsArgs, json: bool) -> Result {
    log::to_stderr();
    let (target, numbers) = args.read()?;
    let path = &args.volume;
    let made = stetfs::low::format(path, &target, &numbers).map_err(|e| match &e {
        FormatError::Device(e) => Failure::from(e),
        FormatError::Occupied(found) => {
            let message = format!("{}: {e}", path.display());
            let way = match found.is_partition_table() {
                true => "name a partition with -o partition=N, or overwrite the whole with --force",
                false => "if it is not needed any more, overwrite it with --force",
            };
            Failure::new(Code::Usage, message).hint(format!("nothing was changed; {way}"))
        }
        FormatError::Options(_) | FormatError::Size(_) => Failure::new(Code::Usage, e.to_string()),
        FormatError::Encoding(_) => Failure::new(Code::Volume, e.to_string()),
    })?;
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
