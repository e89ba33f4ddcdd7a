//! Commands on a volume that is not mounted: `info` and `recover`.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use stetfs::low::{Composition, RecoveryInfo};

use crate::args::{RecoverArgs, VolumeArg};
use crate::failure::{Code, Failure, Result};
use crate::{log, print};

/// `stetfs info`.
pub(crate) fn info(args: &VolumeArg, json: bool) -> Result {
    let info = stetfs::low::info(&args.source()?)?;
    let mut value = json!(info);
    value["recovery"]["exit_code"] = json!(outcome(&info.recovery) as u8);
    print::value(&value, json);
    Ok(())
}

/// The exit code of a recovery.
fn outcome(recovery: &RecoveryInfo) -> Code {
    match &recovery.failure {
        Some(e) => Failure::from(e.clone()).code,
        None if recovery.is_complete() => Code::Done,
        None => Code::Partly,
    }
}

/// `stetfs recover`.
pub(crate) fn recover(args: &RecoverArgs, json: bool) -> Result<Code> {
    log::to_stderr();
    let (source, how) = args.read()?;
    let bar = ProgressBar::new(0);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} blocks, {elapsed}, {eta} left")
    {
        bar.set_style(style);
    }
    let progress = &mut |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    };
    let done = stetfs::low::recover(&source, &how, progress);
    bar.finish_and_clear();
    let done = done?;
    if json {
        print::value(&json!(done), true);
    } else {
        outln!("{}: {}", done.volume, said(&done.recovery));
        if let Some(home) = done
            .home
            .as_ref()
            .filter(|_| how.journal != Composition::default())
        {
            outln!("home by {}: {}", home.by, home.why);
        }
        for dropped in &done.recovery.dropped {
            outln!("not replayed: {dropped}");
        }
        for damage in &done.recovery.damage {
            outln!("left out: {damage}");
        }
    }
    Ok(outcome(&done.recovery))
}

/// The number of blocks that recovery wrote to their home locations, and how.
fn blocks(r: &RecoveryInfo) -> String {
    match r.shared {
        0 => format!("{} blocks", r.blocks),
        shared => format!("{} blocks: {shared} shared, {} copied", r.blocks, r.copied),
    }
}

/// The result of a recovery, and the state of the volume after it.
fn said(r: &RecoveryInfo) -> String {
    let now = if !r.damage.is_empty() {
        "the journal was damaged: run e2fsck -f".to_owned()
    } else if r.orphans_left > 0 {
        let left = r.orphans_left;
        format!("{left} orphaned inodes are left, because the volume has errors: run e2fsck -f")
    } else if r.has_errors {
        "the journal is empty, but the volume is marked as one with errors: run e2fsck -f"
            .to_owned()
    } else if r.needed {
        "the volume is clean".to_owned()
    } else {
        "clean, there was nothing to do".to_owned()
    };
    if !r.needed {
        return now;
    }
    format!(
        "replayed {} transactions ({}), {} records of files and {} fast commits, deleted {} orphaned inodes and truncated {}; {now}",
        r.transactions,
        blocks(r),
        r.records,
        r.fast_commits,
        r.deleted,
        r.truncated
    )
}
